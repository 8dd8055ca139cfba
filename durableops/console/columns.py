"""Which columns the list of runs can have and which are wanted. The address says so; a cookie remembers."""

from __future__ import annotations

from collections.abc import Iterable

COLUMNS: dict[str, str] = {
    "workflow": "Workflow",
    "tenant": "Tenant",
    "step": "Step",
    "waits": "Waits for",
    "clock": "Clock",
    "resumes": "Resumes",
    "avoided": "Avoided",
    "key": "Start key",
    "labels": "Labels",
    "by": "Started by",
    "started": "Started",
    "age": "Age",
}
"""What may be left out or added; state and run are always there. In the order in which they stand."""

USUAL = ("workflow", "tenant", "step", "waits", "clock", "resumes", "avoided", "age")
NUMBERS = frozenset({"resumes", "avoided", "age"})


def read(names: Iterable[str]) -> tuple[str, ...]:
    """The columns among these names, in their order; nothing when they are the usual ones (or none is known)."""
    wanted = set(names)
    found = tuple(name for name in COLUMNS if name in wanted)
    return () if found == USUAL else found


def shown(chosen: tuple[str, ...], *, many_tenants: bool) -> list[str]:
    """The columns of a list. Of one tenant's runs nobody has to be told the tenant, unless they asked."""
    return list(chosen) or [name for name in USUAL if name != "tenant" or many_tenants]
