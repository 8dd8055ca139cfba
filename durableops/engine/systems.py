"""The verbs of people on legacy systems: pausing and resuming one, and reordering one's own calls in its queue.

A system is shared by all tenants. Its queue is reordered within the places that a tenant's own calls have: nobody's
call goes past another tenant's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from durableops.engine import bell, guard, queues
from durableops.engine.acting import Done, audited_refusals, kept_reason, write
from durableops.engine.guard import Line, Plan
from durableops.errors import InputRefused, SystemNotFound, TransitionRefused
from runs.models import AuditEntry, IdempotencyRecord, Run, System, Tenant
from runs.transitions import Cursor

MOVES = ("first", "up", "down", "last")
MOST_MOVED = 5_000
"""Calls of one tenant in one queue that are reordered at once."""

_OWN = """
SELECT e.id, e.queue_order FROM runs_effect e
WHERE e.system = %s AND e.state = 'queued' AND e.safety = 'legacy' AND e.tenant_id = %s
ORDER BY e.queue_order LIMIT %s FOR NO KEY UPDATE"""
_REORDER = """
UPDATE runs_effect e SET queue_order = x.place
FROM unnest(%s::bigint[], %s::bigint[]) AS x(id, place) WHERE e.id = x.id"""


def pause(name: str, *, tenant: Tenant, actor: str, reason: str) -> System:
    """Let nothing go to a system any more, of whichever tenant. What is on the wire goes on.

    `tenant` is whose admin does it, for the audit. Raises SystemNotFound, TransitionRefused.
    """
    with transaction.atomic():
        system = _locked(name, tenant)
        if system.paused:
            raise _refused(system, "pause_system", f"one that is not paused; {system.paused_by} paused it already")
        _set(system, tenant, "pause_system", actor=actor, reason=reason, paused=True)
    return system


def resume(name: str, *, tenant: Tenant, actor: str, reason: str, shown: str = "") -> System:
    """Let calls go to a system again; whoever is next is woken at once.

    `shown` names the pause that was looked at (`pause_of`), if it is to be ended and no later one.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        system = _locked(name, tenant)
        if not system.paused:
            raise _refused(system, "resume_system", f"a paused one{_who_resumed(name)}")
        if shown and shown != pause_of(system.paused_at):
            wanted = f"the pause that was shown; {system.paused_by} paused it anew: {system.paused_reason}"
            raise _refused(system, "resume_system", wanted)
        _set(system, tenant, "resume_system", actor=actor, reason=reason, paused=False)
        queues.pass_on(cursor, [name])
        transaction.on_commit(bell.ring)
    return system


def pause_of(paused_at: datetime | None) -> str:
    """Which pause a system is in; empty when it is in none."""
    return "" if paused_at is None else paused_at.isoformat()


def _who_resumed(name: str) -> str:
    resumed = AuditEntry.objects.filter(target_kind="system", target_id=name, verb="resume_system")
    last = resumed.order_by("-id").first()
    return "" if last is None else f"; {last.actor} let it go on at {last.at:%H:%M:%S}"


@audited_refusals
def move(
    effect_id: int, *, tenant: Tenant, actor: str, reason: str, to: str, plan_hash: str | None = None
) -> Done:  # fmt: skip
    """Move a call within the places that its tenant's calls have in its system's queue.

    With `plan_hash`, only if it has the place that was shown (`plan_of_move`): a click that comes twice moves it once.
    Raises TransitionRefused when it is not waiting any more, PlanChanged, SystemNotFound for another tenant's.
    """
    if to not in MOVES:
        raise InputRefused(f"{to!r} is no place; say one of {', '.join(MOVES)}.", path="/to")
    with transaction.atomic(), connection.cursor() as cursor:
        effect = IdempotencyRecord.objects.filter(pk=effect_id, tenant=tenant, safety="legacy").first()
        if effect is None:
            raise SystemNotFound(f"there is no call {effect_id} in a queue here.")
        run = Run.objects.select_for_update(no_key=True).get(pk=effect.run_id)
        _locked(effect.system, tenant)
        own = _own(cursor, effect)
        if effect.pk not in own:
            raise _not_queued(run, effect)
        guard.insist(plan_of_move(effect, list(own)), plan_hash, run_id=run.pk, state="queued")
        before, after = _reorder(cursor, effect, own, to)
        facts = {"effect": effect.pk, "tool": effect.tool, "resource": effect.resource, "system": effect.system}
        write(cursor, run, "move_call", actor=actor, reason=reason, before={"place": before},
              after={**facts, "place": after, "to": to})  # fmt: skip
        queues.pass_on(cursor, [effect.system])
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"it has place {after} of its tenant's now.")


def plan_of_move(effect: IdempotencyRecord, own: Sequence[int]) -> Plan:
    """The guard's plan of moving a call that waits; `own` are the calls of its tenant that do, in order."""
    line = Line(category="unsent", tool=effect.tool, safety="legacy", calls=1, runs=1, samples=(effect.resource,))
    return Plan(verb="move_call", lines=(line,), hash=place_hash(effect.pk, own))


def place_hash(effect_id: int, own: Sequence[int]) -> str:
    """Of what decides a move: which of its tenant's calls come before this one, and which next.

    What joins the queue further behind changes nothing for whoever moves it.
    """
    return guard.hash_of("move_call", [effect_id, *own[: own.index(effect_id) + 2]])


def _own(cursor: Cursor, effect: IdempotencyRecord) -> dict[int, int]:
    """The calls of its tenant that wait there, to their places, in order; locked."""
    cursor.execute(_OWN, [effect.system, effect.tenant_id, MOST_MOVED])
    return dict(cursor.fetchall())


def _reorder(cursor: Cursor, effect: IdempotencyRecord, own: dict[int, int], to: str) -> tuple[int, int]:
    """Give the tenant's calls their places in another order. Returns the call's place before and after, from 1."""
    ids, places = list(own), list(own.values())
    at = ids.index(effect.pk)
    target = {"first": 0, "up": max(0, at - 1), "down": min(len(ids) - 1, at + 1), "last": len(ids) - 1}[to]
    ids.insert(target, ids.pop(at))
    cursor.execute(_REORDER, [ids, places])
    return at + 1, target + 1


def _not_queued(run: Run, effect: IdempotencyRecord) -> TransitionRefused:
    effect.refresh_from_db(fields=["state"])
    return TransitionRefused(
        f"{effect.tool} for {effect.resource!r} is {effect.state.replace('_', ' ')}; only a call that waits for its "
        "turn, among the first of its tenant's, is moved. Nothing was changed.",
        run=run.pk, state=effect.state, event="move_call", wanted="queued",
    )  # fmt: skip


def _locked(name: str, tenant: Tenant) -> System:
    """The system's row, locked. Raises SystemNotFound for one that this tenant never used."""
    system = System.objects.select_for_update(no_key=True).filter(pk=name).first()
    if system is None or not IdempotencyRecord.objects.filter(system=name, tenant=tenant, safety="legacy").exists():
        raise SystemNotFound(f"no call of {tenant.slug} has ever been queued for a system {name[:100]!r}.")
    return system


def _set(system: System, tenant: Tenant, verb: str, *, actor: str, reason: str, paused: bool) -> None:
    before = {"paused": system.paused, "paused_by": system.paused_by}
    values: dict[str, Any] = {"paused": paused, "paused_by": actor, "paused_reason": kept_reason(reason)}
    if not paused:
        values |= {"paused_by": "", "paused_reason": ""}
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        values["paused_at"] = cursor.fetchone()[0] if paused else None
    for name, value in values.items():
        setattr(system, name, value)
    system.save(update_fields=list(values))
    AuditEntry.objects.create(
        tenant=tenant, actor=actor, verb=verb, target_kind="system", target_id=system.name,
        reason=kept_reason(reason), before=before, after={"paused": paused},
    )  # fmt: skip


def _refused(system: System, verb: str, wanted: str) -> TransitionRefused:
    shown = f"paused by {system.paused_by}" if system.paused else "not paused"
    return TransitionRefused(
        f"system {system.name} is {shown}; '{verb}' needs {wanted}. Nothing was changed.",
        state="paused" if system.paused else "open", event=verb, wanted=wanted,
    )  # fmt: skip
