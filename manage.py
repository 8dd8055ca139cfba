"""The command line of the project. Which database role a command gets is decided here; what commands do is not."""

from __future__ import annotations

import os
import sys

# These change the schema, so they need the role that owns it. All others run as the application's role, which cannot
# rewrite history (runs/grants.py).
OWNER_COMMANDS = frozenset({"migrate", "flush", "sqlflush", "dbshell", "createcachetable", "test"})


def main(argv: list[str]) -> None:
    """Run one management command; errors in the settings are one sentence, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    if OWNER_COMMANDS.intersection(argv[1:2]):
        os.environ["DURABLEOPS_DATABASE_ROLE"] = "owner"
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ModuleNotFoundError as missing:
        sys.exit(
            f"{missing.name} is not installed for {sys.executable}. Run `make test` once, then use .venv/bin/python."
        )
    try:
        execute_from_command_line(argv)
    except ImproperlyConfigured as problem:
        sys.exit(f"settings: {problem}")


if __name__ == "__main__":
    main(sys.argv)
