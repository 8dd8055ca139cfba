"""`manage.py` in a process whose wall clock is wrong: `skewed SECONDS COMMAND`. Its monotonic clock is right."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta
from typing import Any


def skew(seconds: float) -> None:
    """Shift what our code and its libraries read as the time of day."""
    real_time = time.time
    time.time = lambda: real_time() + seconds

    class Shifted(datetime):
        """A datetime whose `now` is off."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    for name, module in list(sys.modules.items()):
        ours = name.startswith(("durableops", "runs", "django.utils.timezone"))
        if ours and getattr(module, "datetime", None) is datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]


def main(seconds: float, command: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    import django

    django.setup()
    from django.core.management import call_command

    from durableops.engine import supervisor  # noqa: F401  # everything a worker reads is imported before the shift

    skew(seconds)
    call_command(command)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
