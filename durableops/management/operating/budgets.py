"""More budget for a run."""

from __future__ import annotations

from django.core.management.base import CommandError

from durableops.engine import budgeting
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.runs import told


def _add(asked: Asked) -> Told:
    amounts: dict[str, float | int | None] = {}
    for given in asked.options["budget"] or ():
        unit, _, text = given.partition("=")
        try:
            amounts[unit] = int(text) if text.isdecimal() else float(text)
        except ValueError:
            raise CommandError(f"--budget {given!r} is no amount; write it as tokens=1000.") from None
    if not amounts:
        raise CommandError("'add-budget' needs --budget UNIT=AMOUNT, such as --budget tokens=1000.")
    return told(asked, budgeting.add_budget(asked.run_id(), tenant=asked.tenant, amounts=amounts, **asked.said))


VERBS: dict[str, Verb] = {
    "add-budget": Verb(do=_add, about="an open or exhausted run (--budget UNIT=AMOUNT)"),
}
