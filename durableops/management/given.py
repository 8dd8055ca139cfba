"""What commands are given, checked in one place: JSON from a file or standard input, and the name of a tenant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from durableops.checkpoints.codec import parse_input
from durableops.conf import get_conf
from durableops.errors import InputTooLarge
from runs.models import Tenant

STANDARD_INPUT = "-"


def json_of_file(name: str, *, what: str) -> Any:
    """Read JSON from a file, or from standard input for `-`, never more of it than is accepted.

    Raises CommandError if it cannot be read, InputRefused if it is not acceptable.
    """
    limit = get_conf().payload_max_bytes
    try:
        if name == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(limit + 1)
    except (OSError, ValueError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise CommandError(
            f"{what}: {name!r} cannot be read: {said}. Give a JSON file, or - for standard input."
        ) from None
    if len(raw) > limit:
        raise InputTooLarge(f"{what} has over {limit} bytes, which is the most that is accepted.")
    return json_of_text(raw, what=what)


def json_of_text(text: str | bytes, *, what: str) -> Any:
    """Read JSON that was given as it is. Raises InputRefused."""
    return parse_input(text, max_bytes=get_conf().payload_max_bytes, what=what)


def existing_tenant(slug: str) -> Tenant:
    """The tenant with this slug: whoever mistypes it is told, and makes none."""
    # PostgreSQL would refuse NUL and half characters with errors of its own.
    tenant = Tenant.objects.filter(slug=slug).first() if slug.isprintable() else None
    if tenant is None:
        raise CommandError(f"there is no tenant {slug!r}; starting its first run makes one.")
    return tenant
