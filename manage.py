"""The command line of the project. Which database role a command gets is decided here; what commands do is not."""

from __future__ import annotations

import os
import sys

# These change the schema, so they need the role that owns it. All others run as the application's role, which cannot
# rewrite history (runs/grants.py).
OWNER_COMMANDS = frozenset({"migrate", "flush", "sqlflush", "dbshell", "createcachetable", "test"})
LOCK_NOT_AVAILABLE = "55P03"
INTERRUPTED = 130
"""Exit status of what was ended with Ctrl-C, as shells have it."""


def main(argv: list[str]) -> None:
    """Run one management command; what stands in its way is told in one sentence, not in a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    if OWNER_COMMANDS.intersection(argv[1:2]):
        os.environ["DURABLEOPS_DATABASE_ROLE"] = "owner"
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError

        from durableops.errors import DefinitionError
    except ModuleNotFoundError as missing:
        sys.exit(f"{missing.name} is missing for {sys.executable}. Run `make test` once, then use .venv/bin/python.")
    try:
        execute_from_command_line(argv)
    except ImproperlyConfigured as problem:
        sys.exit(f"settings: {problem}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except DefinitionError as mistake:
        sys.exit(f"definition: {mistake}")
    except ModuleNotFoundError as missing:
        if not is_an_app(missing.name):
            raise
        sys.exit(f"settings: DURABLEOPS_APPS names {missing.name!r}, which cannot be imported. Is it on the path?")
    except OperationalError as problem:
        sentence = explain(getattr(problem.__cause__, "sqlstate", ""), problem)
        if sentence is None:
            raise
        sys.exit(sentence)


def is_an_app(module: str | None) -> bool:
    """Tell whether what could not be imported is one of the apps that were asked for, or the package of one."""
    from django.conf import settings

    return module is not None and any(f"{app}.".startswith(f"{module}.") for app in settings.INSTALLED_APPS)


def explain(sqlstate: str | None, problem: Exception) -> str | None:
    """Say what to do about a database that is not there or does not yield; None if that is not the trouble."""
    if sqlstate is None:  # the server never answered
        return f"database: {str(problem).splitlines()[0]}. Start it (`make services`) or correct DATABASE_URL."
    if sqlstate == LOCK_NOT_AVAILABLE:
        return "database: another session holds a table for over 5 s; the migration in hand was undone. Run it again."
    return None


if __name__ == "__main__":
    main(sys.argv)
