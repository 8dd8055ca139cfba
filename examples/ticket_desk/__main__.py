"""`python -m examples.ticket_desk`: start the desk, print its address as one JSON line, serve until told to stop."""

from __future__ import annotations

from examples.serving.process import Process, parser_for
from examples.ticket_desk.desk import Desk
from examples.ticket_desk.web import ROUTES


def main(arguments: list[str] | None = None) -> int:
    """Serve."""
    parser = parser_for("examples.ticket_desk", "A ticket desk that can misbehave.")
    parser.add_argument("--key-retention-seconds", type=float, default=24 * 3600.0)
    options = parser.parse_args(arguments)
    desk = Desk(options.data, key_retention_seconds=options.key_retention_seconds)
    return Process(options, desk, ROUTES).serve()


if __name__ == "__main__":
    raise SystemExit(main())
