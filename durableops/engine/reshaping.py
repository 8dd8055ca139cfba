"""What a reviewer does to a run that no migration fits: give it a state within the schema, or another step to go on at.

Also who looks into a finding. As every verb of the review desk: one transaction with its audit entry, reversible until
something is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.checkpoints.upgrades import Upgraded
from durableops.engine import guard, migrating
from durableops.engine.acting import Done, audited_refusals, kept_reason, refused, write
from durableops.engine.reviewing import let_go_on, taken, target_of
from durableops.engine.waking import db_now
from durableops.errors import MigrationRefused, TransitionRefused
from runs.models import Review, Run, Tenant
from runs.transitions import Cursor


@dataclass(frozen=True, kw_only=True)
class Previewed:
    """What an edit or a move would come to."""

    becomes: Upgraded
    version: int
    plan: guard.Plan


@audited_refusals
def edit(
    run_id: UUID, *, tenant: Tenant, actor: str, reason: str, state: Mapping[str, Any] | None = None,
    step_id: str = "", version: int | None = None, finding: str = "", plan_hash: str | None = None,
) -> Done:  # fmt: skip
    """Let a run go on under a version this process has, with this state and at this step; what is not given stays.

    With `plan_hash`, only while the guard's plan is the one that was shown. Raises TransitionRefused, also when the
    state does not fit the schema, the step is not there or committed already, or a call without an outcome would be
    left behind; then nothing was changed.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "edit", actor, finding)
        target = target_of(run, version)
        found = _worked_out(cursor, run, target, state=state, step_id=step_id)
        before = {"version": run.plan.version, "step": run.step_id, "checkpoint": run.head_seq}
        kind = kind_of(run, state, found)
        guard.check(cursor, kind, run.pk, plan_hash, about=guard.becoming(run.pk, kind, target.version, found))
        begun = migrating.begin_line(cursor, run.pk, target, found, kind=kind, actor=actor, reason=reason)
        let = let_go_on(cursor, run, actor=actor, reason=reason, cause="edited")
        after = {"version": target.version, "step": found.step_id, "checkpoint": begun.seq, "lineage": begun.number}
        write(cursor, run, kind, actor=actor, reason=reason, before=before, after=after)
    what = f"moved to step {found.step_id}" if kind == "move" else f"given an edited state at step {found.step_id}"
    return Done(run_id=run.pk, state=let, settled=True, message=f"{what}, under version {target.version}.")


def preview(
    cursor: Cursor, run: Run, *, state: Mapping[str, Any] | None, step_id: str, version: int | None = None
) -> Previewed:
    """What `edit` would make of the run, and the guard's plan of that. Writes nothing. Raises TransitionRefused as
    `edit` does."""
    target = target_of(run, version)
    found = _worked_out(cursor, run, target, state=state, step_id=step_id)
    kind = kind_of(run, state, found)
    plan = guard.plan(cursor, kind, run.pk, about=guard.becoming(run.pk, kind, target.version, found))
    return Previewed(becomes=found, version=target.version, plan=plan)


def kind_of(run: Run, state: Mapping[str, Any] | None, found: Upgraded) -> str:
    """What it is called: a move changes nothing but the step."""
    return "move" if state is None and found.step_id != run.step_id else "edit"


@audited_refusals
def claim(review_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that this person looks into a finding. It keeps nobody else from deciding."""
    return _claimed(review_id, tenant, actor, reason, verb="claim_review", by=actor)


@audited_refusals
def unclaim(review_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that nobody looks into a finding any more; also for somebody else who is away."""
    return _claimed(review_id, tenant, actor, reason, verb="unclaim_review", by="")


def _claimed(review_id: int, tenant: Tenant, actor: str, reason: str, *, verb: str, by: str) -> Done:
    with transaction.atomic(), connection.cursor() as cursor:
        rows = Review.objects.select_for_update(no_key=True).select_related("run").filter(tenant=tenant)
        review = rows.filter(pk=review_id).first()
        if review is None:
            raise TransitionRefused(f"there is no finding {review_id} here.", event=verb)
        if review.closed_at is not None or bool(review.claimed_by) == bool(by):
            on_it = f"; {review.claimed_by} is on it" if review.claimed_by else ""
            decided = f"; it was {review.closed_as} by {review.closed_by}" if review.closed_at else ""
            raise refused(
                review.run, verb, f"an open finding that {'nobody' if by else 'somebody'} is on{on_it}{decided}"
            )
        before, review.claimed_by = review.claimed_by, by
        review.claimed_at = db_now(cursor) if by else None
        review.save(update_fields=["claimed_by", "claimed_at"])
        write(cursor, review.run, verb, actor=actor, reason=reason, before={"claimed_by": before},
              after={"claimed_by": by})  # fmt: skip
    message = "it is yours." if by else "it is free again."
    return Done(run_id=review.run_id, state=review.run.state, settled=True, message=message)


def _worked_out(cursor: Cursor, run: Run, target: Any, *, state: Mapping[str, Any] | None, step_id: str) -> Upgraded:
    try:
        return migrating.reshape(cursor, run.pk, target, state=state, step_id=step_id)
    except MigrationRefused as why:
        raise TransitionRefused(
            f"run {run.pk} cannot go on like this: {why.detail} Nothing was changed.",
            run=run.pk, state=run.state, event="edit", wanted="a state and a step that fit",
        ) from why  # fmt: skip
