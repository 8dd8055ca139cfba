"""The command line of the embedded servers: `python -m durableops.embedded start|stop`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.services import start, stop

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Start or stop, and print the addresses as NAME=value lines."""
    parser = argparse.ArgumentParser(prog="python -m durableops.embedded", description=__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    action = parser.parse_args().action
    try:
        if action == "start":
            for name, value in start(CHECKOUT, environ=os.environ).items():
                print(f"{name}={value}")
        else:
            print(f"stopped: {', '.join(stop(CHECKOUT)) or 'nothing was running'}")
    except EmbeddedError as problem:
        sys.exit(f"embedded servers: {problem}")


if __name__ == "__main__":
    main()
