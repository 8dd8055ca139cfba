"""Verbs on what is owed: listing it, agreeing, proving, trying again, waiving."""

from __future__ import annotations

from collections.abc import Callable

from durableops.engine import compensating
from durableops.engine.acting import Done
from durableops.engine.compensation import reading
from durableops.management.operating.asked import Asked, Told, Verb, listed
from runs.models import Compensation

A_COMPENSATION = "a compensation; `operate owed` and GET /compensations show it"


def _owed(asked: Asked) -> Told:
    asked.nothing_named()
    limit = asked.limit
    rows = reading.unsettled(tenant=asked.tenant, limit=limit + 1)
    facts = [_facts(one) for one in rows[:limit]]
    return listed(asked, "compensations", facts, [_line(one) for one in rows[:limit]], more=len(rows) > limit)


def _facts(one: Compensation) -> dict[str, object]:
    return {
        "id": one.pk, "run": str(one.run_id), "state": one.state, "tool": one.effect.tool,
        "resource": one.effect.resource, "how": one.how, "undone_by": one.tool, "instructions": one.instructions,
        "owed_at": one.owed_at.isoformat(), "linked_run": str(one.linked_run_id) if one.linked_run_id else None,
        "proposed_by": one.proposed_by, "claimed_by": one.claimed_by, "error": one.error,
    }  # fmt: skip


def _line(one: Compensation) -> str:
    how = f"by {one.tool}" if one.how == "tool" else f"by hand: {one.instructions}"
    who = f" (proposed by {one.proposed_by})" if one.state == "proposed" else ""
    return f"{one.pk}  {one.state}{who}  {one.effect.tool} {one.effect.resource} of run {one.run_id}  {how}"


def _decided(verb: Callable[..., Done], *, proves: bool = False) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        number, given = asked.number(A_COMPENSATION), {}
        if proves:
            given = {"evidence": asked.options["evidence"], "downstream_id": asked.options["downstream_id"]}
        done = verb(number, tenant=asked.tenant, **asked.said, **given)
        facts = {"verb": asked.verb, "compensation": number, "run": str(done.run_id), "state": done.state}
        return Told(message=done.message, facts=facts)

    return do


VERBS: dict[str, Verb] = {
    "owed": Verb(do=_owed, about="nothing: lists what is to be undone"),
    "undone": Verb(do=_decided(compensating.report_done, proves=True), about="a compensation (--evidence)"),
    "approve-undo": Verb(do=_decided(compensating.approve), about="a compensation that another proposed"),
    "send-back-undo": Verb(do=_decided(compensating.send_back), about="a compensation whose proof is none"),
    "retry-undo": Verb(do=_decided(compensating.try_again), about="a compensation that failed"),
    "waive": Verb(do=_decided(compensating.waive), about="a compensation: it stays as it is"),
}
