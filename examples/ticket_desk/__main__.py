"""`python -m examples.ticket_desk`: start the desk, print its address as one JSON line, serve until told to stop."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from pathlib import Path

from examples.ticket_desk.desk import Desk
from examples.ticket_desk.web import Server


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="examples.ticket_desk", description="A ticket desk that can misbehave.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--data", type=Path, required=True, help="folder for the desk's database")
    parser.add_argument("--key-retention-seconds", type=float, default=24 * 3600.0)
    parser.add_argument("--stop-at-end-of-input", action="store_true", help="stop when standard input closes")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or (if asked) the end of standard input."""
    options = parse_arguments(arguments)
    desk = Desk(options.data, key_retention_seconds=options.key_retention_seconds)
    server = Server((options.host, options.port), desk)

    def stop(*_: object) -> None:
        # shutdown() waits for the serving loop, which the main thread runs: call it from another one.
        threading.Thread(target=server.shutdown).start()

    def stop_at_end_of_input() -> None:
        # Not through sys.stdin: a thread inside its lock would abort the interpreter's exit.
        while os.read(0, 4096):
            pass
        stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.stop_at_end_of_input:
        threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    print(json.dumps({"url": server.url, "pid": os.getpid(), "data": str(options.data)}), flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    desk.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
