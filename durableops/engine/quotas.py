"""Quotas: what a tenant or a shared resource may use, as people set it. What holds it is the claim (`runs.slots`).

A change is in force for every claim that begins after it was committed. It never ends what runs: a cap below it lets
nothing new start until enough has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import connection, transaction
from django.db.models import Max
from django.db.models.functions import Now

from durableops.authoring.policies import Budget
from durableops.checkpoints import codec
from durableops.engine import bell, blocks, rates
from durableops.engine.commands import kept_reason
from durableops.engine.spent import shown
from durableops.errors import DefinitionError, InputRefused, QuotaConflict, QuotaUnsafe
from runs.models import AuditEntry, QuotaPolicy, Slot, Tenant, Worker
from runs.models.budget import BUDGET_POLICIES, PERIODS
from runs.models.quota import HEAVIEST, HIGHEST_PRIORITY, MOST_SLOTS

WORKERS_LOCK = (3341, 1)
"""Advisory lock: while a cap is set, no worker that knows of none may register (trigger `worker_takes_slots`)."""


MOST_A_MINUTE = 1_000_000
MOST_CALL_RATES = 100


@dataclass(frozen=True, kw_only=True)
class Field:
    """One number of a policy."""

    lowest: int
    highest: int
    may_be_none: bool = False
    meaning: str

    def check(self, name: str, value: Any) -> None:
        """Raise InputRefused unless the value can be."""
        if value is None and self.may_be_none:
            return
        if type(value) is not int or not self.lowest <= value <= self.highest:
            none = ", or none" if self.may_be_none else ""
            raise InputRefused(
                f"{name} is {value!r}; give a whole number from {self.lowest} to {self.highest}{none}: {self.meaning}.",
                path=f"/{name}",
            )


FIELDS: dict[str, Field] = {
    "running_cap": Field(
        lowest=0, highest=MOST_SLOTS, may_be_none=True, meaning="runs at once; none is no cap, 0 lets none start"
    ),
    "weight": Field(lowest=1, highest=HEAVIEST, meaning="turns where another tenant has one"),
    "priority_min": Field(lowest=-HIGHEST_PRIORITY, highest=HIGHEST_PRIORITY, meaning="lowest priority of its runs"),
    "priority_max": Field(lowest=-HIGHEST_PRIORITY, highest=HIGHEST_PRIORITY, meaning="highest priority of its runs"),
    "starts_per_minute": Field(
        lowest=0, highest=MOST_A_MINUTE, may_be_none=True, meaning="runs started (or steps that use it begun) a minute"
    ),
}
"""The numbers that can be set, and to what."""
A_RATE = Field(lowest=0, highest=MOST_A_MINUTE, meaning="calls a minute; 0 lets none out")
CALL_RATES, BUDGETS, BUDGET_POLICY, TIME_ZONE = "call_rates", "budgets", "budget_policy", "time_zone"
KNOWN = (*FIELDS, CALL_RATES, BUDGETS, BUDGET_POLICY, TIME_ZONE)
OF_RESOURCES = frozenset({"running_cap", "starts_per_minute"})


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose policy it is: a tenant's, or that of a resource all tenants share."""

    tenant: Tenant | None = None
    resource: str = ""

    def __str__(self) -> str:
        return self.tenant.slug if self.tenant is not None else self.resource

    @property
    def kind(self) -> str:
        return "tenant" if self.tenant is not None else "resource"


def find(owner: Owner) -> QuotaPolicy | None:
    """The policy there is; None means no limits."""
    return QuotaPolicy.objects.filter(tenant=owner.tenant, resource=owner.resource).first()


def set_quota(
    owner: Owner, changes: Mapping[str, Any], *, actor: str, reason: str, made_from: int | None = None
) -> QuotaPolicy:
    """Change what is named, leave the rest, and say who and why. Its audit entries are the policy's history.

    `made_from` is the version the change was made from (0 for none). Raises InputRefused for values that cannot be,
    QuotaConflict when somebody was quicker, QuotaUnsafe while workers live that keep to no cap.
    """
    wanted = checked(owner, changes)
    with transaction.atomic():
        policy = _locked(owner, actor)
        found = 0 if policy.pk is None else policy.version
        if made_from is not None and made_from != found:
            raise QuotaConflict(
                f"the quota of {owner} is at version {found} and this change was made from {made_from}: "
                "somebody was quicker. Look at it as it is now and change it again."
            )
        before = {name: getattr(policy, name) for name in wanted}
        for name, value in wanted.items():
            setattr(policy, name, value)
        if policy.priority_min > policy.priority_max:
            raise InputRefused(
                f"priority_min {policy.priority_min} is above priority_max {policy.priority_max}; give a range."
            )
        policy.version, policy.updated_by, policy.updated_at = found + 1, actor, Now()
        policy.save()
        if "running_cap" in wanted:
            _make_slots(policy)
        if BUDGETS in wanted and owner.tenant is not None:
            with connection.cursor() as cursor:
                blocks.relimit(cursor, owner.tenant.pk)
        AuditEntry.objects.create(
            tenant=owner.tenant, actor=actor, verb="set_quota", target_kind=f"quota {owner.kind}",
            target_id=str(owner), reason=kept_reason(reason),
            before={**before, "version": found}, after={**wanted, "version": policy.version},
        )  # fmt: skip
        # A higher cap lets in what waited for it.
        transaction.on_commit(lambda: bell.ring(policy.running_cap or 1))
    policy.refresh_from_db()
    rates.forget()
    return policy


def checked(owner: Owner, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, if it can be. Raises InputRefused."""
    if not changes:
        raise InputRefused(f"nothing was changed; give one of {', '.join(KNOWN)}.")
    if owner.tenant is None:
        codec.check_key(owner.resource, what="resource")
    for name, value in changes.items():
        known = sorted(OF_RESOURCES) if owner.tenant is None else KNOWN
        if name not in known:
            raise InputRefused(f"the quota of a {owner.kind} has no {name!r}; it has {', '.join(known)}.")
        if name in FIELDS:
            FIELDS[name].check(name, value)
        else:
            _CHECKS[name](value)
    found = dict(changes)
    if BUDGETS in found:
        found[BUDGETS] = _budgets(found[BUDGETS])
    return found


def _check_call_rates(value: Any) -> None:
    if not isinstance(value, dict) or len(value) > MOST_CALL_RATES:
        raise InputRefused(
            f"call_rates wants an object of at most {MOST_CALL_RATES} limits, such as"
            ' {"tool:send": 600, "system:crm": 60}.',
            path="/call_rates",
        )
    for name, limit in value.items():
        kind, _, what = str(name).partition(":")
        if kind not in ("tool", "system") or not what:
            raise InputRefused(
                f"call_rates names {name!r}; name a tool or a system: tool:send, system:crm.", path="/call_rates"
            )
        codec.check_key(what, what=f"the name in {name!r}")
        A_RATE.check(f"call_rates of {name}", limit)


def _budgets(given: Any) -> dict[str, dict[str, str]]:
    """Amounts by period and unit as they are kept: exact, as texts. A unit that is null, or not named, has no limit."""
    example = '{"day": {"tokens": 200000}, "month": {"money": "250.00"}}'
    if not isinstance(given, dict) or not all(isinstance(units, dict) for units in given.values()):
        raise InputRefused(f"budgets wants an object of periods and units, such as {example}.", path="/budgets")
    if unknown := sorted(set(map(str, given)) - set(PERIODS)):
        raise InputRefused(f"budgets names {unknown[0]!r}; there are {' and '.join(PERIODS)}.", path="/budgets")
    return {period: found for period in PERIODS if (found := _amounts(period, given.get(period, {})))}


def _amounts(period: str, given: Mapping[str, Any]) -> dict[str, str]:
    try:
        numbers = {unit: Decimal(value) if isinstance(value, str) else value for unit, value in given.items()}
        return {unit: shown(amount) for unit, amount in sorted(Budget.amounts(numbers).items())}
    except (DefinitionError, InvalidOperation) as error:
        why = str(error).split(": ", 1)[-1] if isinstance(error, DefinitionError) else "an amount is no number."
        raise InputRefused(f"budgets for the {period}: {why}", path=f"/budgets/{period}") from None


def _check_budget_policy(value: Any) -> None:
    if value not in BUDGET_POLICIES:
        raise InputRefused(
            f"budget_policy is {value!r}; give one of {', '.join(BUDGET_POLICIES)}.", path="/budget_policy"
        )


def _check_time_zone(value: Any) -> None:
    """The database reckons with it, so the database is asked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_timezone_names WHERE name = %s", [str(value)[:100]])
        if cursor.fetchone() is None:
            raise InputRefused(
                f"time_zone is {value!r}; give a name of the tz database, such as Europe/Lisbon or UTC.",
                path="/time_zone",
            )


_CHECKS: dict[str, Callable[[Any], Any]] = {
    CALL_RATES: _check_call_rates,
    BUDGETS: _budgets,
    BUDGET_POLICY: _check_budget_policy,
    TIME_ZONE: _check_time_zone,
}


def _locked(owner: Owner, actor: str) -> QuotaPolicy:
    """The policy's row, locked; a new one that is not saved yet where there is none."""
    if owner.tenant is not None:
        # Two first changes of one tenant meet here, before either makes the row.
        Tenant.objects.select_for_update(no_key=True).get(pk=owner.tenant.pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", WORKERS_LOCK)
    found = QuotaPolicy.objects.select_for_update().filter(tenant=owner.tenant, resource=owner.resource).first()
    return found or QuotaPolicy(tenant=owner.tenant, resource=owner.resource, updated_by=actor)


def _make_slots(policy: QuotaPolicy) -> None:
    """Make the policy's slots as many as its cap, and what any claim under way saw of them out of date.

    Waits for claims that hold one of them. So after this commit none takes a place that was given under the old cap.
    """
    if policy.running_cap is not None:
        _refuse_unsafe_workers()
    cap = policy.running_cap or 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM runs_slot WHERE policy_id = %s ORDER BY number FOR UPDATE", [policy.pk])
        cursor.execute("DELETE FROM runs_slot WHERE policy_id = %s AND number > %s", [policy.pk, cap])
        cursor.execute("UPDATE runs_slot SET taken = taken + 1 WHERE policy_id = %s", [policy.pk])
    last = Slot.objects.filter(policy=policy).aggregate(last=Max("number"))["last"] or 0
    Slot.objects.bulk_create(Slot(policy=policy, number=number) for number in range(last + 1, cap + 1))


def _refuse_unsafe_workers() -> None:
    old = list(Worker.objects.filter(ended_at=None, takes_slots=False).values_list("host", "pid")[:5])
    if old:
        named = ", ".join(f"process {pid} on {host}" for host, pid in old)
        raise QuotaUnsafe(
            f"workers of an older version are alive ({named}) and would start runs past any cap. "
            "Replace them first, then set it."
        )
