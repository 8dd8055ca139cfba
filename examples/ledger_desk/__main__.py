"""`python -m examples.ledger_desk`: start the ledger, print its address as one JSON line, serve until told to stop."""

from __future__ import annotations

from examples.ledger_desk.book import Book
from examples.ledger_desk.web import ROUTES
from examples.serving.process import Process, parser_for


def main(arguments: list[str] | None = None) -> int:
    """Serve."""
    options = parser_for("examples.ledger_desk", "A ledger that books whatever it is sent.").parse_args(arguments)
    return Process(options, Book(options.data), ROUTES).serve()


if __name__ == "__main__":
    raise SystemExit(main())
