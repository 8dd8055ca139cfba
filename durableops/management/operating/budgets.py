"""More budget for a run, or for a tenant in its present day or month."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from django.core.management.base import CommandError

from durableops.engine import budgeting
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.runs import told


def _add(asked: Asked) -> Told:
    amounts = dict(_amounts(asked, "tokens=1000"))
    return told(asked, budgeting.add_budget(asked.run_id(), tenant=asked.tenant, amounts=amounts, **asked.said))


def _add_to_tenant(asked: Asked) -> Told:
    asked.nothing_named()
    by_period: dict[str, dict[str, Decimal]] = {}
    for name, amount in _amounts(asked, "day.tokens=1000"):
        period, _, unit = name.partition(".")
        by_period.setdefault(period, {})[unit] = amount
    if len(by_period) > 1:
        raise CommandError(
            "'add-tenant-budget' adds to one period at a time: give --budget day.… or month.…, not both."
        )
    (period, amounts) = next(iter(by_period.items()))
    limits = budgeting.add_tenant_budget(asked.tenant, period=period, amounts=amounts, **asked.said)
    said = ", ".join(f"{limit} {unit}" for unit, limit in limits.items())
    facts = {"verb": asked.verb, "tenant": asked.tenant.slug, "period": period, "limits": limits}
    return Told(message=f"tenant {asked.tenant} may spend {said} in this {period} now.", facts=facts)


def _amounts(asked: Asked, example: str) -> Iterator[tuple[str, Decimal]]:
    given = asked.options["budget"] or ()
    if not given:
        raise CommandError(f"{asked.verb!r} needs --budget, such as --budget {example}.")
    for one in given:
        name, _, text = one.partition("=")
        try:
            yield name, Decimal(text)
        except InvalidOperation:
            raise CommandError(f"--budget {one!r} is no amount; write it as {example}.") from None


VERBS: dict[str, Verb] = {
    "add-budget": Verb(do=_add, about="an open or exhausted run (--budget UNIT=AMOUNT)"),
    "add-tenant-budget": Verb(do=_add_to_tenant, about="its present day or month (--budget day.UNIT=AMOUNT)"),
}
