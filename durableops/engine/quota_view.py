"""Quotas as people read them: each policy with what runs and waits under it, what a change would touch. Reads only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from durableops.engine import budgeting
from durableops.engine.budgeting import OfTenant
from durableops.engine.quotas import Owner
from durableops.engine.spent import shown
from runs.models import AuditEntry, QuotaPolicy, Tenant
from runs.models.budget import PERIODS, UNITS

MOST = 10_000
"""Runs are counted up to so many."""
MOST_TENANTS = 200
MOST_CHANGES = 20
_OF_TENANTS = """
SELECT t.id,
    (SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.tenant_id = t.id AND r.state = 'running' LIMIT %(most)s) x),
    (SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.tenant_id = t.id AND r.state = 'queued' AND NOT r.paused
        AND NOT r.deferred AND r.due_at <= now() LIMIT %(most)s) x),
    (SELECT min(due_at) FROM (SELECT r.due_at FROM runs_run r WHERE r.tenant_id = t.id AND r.state = 'queued'
        AND NOT r.paused AND NOT r.deferred AND r.due_at <= now() LIMIT %(most)s) x),
    (SELECT jsonb_object_agg(s.unit, s.spent) FROM (
        SELECT b.unit, trim_scale(sum(b.spent))::text AS spent FROM (
            SELECT r.id FROM runs_run r WHERE r.tenant_id = t.id AND r.state IN ('queued', 'running', 'waiting')
            LIMIT %(most)s) o JOIN runs_budget b ON b.run_id = o.id GROUP BY 1) s)
FROM unnest(%(tenants)s::bigint[]) t(id)"""
_OF_RESOURCES = """
SELECT p.resource,
    (SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.resource = p.resource AND r.state = 'running'
        LIMIT %(most)s) x),
    (SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.state = 'queued' AND NOT r.paused AND NOT r.deferred
        AND NOT r.isolated AND r.resource = p.resource LIMIT %(most)s) x),
    NULL::timestamptz, NULL::jsonb
FROM runs_quota_policy p WHERE p.tenant_id IS NULL ORDER BY p.resource LIMIT 200"""


@dataclass(frozen=True, kw_only=True)
class Cap:
    """How many runs of a tenant may run, and how many do and wait."""

    most: int
    running: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A tenant or a resource, its policy, and what is under it just now."""

    owner: Owner
    policy: QuotaPolicy | None
    running: int
    waiting: int
    oldest_at: datetime | None
    """Since when the first of those that wait could run."""
    spent: dict[str, str]
    """By the budgets of its open runs, by unit."""
    budgets: list[OfTenant] = field(default_factory=list)
    """Its own, in the present day and month."""

    @property
    def cap(self) -> int | None:
        return None if self.policy is None else self.policy.running_cap

    @property
    def alarm(self) -> str:
        """What somebody should look at; "" for nothing."""
        if spent := [f"{one.unit} for the {one.period}" for one in self.budgets if one.spent >= one.most]:
            return f"spent its {', '.join(spent)}".replace("_", " ")
        if self.cap is None:
            return ""
        if self.cap == 0:
            return "its cap is 0: nothing starts"
        if self.running > self.cap:
            return f"{self.running - self.cap} more than its cap run on until they end"
        return f"at its cap; {self.waiting:,} wait" if self.running == self.cap and self.waiting else ""


def of_tenants(tenants: Sequence[Tenant]) -> list[Seen]:
    """The quotas of these tenants, by name."""
    known = {tenant.pk: tenant for tenant in tenants[:MOST_TENANTS]}
    policies = {policy.tenant_id: policy for policy in QuotaPolicy.objects.filter(tenant__in=list(known))}
    rows = _rows(_OF_TENANTS, {"tenants": list(known), "most": MOST})
    budgets = budgeting.of_tenants(list(known))
    return [
        replace(_seen(Owner(tenant=known[row[0]]), policies.get(row[0]), row), budgets=budgets.get(row[0], []))
        for row in rows
    ]


def of_resources() -> list[Seen]:
    """The quotas of resources that all tenants share."""
    policies = {policy.resource: policy for policy in QuotaPolicy.objects.filter(tenant=None)}
    rows = _rows(_OF_RESOURCES, {"most": MOST})
    return [_seen(Owner(resource=row[0]), policies.get(row[0]), row) for row in rows]


def of(owner: Owner) -> Seen:
    """One of them. A resource without a policy has nothing under it that is counted."""
    if owner.tenant is not None:
        return of_tenants([owner.tenant])[0]
    found = next((one for one in of_resources() if one.owner.resource == owner.resource), None)
    return found or Seen(owner=owner, policy=None, running=0, waiting=0, oldest_at=None, spent={})


def history(owner: Owner) -> list[AuditEntry]:
    """The last changes of a policy, newest first."""
    verbs = ("set_quota", "add_tenant_budget")
    entries = AuditEntry.objects.filter(verb__in=verbs, target_kind=f"quota {owner.kind}", target_id=str(owner))
    return list(entries.filter(tenant=owner.tenant).order_by("-id")[:MOST_CHANGES])


def preview(seen: Seen, changes: Mapping[str, Any]) -> list[str]:
    """Whom a change would touch, in sentences."""
    said = []
    if "running_cap" in changes and changes["running_cap"] != seen.cap:
        cap, over = changes["running_cap"], 0
        if cap is None:
            said.append(f"No cap any more: the {seen.waiting:,} that wait may all start, as workers have room.")
        else:
            over = max(0, seen.running - cap)
            room = max(0, cap - seen.running)
            said.append(
                f"{seen.running:,} run now. "
                + (f"{over:,} of them are past the new cap and go on until they end; nothing new starts before."
                   if over else f"{min(room, seen.waiting):,} of the {seen.waiting:,} that wait may start at once.")
            )  # fmt: skip
    before = seen.policy
    if "weight" in changes and changes["weight"] != (before.weight if before else 1):
        said.append(f"It has {changes['weight']} turns where another tenant has one, from the next claim on.")
    for name, words in (("starts_per_minute", "starts"),):
        if name in changes and changes[name] != (getattr(before, name) if before else None):
            limit = "are not limited" if changes[name] is None else f"are limited to {changes[name]:,} a minute"
            said.append(f"Its {words} {limit} within a second; more are refused and lose nothing.")
    if "call_rates" in changes and changes["call_rates"] != (before.call_rates if before else {}):
        said.append("Calls past their rate wait, in hand or in the queue, from within a second on.")
    if {"priority_min", "priority_max"} & set(changes):
        said += _priorities(before, changes)
    said += _about_budgets(seen, changes)
    return said or ["Nothing is changed by that."]


def _about_budgets(seen: Seen, changes: Mapping[str, Any]) -> list[str]:
    before = seen.policy.budgets if seen.policy else {}
    wanted = changes.get("budgets", before)
    said = []
    for period in PERIODS:
        for unit in UNITS:
            was, then = before.get(period, {}).get(unit), wanted.get(period, {}).get(unit)
            if was != then:
                said.append(_about_budget(seen, period, unit, then))
    policy = seen.policy or QuotaPolicy()
    if changes.get("budget_policy", policy.budget_policy) != policy.budget_policy:
        said.append(f"A run that finds a budget of the tenant spent meets {changes['budget_policy']!r} from now on.")
    if changes.get("time_zone", policy.time_zone) != policy.time_zone:
        said.append(
            f"The next day and month begin at midnight in {changes['time_zone']}; the present ones end as begun."
        )
    return said


def _about_budget(seen: Seen, period: str, unit: str, then: str | None) -> str:
    name = f"{unit.replace('_', ' ')} a {period}"
    if then is None:
        return f"No limit of {name} any more."
    now = next((one for one in seen.budgets if (one.period, one.unit) == (period, unit)), None)
    if now is None:
        return f"At most {then} {name}, counted from within a second on."
    told = f"{shown(now.spent)} are spent and {shown(now.reserved)} reserved in the present {period}"
    left = Decimal(then) - now.spent - now.reserved
    more = f"{shown(left)} are left" if left > 0 else "nothing more is let out before the next one"
    return f"At most {then} {name}: {told}; {more}."


def _priorities(before: QuotaPolicy | None, changes: Mapping[str, Any]) -> list[str]:
    now = (before.priority_min, before.priority_max) if before else (-100, 100)
    then = (changes.get("priority_min", now[0]), changes.get("priority_max", now[1]))
    return [] if now == then else ["Runs that are started from now on are brought into that range of priorities."]


def _seen(owner: Owner, policy: QuotaPolicy | None, row: tuple[Any, ...]) -> Seen:
    return Seen(owner=owner, policy=policy, running=row[1], waiting=row[2], oldest_at=row[3], spent=_spent(row[4]))


def _spent(column: Any) -> dict[str, str]:
    """Over Django's connection a document comes as its text."""
    return (json.loads(column) if isinstance(column, str) else column) or {}


def _rows(query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
