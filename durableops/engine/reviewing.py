"""The review desk's verbs: how a run that does not fit goes on. Each is one transaction with its audit entry.

For runs that nobody holds: in review, or still waiting or queued while a deploy has already left their version behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.compatibility import Park
from durableops.engine import bell, commands, findings, guard, lineages, made_plans, migrating
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused, write
from durableops.engine.bulk.verbs import BulkVerb, register
from durableops.engine.waking import db_now
from durableops.errors import InputRefused, MigrationRefused, TransitionRefused, WorkflowNotFound
from runs import transitions
from runs.models import Lineage, Review, Run, Tenant
from runs.states import PARKED, State

MIGRATE = "migrate"
"""Name of the bulk verb."""
_AT = """
SELECT c.next_step, c.cursor::text, c.plan_id, s.state FROM runs_checkpoint c
JOIN runs_checkpoint s ON s.run_id = c.run_id AND s.seq = c.state_seq WHERE c.run_id = %s AND c.seq = %s"""
_CALLED_SINCE = "SELECT EXISTS (SELECT 1 FROM runs_effect WHERE run_id = %s AND intended_at > %s)"


@audited_refusals
def migrate(
    run_id: UUID,
    *,
    tenant: Tenant,
    actor: str,
    reason: str,
    version: int | None = None,
    finding: str = "",
    workflow: str = "",
    plan_hash: str | None = None,
) -> Done:
    """Approve the migration of one run to a version this process has, by default the newest.

    With `finding`, only while the run still has that finding's fingerprint: what changed meanwhile is refused; with
    `plan_hash`, only while the guard's plan is the one that was shown. Raises TransitionRefused, also when the run
    cannot be migrated as it stands; then nothing was changed.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "migrate", actor, finding)
        if workflow and workflow != run.workflow:
            raise refused(run, "migrate", f"a run of {workflow!r}")
        target = target_of(run, version)
        before = run.plan.version
        if target.version == before:
            raise refused(run, "migrate", f"a run of another version than {before}")
        try:
            found = migrating.preview(cursor, run.pk, target)
        except MigrationRefused as why:
            raise _cannot_be_migrated(run, why.detail) from why
        guard.check(
            cursor, "migrate", run.pk, plan_hash, about=guard.becoming(run.pk, "migrate", target.version, found)
        )
        begun = migrating.begin_line(cursor, run.pk, target, found, kind="migrate", actor=actor, reason=reason)
        after = migrating.told(target, begun, before)
        state = let_go_on(cursor, run, actor=actor, reason=reason, cause="migrated")
        write(cursor, run, "migrate", actor=actor, reason=reason, before={"version": before}, after=after)
    return Done(run_id=run.pk, state=state, settled=True, message=f"migrated to version {target.version}.")


@audited_refusals
def revert(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Take a run's migration back, as long as no step, page or call was committed after it.

    Its old state, step, waits and calls are what they were; it is not migrated again unless a person says so.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "revert", actor)
        line = Lineage.objects.filter(run=run, number=run.lineage, kind__in=["migrate", "edit", "move"]).first()
        if line is None or run.head_seq != line.seq:
            raise refused(run, "revert", "one whose newest checkpoint is that of a migration")
        cursor.execute(_CALLED_SINCE, [run.pk, line.at])
        if cursor.fetchone()[0]:
            raise refused(run, "revert", "one that has made no call since its migration")
        cursor.execute(_AT, [run.pk, line.from_seq])
        step, position, plan, state = cursor.fetchone()
        begun = lineages.begin(
            cursor,
            run.pk,
            lineages.NewLine(
                kind="revert", plan_id=plan, state=state, step_id=step, isolated=run.isolated, resource=run.resource,
                cursor=None if position is None else json.loads(position), actor=actor, reason=reason,
                reverts=line.number, planned=made_plans.at_checkpoint(cursor, run.pk, line.from_seq),
            ),
        )  # fmt: skip
        lineages.put_back(cursor, line.moved, lineage=begun.number)
        about = findings.About(
            run_id=run.pk, tenant_id=tenant.pk, workflow=run.workflow, plan_id=plan, target_id=line.plan_id,
            seq=begun.seq,
        )  # fmt: skip
        findings.record(cursor, about, Park(reason_code="needs_review", reason="a person took its migration back."))
        write(
            cursor, run, "revert", actor=actor, reason=reason, before={"lineage": line.number},
            after={"lineage": begun.number, "checkpoint": begun.seq},
        )  # fmt: skip
    return Done(run_id=run.pk, state=run.state, settled=True, message="its migration was taken back.")


@audited_refusals
def pin(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, plan_hash: str | None = None) -> Done:
    """Keep a run on its plan: only workers that have this very plan move it, and without one it says so.

    A parked one goes on there: with `plan_hash`, only while the guard's plan is the one that was shown.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "pin", actor)
        if run.pinned:
            raise refused(run, "pin", "one that is not pinned")
        guard.check(cursor, "pin", run.pk, plan_hash)
        Run.objects.filter(pk=run.pk).update(pinned=True)
        findings.close(cursor, [run.pk], closed_as="pinned", by=actor, why=reason)
        state = let_go_on(cursor, run, actor=actor, reason=reason, cause="operator")
        after = {"pinned": True, "version": run.plan.version}
        write(cursor, run, "pin", actor=actor, reason=reason, before={"pinned": False}, after=after)
    return Done(run_id=run.pk, state=state, settled=True, message=f"kept on version {run.plan.version}.")


@audited_refusals
def unpin(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let workers with a newer version take a pinned run over again."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "unpin", actor)
        if not run.pinned:
            raise refused(run, "unpin", "a pinned one")
        Run.objects.filter(pk=run.pk).update(pinned=False)
        write(cursor, run, "unpin", actor=actor, reason=reason, before={"pinned": True}, after={"pinned": False})
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state=run.state, settled=True, message="is not pinned any more.")


@audited_refusals
def reject(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, done: str = "later") -> Done:
    """Let a run that does not fit end: cancelled, with `done` saying what becomes of what it did, as for a cancel."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "reject", actor)
        if not Review.objects.filter(run=run, closed_at=None).exists():
            raise refused(run, "reject", "one about which a person has to decide")
        findings.close(cursor, [run.pk], closed_as="rejected", by=actor, why=kept_reason(reason))
        return commands.cancel(run_id, tenant=tenant, actor=actor, reason=reason, done=done)


@audited_refusals
def ask_second(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Ask for a second reviewer: whoever asks does not decide about this run any more."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = taken(tenant, run_id, "ask_second", actor)
        asked = Review.objects.filter(run=run, closed_at=None).update(
            second_asked_by=actor, second_asked_at=db_now(cursor), second_why=kept_reason(reason),
            claimed_by="", claimed_at=None,
        )  # fmt: skip
        if not asked:
            raise refused(run, "ask_second", "one about which a person has to decide")
        write(cursor, run, "ask_second", actor=actor, reason=reason, before={}, after={"second_asked_by": actor})
    return Done(run_id=run.pk, state=run.state, settled=True, message="is for a second reviewer now.")


def taken(tenant: Tenant, run_id: UUID, verb: str, actor: str, finding: str = "") -> Run:
    """The run with its row locked, if nobody holds it and this person may decide about it."""
    run = locked(tenant, run_id)
    if run.state not in PARKED:
        raise refused(run, verb, " or ".join(sorted(PARKED)))
    review = Review.objects.filter(run=run, closed_at=None).first()
    if review is not None and review.second_asked_by == actor:
        raise refused(run, verb, f"somebody else: {actor} asked for a second reviewer")
    if finding and (review is None or review.fingerprint != finding):
        raise refused(run, verb, "a run that is still as it was shown; it changed meanwhile")
    return run


def target_of(run: Run, version: int | None) -> WorkflowDefinition:
    try:
        return registry.workflow(run.workflow, version)
    except WorkflowNotFound as missing:
        raise _cannot_be_migrated(run, missing.detail) from None


def _cannot_be_migrated(run: Run, why: str) -> TransitionRefused:
    return TransitionRefused(
        f"run {run.pk} cannot be migrated: {why} Nothing was changed.",
        run=run.pk, state=run.state, event="migrate", wanted="a migration that fits",
    )  # fmt: skip


def let_go_on(cursor: Any, run: Run, *, actor: str, reason: str, cause: str) -> str:
    """A run in review goes to the queue; one that waits, or is queued, stays where it is. Returns its state."""
    if run.state != State.IN_REVIEW:
        return str(run.state)
    sets = {"wake_cause": cause, "wake_detail": f"{actor}: {reason}", "woken_at": db_now(cursor), "lost_at": None}
    transitions.fire("recheck", run.pk, using=cursor, actor=actor, reason=reason, sets=sets)
    transaction.on_commit(bell.ring)
    return State.QUEUED.value


def _read_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    workflow, version, finding = given.get("workflow"), given.get("version"), given.get("finding", "")
    fits = isinstance(workflow, str) and type(version) is int and isinstance(finding, str)
    if not fits or set(given) - {"workflow", "version", "finding"}:
        raise InputRefused(
            "a bulk migration takes `workflow`, `version` (a whole number) and `finding` (a fingerprint, if only runs "
            "that still have it are to be migrated).",
            path="/arguments",
        )
    return {"workflow": workflow, "version": version, "finding": finding}


def _has_version(given: Mapping[str, Any]) -> bool:
    """Whether this process has the version that a bulk migration goes to: during a deploy, older ones do not."""
    return given["version"] in registry.versions(given["workflow"])


register(
    BulkVerb(
        name=MIGRATE,
        label="Migrate",
        apply=migrate,
        fits=f"r.state IN ({', '.join(f"'{state}'" for state in sorted(PARKED))})",
        wants="open runs that nobody holds",
        read=_read_arguments,
        ready=_has_version,
        guard="migrate",
        # What each becomes is worked out by the authors' functions, at the preview and once more at the start.
        most=25_000,
    )
)
