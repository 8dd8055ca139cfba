"""Starting runs: one way in for commands, API and parents. Idempotent for a tenant and start key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from durableops.authoring import registry
from durableops.authoring.checks import BUILT_IN
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.codec import canonical, check_key, hash_hex
from durableops.checkpoints.states import encode_state, state_from_input
from durableops.conf import get_conf
from durableops.engine import bell, rates
from durableops.engine.budget_rows import put as put_budget
from durableops.engine.plans import plan_id
from durableops.errors import InputRefused, PayloadRefused, RateLimited, StartConflict
from durableops.limits.rate_limits import limiter
from runs.ids import uuid7
from runs.models import Tenant
from runs.transitions import SOON_SECONDS, Cursor

START_KEY_UNIQUE = "run_start_key_unique"
MAX_LABELS = 20


@dataclass(frozen=True, kw_only=True)
class Started:
    """The run that answers the request."""

    run_id: UUID
    created: bool
    """False when an earlier request with the same key made it."""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run that has passed every check and can be written."""

    definition: WorkflowDefinition
    state_json: str
    input_hash: str
    labels: dict[str, str]


_INSERT = """
WITH run AS (
    INSERT INTO runs_run (id, tenant_id, workflow, plan_id, state, state_since, priority, due_at, start_key, input_hash,
        created_at, created_by, labels, parent_id, parent_wait_id, child_index, fence, paused, paused_by,
        cancel_requested,
        cancel_requested_by, cancel_reason, deadline_at, lineage, head_seq, state_seq, step_id, step_entries,
        step_attempts,
        recoveries, max_recoveries, wake_cause, wake_detail, resumes, effects_avoided, progress_note, error_class,
        error_message, error_fingerprint, isolated, resource, cursor, deferred, deadline_policy, queue_seconds,
        queue_policy, queue_expires_at)
    VALUES (%(id)s, %(tenant)s, %(workflow)s, %(plan)s, 'queued', now(), %(priority)s,
        greatest(now(), coalesce(%(start_at)s, now())), %(start_key)s, %(input_hash)s, now(), %(by)s, %(labels)s::jsonb,
        %(parent)s, %(parent_wait)s, %(child_index)s, 0, false, '', false, '', '',
        least(%(deadline_at)s, now() + %(deadline)s * interval '1 second'), 1, 0, 0, %(step)s, 1, 0, 0,
        %(max_recoveries)s, '', '', 0, 0, '', '', '', '', %(isolated)s, %(resource)s, %(cursor)s::jsonb,
        coalesce(%(start_at)s > now() + %(soon)s * interval '1 second', false), %(deadline_policy)s, %(queue)s,
        %(queue_policy)s, greatest(now(), coalesce(%(start_at)s, now())) + %(queue)s * interval '1 second')
    RETURNING id
), checkpoint AS (
    INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, cursor, state, state_seq,
        output_hash, effects_through, fence, entry, attempt, at)
    SELECT id, 0, 1, 'start', '', %(step)s, %(plan)s, %(cursor)s::jsonb, %(state)s, 0, '', 0, 0, 0, 0, now() FROM run
)
INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, actor, reason, data)
SELECT id, now(), 'start', '', 'queued', '', 0, 0, %(by)s, '', '{}'::jsonb FROM run
"""


def check_new(
    workflow: str, given: Any, *, version: int | None = None, labels: Mapping[str, str] | None = None
) -> NewRun:
    """Check a start before anything is written. Raises WorkflowNotFound or InputRefused with the path."""
    definition = registry.workflow(workflow, version)
    if not isinstance(given, dict):
        raise InputRefused(f"the input of {workflow!r} is not a JSON object: give one with the fields of its state.")
    limit = get_conf().payload_max_bytes
    try:
        text = canonical(given, what="input", max_bytes=limit)
        state = state_from_input(definition.state, given, max_bytes=limit)
        state_json = encode_state(state, max_bytes=limit)
    except PayloadRefused as refused:
        raise InputRefused(refused.detail, path=refused.path) from None
    state.check_start()
    return NewRun(
        definition=definition,
        state_json=state_json,
        input_hash=hash_hex(f"{workflow}:{text}"),
        labels=_checked_labels(labels or {}),
    )


def start(
    workflow: str,
    given: Any,
    *,
    tenant: Tenant,
    actor: str,
    start_key: str | None = None,
    version: int | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
    start_at: datetime | None = None,
) -> Started:
    """Start a run, or return the one that the same tenant and key started before.

    Its priority is brought into the range its tenant may use. Raises InputRefused, WorkflowNotFound, StartConflict when
    the key stands for another workflow or input, and RateLimited when the tenant has started what it may in a minute.
    """
    if workflow.startswith(BUILT_IN):
        raise InputRefused(f"{workflow!r} is built in: the engine starts its runs itself, nobody else does.")
    new = check_new(workflow, given, version=version, labels=labels)
    if start_key is not None:
        check_key(start_key, what="start key")
    if not -100 <= priority <= 100:
        raise InputRefused(f"priority is {priority}; give a whole number from -100 to 100.")
    known = _known(tenant, start_key, new) if rates.of_start(_fresh(tenant.pk)) else None
    if known is not None:
        return known
    _admit(tenant)
    priority = rates.priority_of(tenant.pk, priority)
    run_id = uuid7()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            insert(cursor, new, run_id=run_id, tenant_id=tenant.pk, actor=actor, start_key=start_key,
                   priority=priority, start_at=start_at)  # fmt: skip
            transaction.on_commit(bell.ring)
    except IntegrityError as error:
        if constraint_of(error) != START_KEY_UNIQUE:
            raise
        return _earlier(tenant, start_key, new)
    return Started(run_id=run_id, created=True)


def _fresh(tenant_id: int) -> int:
    """The tenant, with its policy read within the last second."""
    if not rates.is_fresh():
        rates.refresh(_fetch)
    return tenant_id


def _fetch(query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def _known(tenant: Tenant, start_key: str | None, new: NewRun) -> Started | None:
    """What the key started before: asking again takes nothing from the rate."""
    if start_key is None or not tenant.runs.filter(start_key=start_key).exists():
        return None
    return _earlier(tenant, start_key, new)


def _admit(tenant: Tenant) -> None:
    """Raise RateLimited when the tenant has started what it may in a minute."""
    limits = rates.of_start(tenant.pk)
    grant = limiter.take(limits)
    if not grant.granted:
        raise RateLimited(
            f"tenant {tenant.slug!r} may start {limits[0].per_minute} runs a minute and has started them. Nothing was "
            f"started; try again in {grant.wait_seconds:.0f} s with the same key.",
            after_seconds=grant.wait_seconds,
        )


def insert(
    cursor: Cursor,
    new: NewRun,
    *,
    run_id: UUID,
    tenant_id: int,
    actor: str,
    start_key: str | None = None,
    priority: int = 0,
    start_at: datetime | None = None,
    parent: tuple[UUID, int, int] | None = None,
    deadline_at: datetime | None = None,
    at: tuple[str, Any] | None = None,
) -> None:
    """Write the run, its first checkpoint and its first event in one statement.

    It begins with the first step, or with the step and cursor of `at`.
    """
    step, cursor_at = at or (new.definition.steps[0].id, None)
    deadline: timedelta | None = new.definition.deadline
    queue: timedelta | None = new.definition.queue_wait
    cursor.execute(
        _INSERT,
        {
            "id": run_id,
            "tenant": tenant_id,
            "workflow": new.definition.name,
            "plan": plan_id(cursor, new.definition),
            "priority": priority,
            "start_at": start_at,
            "start_key": start_key,
            "input_hash": new.input_hash,
            "by": actor,
            "labels": json.dumps(new.labels),
            "parent": parent[0] if parent else None,
            "parent_wait": parent[1] if parent else None,
            "child_index": parent[2] if parent else None,
            "deadline": deadline.total_seconds() if deadline else None,
            "deadline_at": deadline_at,
            "deadline_policy": new.definition.on_deadline,
            "queue": queue.total_seconds() if queue else None,
            "queue_policy": new.definition.on_queue_wait,
            "step": step,
            "cursor": None if cursor_at is None else json.dumps(cursor_at),
            "isolated": new.definition.is_isolated(step),
            "resource": new.definition.step(step).uses,
            "soon": SOON_SECONDS,
            "max_recoveries": new.definition.max_recoveries,
            "state": new.state_json,
        },
    )
    put_budget(cursor, run_id, new.definition.budget, new.definition.on_budget)


def constraint_of(error: IntegrityError) -> str:
    """Name of the constraint an insert ran into; every other violation keeps its own face."""
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""


def _earlier(tenant: Tenant, start_key: str | None, new: NewRun) -> Started:
    found = tenant.runs.filter(start_key=start_key).values_list("id", "input_hash").get()
    if found[1] != new.input_hash:
        raise StartConflict(
            f"start key {start_key!r} started run {found[0]} with another input. Use that run or another key.",
            run=str(found[0]),
        )
    return Started(run_id=found[0], created=False)


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise InputRefused(f"there are {len(labels)} labels; at most {MAX_LABELS} are kept.")
    for name, value in labels.items():
        check_key(name, what="label name")
        if not isinstance(value, str):
            raise InputRefused(f"label {name!r} is not text; labels are text.")
        check_key(value, what=f"label {name!r}")
    return dict(labels)
