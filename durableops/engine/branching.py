"""Going back: a new lineage of the same run from an earlier checkpoint, or a new run from a checkpoint of another.

A new lineage keeps the run's slots: calls that were made are answered from the record by slot, children by name, and
decisions by their inputs; reads are made again, approvals asked again, and events answer again. A fork has slots of its
own: what it calls goes out anew. Checkpoints are never changed: a lineage begins with a row of kind `branch`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.compatibility import Continue, RecordedPlan, compare
from durableops.checkpoints.states import decode_state, encode_state, state_from_input
from durableops.conf import get_conf
from durableops.engine import bell, findings, guard, made_plans, questions, queues
from durableops.engine.acting import Done, audit, audited_refusals, kept_reason, locked, refused
from durableops.engine.compensation import owing
from durableops.engine.start import MAX_LABELS, NewRun, insert
from durableops.engine.waking import db_now
from durableops.errors import CompatibilityError, InputRefused, PayloadRefused, WorkflowNotFound
from durableops.masking import mask, unmasked
from runs import transitions
from runs.ids import uuid7
from runs.models import Checkpoint, Run, Tenant
from runs.states import sources
from runs.transitions import Cursor, record_event

FORKED_FROM = "forked_from"
"""The label of a fork that names the run it came from."""

_BRANCH = """
INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, cursor, state, state_seq,
    output_hash, effects_through, fence, entry, attempt, at)
SELECT c.run_id, %(head)s, %(lineage)s, 'branch', '', c.next_step, c.plan_id, c.cursor, NULL, c.state_seq, '',
    c.effects_through, %(fence)s, 0, 0, now()
FROM runs_checkpoint c WHERE c.run_id = %(run)s AND c.seq = %(seq)s"""
_LINEAGE = """
INSERT INTO runs_lineage (run_id, number, kind, from_seq, seq, from_plan_id, plan_id, functions, moved, reverts, actor,
    reason, at)
SELECT r.id, %(lineage)s, 'branch', %(seq)s, %(head)s, r.plan_id, r.plan_id, '[]'::jsonb,
    jsonb_build_object('freed', %(freed)s::jsonb), NULL, %(actor)s, %(reason)s, now()
FROM runs_run r WHERE r.id = %(run)s"""
# What this lineage waited for after the checkpoint is over. The events that answered are free to answer again, the
# children are kept: they are what was done, and their waits go along.
_CLOSE_WAITS = """
UPDATE runs_wait SET state = 'cancelled', answered_at = now()
WHERE run_id = %(run)s AND state = 'open' AND kind <> 'children'"""
_FREE_EVENTS = """
UPDATE runs_wait w SET inbound_event_id = NULL FROM (
    SELECT id, inbound_event_id FROM runs_wait
    WHERE run_id = %(run)s AND opened_at > %(at)s AND inbound_event_id IS NOT NULL) o
WHERE w.id = o.id RETURNING o.id, o.inbound_event_id"""
_KEEP_CHILDREN = """
UPDATE runs_wait SET lineage = %(lineage)s
WHERE run_id = %(run)s AND kind = 'children' AND lineage = %(before)s
  AND (opened_at > %(at)s OR step_id = %(step)s)"""
# A checkpoint in the middle of a step: what the step had waited for before it stays answered.
_KEEP_ANSWERS = """
INSERT INTO runs_wait (run_id, tenant_id, lineage, step_id, kind, name, author_key, correlation, state, opened_at,
    since, expires_at, on_timeout, turns, question, facts, facts_hash, answer, answered_by, answered_at)
SELECT run_id, tenant_id, %(lineage)s, step_id, kind, name, author_key, correlation, state, opened_at, since,
    expires_at, on_timeout, turns, question, facts, facts_hash, answer, answered_by, answered_at
FROM runs_wait WHERE run_id = %(run)s AND lineage = %(source)s AND step_id = %(step)s AND kind <> 'children'
  AND state <> 'open' AND opened_at <= %(at)s
ON CONFLICT ON CONSTRAINT wait_name_unique DO NOTHING"""
MOST_NAMED_EVENTS = 50


@audited_refusals
def retry_from(
    run_id: UUID, *, tenant: Tenant, actor: str, reason: str, seq: int, plan_hash: str | None,
    deadline_at: datetime | None = None,
) -> Done:  # fmt: skip
    """Let a run that is not running go on from an earlier checkpoint, in a new lineage.

    Raises PlanChanged when what it would send again is not what was shown, TransitionRefused when it cannot be done.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        found = _checkpoint(run, seq, "retry_from")
        if found.plan_id != run.plan_id:
            wanted = f"a checkpoint of the plan it has now; {seq} is one of version {found.plan.version}, so fork there"
            raise refused(run, "retry_from", wanted)
        deadline = _refuse_branch(cursor, run, deadline_at)
        guard.check(cursor, "retry_from", run.pk, plan_hash, seq=seq)
        told = _branch(cursor, run, found, actor=actor, reason=reason)
        sets = {
            **_place(run, found), "lineage": run.lineage + 1, "head_seq": run.head_seq + 1,
            "state_seq": found.state_seq, "step_id": found.next_step,
            "cursor": None if found.cursor is None else json.dumps(found.cursor),
            "step_entries": 0 if run.started_at else 1, "step_attempts": 0, "recoveries": 0,
            "deadline_at": deadline, "deadline_policy": questions.policy_after(run),
            "wake_cause": "retry_from", "wake_detail": f"{actor}: {reason}",
            "woken_at": db_now(cursor), "lost_at": None, "error_class": "", "error_message": "",
            "error_fingerprint": "",
        }  # fmt: skip
        transitions.fire("branch", run.pk, using=cursor, actor=actor, reason=reason, sets=sets, data=told)
        before = {"state": run.state, "lineage": run.lineage, "head_seq": run.head_seq}
        audit(run, "retry_from", actor=actor, reason=reason, before=before,
              after={"state": "queued", "checkpoint": seq, "lineage": run.lineage + 1, "step": found.next_step,
                     "deadline_at": str(deadline)})  # fmt: skip
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state="queued", settled=True, message=f"goes on from checkpoint {seq}.")


def _refuse_branch(cursor: Cursor, run: Run, deadline_at: datetime | None) -> datetime | None:
    """Whether nothing speaks against a new lineage. Returns the run's deadline in it."""
    if run.state not in sources("branch"):
        wanted = "one that no worker has in hand; pause it first" if run.state == "running" else "an unfinished run"
        raise refused(run, "retry_from", f"{wanted}, or one that failed, timed out or was exhausted")
    if run.cancel_requested and not run.is_terminal:
        raise refused(run, "retry_from", "one that nobody asked to stop")
    if owing.has_begun(cursor, run.pk):
        raise refused(run, "retry_from", "a run of which nothing is being undone; start a new one instead")
    if run.is_terminal and run.parent_wait is not None and run.parent_wait.state != "open":
        raise refused(run, "retry_from", "one whose parent still waits for it; retry the parent instead")
    deadline = deadline_at or run.deadline_at
    if deadline is not None and deadline <= db_now(cursor):
        raise refused(run, "retry_from", "a deadline in the future; give a new one with it")
    return deadline


def _branch(cursor: Cursor, run: Run, found: Checkpoint, *, actor: str, reason: str) -> dict[str, Any]:
    """End the present line of positions and begin the next one. Returns what the timeline tells of it."""
    params = {
        "run": run.pk, "seq": found.seq, "at": found.at, "step": found.next_step, "source": found.lineage,
        "before": run.lineage, "lineage": run.lineage + 1, "head": run.head_seq + 1, "fence": run.fence,
        "actor": actor, "reason": reason,
    }  # fmt: skip
    because = f"the run went back to checkpoint {found.seq}."
    queues.leave_effects(cursor, [run.pk], ended=True, cause="left_open", because=because)
    findings.close(cursor, [run.pk], closed_as="moved", by=actor, why=because)
    cursor.execute(_CLOSE_WAITS, params)
    cursor.execute(_FREE_EVENTS, params)
    freed = cursor.fetchall()
    cursor.execute(_KEEP_CHILDREN, params)
    cursor.execute(_KEEP_ANSWERS, params)
    cursor.execute(_BRANCH, params)
    cursor.execute(_LINEAGE, {**params, "freed": json.dumps([list(pair) for pair in freed[:MOST_NAMED_EVENTS]])})
    return {
        "checkpoint": found.seq, "lineage": run.lineage + 1, "from_head": run.head_seq, "step": found.next_step,
        "events_free_again": len(freed),
    }  # fmt: skip


@audited_refusals
def fork(
    run_id: UUID, *, tenant: Tenant, actor: str, reason: str, seq: int, plan_hash: str | None, once: str,
    state: Any = None,
) -> Done:  # fmt: skip
    """Start a new run at a checkpoint of another, with the state of that checkpoint or an edited one.

    `state` is the whole document; a value that still is the mask it was shown as stands for the value behind it. `once`
    names the request: sent twice, the run that it made answers. Raises InputRefused with the path for a state that does
    not fit the schema, PlanChanged, TransitionRefused.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run, start_key = locked(tenant, run_id), f"fork/{run_id}/{once}"
        before = Run.objects.only("pk", "state").filter(tenant=tenant, start_key=start_key).first()
        if before is not None:
            message = f"run {before.pk} was started before."
            return Done(run_id=before.pk, state=before.state, settled=True, message=message, replayed=True)
        found = _checkpoint(run, seq, "fork")
        definition = definition_of(run, found)
        guard.check(cursor, "fork", run.pk, plan_hash, seq=seq)
        original = state_text(run, found)
        text = edited(definition, original, state)
        new = NewRun(definition=definition, state_json=text, input_hash=run.input_hash, labels=_labels(run))
        made = uuid7()
        insert(cursor, new, run_id=made, tenant_id=run.tenant_id, actor=actor, start_key=start_key,
               priority=run.priority, at=(found.next_step, found.cursor))  # fmt: skip
        plan = made_plans.at_checkpoint(cursor, run.pk, seq) if run.own_plan else None
        if plan is not None:
            made_plans.bring(cursor, made, plan, actor=actor, why=reason)
        told = {"checkpoint": seq, "fork": str(made), "edited": new.state_json != original}
        record_event(cursor, run.pk, "forked", actor=actor, reason=reason, data=told)
        record_event(cursor, made, "forked_from", actor=actor, reason=reason, step_id=found.next_step,
                     data={"run": str(run.pk), "checkpoint": seq, "edited": told["edited"]})  # fmt: skip
        audit(run, "fork", actor=actor, reason=reason, before={"checkpoint": seq}, after=told)
        transaction.on_commit(bell.ring)
    return Done(run_id=made, state="queued", settled=True, message=f"run {made} was started at checkpoint {seq}.")


def _place(run: Run, found: Checkpoint) -> dict[str, Any]:
    """Where the step of a checkpoint runs, as far as this process knows; a worker that knows better hands it over."""
    try:
        definition = registry.workflow(run.workflow, found.plan.version)
        step = definition.step(found.next_step)
    except (WorkflowNotFound, KeyError):
        return {}
    return {"isolated": definition.is_isolated(step.id), "resource": step.uses}


def _checkpoint(run: Run, seq: int, verb: str) -> Checkpoint:
    found = Checkpoint.objects.filter(run=run, seq=seq).select_related("plan").first()
    if found is None or not found.next_step:
        raise refused(run, verb, f"a checkpoint that a step follows; {seq} is none of its")
    return found


def state_text(run: Run, found: Checkpoint) -> str:
    """The state as it was committed at a checkpoint."""
    if found.state is not None:
        return found.state
    text = Checkpoint.objects.values_list("state", flat=True).get(run=run, seq=found.state_seq)
    assert text is not None  # checkpoint_state_is_somewhere
    return text


def definition_of(run: Run, found: Checkpoint) -> WorkflowDefinition:
    """Today's code for the checkpoint. Raises TransitionRefused when it cannot safely read it."""
    plan = found.plan
    recorded = RecordedPlan(
        workflow=run.workflow, version=plan.version, schema_version=plan.schema_version, schema_hash=plan.schema_hash,
        plan_hash=plan.plan_hash, plan=plan.plan, schema=plan.schema, waits=plan.waits,
    )  # fmt: skip
    try:
        present = registry.workflow(run.workflow, plan.version)
    except WorkflowNotFound as missing:
        raise refused(run, "fork", f"code that can read it here: {missing}") from None
    verdict = compare(recorded, RecordedPlan.of(present), at_step=found.next_step)
    if not isinstance(verdict, Continue):
        raise refused(run, "fork", f"code that can read it: {verdict.reason}")
    return present


def edited(definition: WorkflowDefinition, original: str, document: Any) -> str:
    """The state as text, within the schema; the original where nothing was edited. Raises InputRefused with a path."""
    limit = get_conf().payload_max_bytes
    try:
        before = decode_state(definition.state, original)
    except CompatibilityError as error:
        raise InputRefused(f"the state of this checkpoint cannot be read: {error}") from None
    if document is None:
        return original
    plain = json.loads(before.model_dump_json(round_trip=True))
    given = unmasked(document, plain, mask(json.loads(original)))
    try:
        state = state_from_input(definition.state, given, max_bytes=limit)
        # The same values stay the same text: what was not edited does not count as edited.
        return original if state == before else encode_state(state, max_bytes=limit)
    except PayloadRefused as problem:
        raise InputRefused(problem.detail, path=problem.path) from None


def _labels(run: Run) -> dict[str, str]:
    kept = dict(list(run.labels.items())[: MAX_LABELS - 1])
    return kept | {FORKED_FROM: str(run.pk)}
