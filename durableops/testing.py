"""For authors' tests: run a workflow in this process against the test database. Nothing of the product imports this.

A worker and the passes of upkeep take turns until nothing moves by itself. No process is killed here and no lease runs
out; what crashes do is shown by the drills.

Rows must be committed for the engine's own connection to see them, so tests that use this are marked with
`@pytest.mark.django_db(transaction=True)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints import codec
from durableops.checkpoints.upgrades import SeenEffect, SeenWait, Snapshot, Upgraded, upgrade
from durableops.clock import db_now, monotonic
from durableops.engine import commands, inbound, receiving
from durableops.engine.advance import advance
from durableops.engine.claim import claim_next
from durableops.engine.database import Database
from durableops.engine.hand import Stopping
from durableops.engine.lease import Lease, versions
from durableops.engine.offers import Offer
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.upkeep import clocks, sweep, timers
from runs.models import Checkpoint, Run, Tenant, Wait

ACTOR = "test"
DEFAULT_TENANT = "default"
PATIENCE_SECONDS = 30.0

# Only pauses that the engine itself made after a failure; a sleep of the author's is a fact worth asserting.
_SKIP_PAUSES = """
UPDATE runs_run SET due_at = now(), deferred = false WHERE state = 'queued' AND due_at > now()
AND wake_cause IN ('retry', 'step_timeout', 'worker_lost')"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run at rest: finished, waiting for something from outside or for its time, in doubt, or in review."""

    state: str
    """State of the run: `succeeded`, `failed`, `waiting` …"""
    result: Any
    """What the last step returned; None unless the run succeeded."""
    error: str
    """Why it failed; empty if it did not."""
    run: Run
    """The run's row, as it is now."""

    @property
    def waits_for(self) -> list[str]:
        """Names of its open waits: events, approvals, `sleep`, tools that are polled, workflows of child runs."""
        return list(self.run.waits.filter(state="open").order_by("id").values_list("name", flat=True))


def run_workflow(
    workflow: WorkflowDefinition | type | str, given: Mapping[str, Any], *, tenant: Tenant | str | None = None
) -> Outcome:
    """Start a run and move it, and its child runs, to their end or next rest.

    Pauses between the attempts of a failed step are skipped, so that a test of a failure is quick; pauses between the
    attempts of one call are not. Raises what `start` raises for a bad input, AssertionError when the run does not come
    to rest within 30 s, RuntimeError inside a transaction.
    """
    _refuse_transaction()
    name, version = (workflow, None) if isinstance(workflow, str) else _named(workflow)
    owner = tenant if isinstance(tenant, Tenant) else get_or_make_tenant(tenant or DEFAULT_TENANT)
    started = start(name, dict(given), tenant=owner, actor=ACTOR, version=version)
    return move_on(started.run_id)


def deliver(outcome: Outcome, event: str, *, correlation: str = "", payload: Any = None) -> Outcome:
    """Send an event to the run's tenant, as another system would, and move on."""
    inbound.send_event(event, tenant=outcome.run.tenant, actor=ACTOR, correlation=correlation, payload=payload)
    return move_on(outcome.run.pk)


def approve(
    outcome: Outcome, name: str, *, comment: str = "", choice: str = "", values: Mapping[str, Any] | None = None
) -> Outcome:
    """Approve what the run asks under `name`, as a person would, and move on.

    `choice` says which, where there are several; `values` is what the form asks for, as JSON values.
    """
    wait = _open_approval(outcome, name)
    commands.approve(wait.pk, tenant=outcome.run.tenant, actor=ACTOR, reason=comment, choice=choice, values=values)
    return move_on(outcome.run.pk)


def refuse(outcome: Outcome, name: str, *, comment: str = "not now") -> Outcome:
    """Refuse what the run asks under `name`, and move on."""
    wait = _open_approval(outcome, name)
    commands.refuse(wait.pk, tenant=outcome.run.tenant, actor=ACTOR, reason=comment)
    return move_on(outcome.run.pk)


def bring(outcome: Outcome, name: str, content: bytes, *, file_name: str = "file", content_type: str = "") -> Outcome:
    """Bring the file that the run waits for under `name`, as a person would, and move on."""
    wait = outcome.run.waits.filter(kind="file", name=name, state="open").first()
    if wait is None:
        raise AssertionError(f"the run waits for no file {name!r}; it is {outcome.state}.")
    file = receiving.Brought(name=file_name, content_type=content_type, size=len(content), pieces=[content])
    receiving.receive(wait.pk, tenant=outcome.run.tenant, actor=ACTOR, file=file)
    return move_on(outcome.run.pk)


def let_time_pass(outcome: Outcome) -> Outcome:
    """Let the run's next clock come: the end of a sleep, a turn of a poll, a wait's timeout or the run's deadline.

    Raises AssertionError when no clock of the run is set.
    """
    now = db_now()
    clocks: list[tuple[datetime, QuerySet[Any], str]] = []
    for wait in outcome.run.waits.filter(state="open"):
        row = Wait.objects.filter(pk=wait.pk)
        clocks += [(at, row, name) for name in ("due_at", "expires_at") if (at := getattr(wait, name))]
    run = Run.objects.get(pk=outcome.run.pk)
    if not run.is_terminal:
        itself = Run.objects.filter(pk=run.pk)
        clocks += [(at, itself, name) for name in ("due_at", "deadline_at") if (at := getattr(run, name))]
    assert clocks, f"run {run.pk} is {run.state}; no clock of it is set, so time alone changes nothing."
    _, row, column = min(clocks, key=lambda clock: clock[0])
    row.update(**{column: now})
    return move_on(outcome.run.pk)


def move_on(run_id: UUID, *, patience: float = PATIENCE_SECONDS) -> Outcome:
    """Let a worker and upkeep take turns until nothing moves by itself, and look at the run."""
    _refuse_transaction()
    end = monotonic() + patience
    with _worker() as (database, offer):
        # One run at a time: a step that fails for ever must meet the patience, not an endless drain. Looked for twice:
        # a pause may have ended by itself between the first look and upkeep's.
        while _take_one(database, offer) or _keep_up(database) or _take_one(database, offer):
            if monotonic() > end:
                run = Run.objects.get(pk=run_id)
                raise AssertionError(
                    f"run {run_id} did not come to rest within {patience:g} s: it is {run.state} in step "
                    f"{run.step_id!r} after {run.step_attempts} failed attempts. {run.error_message}"
                )
    return look_at(run_id)


def migrated(
    workflow: WorkflowDefinition | type,
    old: Mapping[str, Any],
    *,
    from_version: int,
    step: str,
    cursor: Any = None,
    waits: Sequence[tuple[str, str]] = (),
    calls: Sequence[tuple[str, str, str]] = (),
    committed: Sequence[str] = (),
    planned: Sequence[str] | None = None,
) -> Upgraded:
    """What a run of an older version would become under `workflow`, by its migrations. Needs no database.

    `old` is its state, `step` where it stands, `waits` the (kind, name) of what it waits for there, `calls` the (step,
    tool, safety) of its calls without an outcome, `committed` the ids of its committed steps, `planned` the steps
    ahead of a run that made its own plan, the present one first. Raises MigrationRefused with what stands in the way.
    """
    name, version = _named(workflow)
    seen = Snapshot(
        version=from_version,
        state=codec.dumps(dict(old), what="state"),
        step_id=step,
        cursor=cursor,
        waits=tuple(SeenWait(id=n, kind=kind, name=name, state="open") for n, (kind, name) in enumerate(waits)),
        effects=tuple(
            SeenEffect(id=n, step_id=step_id, tool=tool, safety=safety, unsettled=True)
            for n, (step_id, tool, safety) in enumerate(calls)
        ),
        committed=tuple(committed),
        planned=None if planned is None else tuple(planned),
    )
    return upgrade(seen, registry.chain(name, from_version, version), registry.workflow(name, version))


def look_at(run_id: UUID) -> Outcome:
    """The run as it is now, without moving anything."""
    run = Run.objects.select_related("tenant").get(pk=run_id)
    output = None
    if run.state == "succeeded":
        output = Checkpoint.objects.values_list("output", flat=True).get(run=run, seq=run.head_seq)
    result = None if output is None else codec.loads(output, what="result")
    return Outcome(state=run.state, result=result, error=run.error_message, run=run)


@contextmanager
def _worker() -> Iterator[tuple[Database, Offer]]:
    """A worker of this process: its connection, what it can run, and a lease that is ended properly."""
    database = Database(name="test worker")
    lease = Lease(database)
    lease.register(child_pid=0, versions_json=json.dumps(versions()))
    try:
        yield database, Offer(worker_id=lease.id)
    finally:
        lease.end("stopped: its test went on")
        database.close()


def _take_one(database: Database, offer: Offer) -> bool:
    """Claim the most urgent run and move it to its next resting place. False when nothing is claimable."""
    offer.keep(database, at_once=True)
    takers = (offer.taker(isolated=isolated, after_tenant=0) for isolated in (False, True))
    claimed = next((found for taker in takers if (found := claim_next(database, taker=taker))), [])
    if claimed:
        advance(database, claimed[0], worker_id=offer.worker_id, stopping=Stopping())
    return bool(claimed)


def _keep_up(database: Database) -> int:
    """One pass of everything upkeep does for runs that lost nobody. Returns how much was moved."""
    moved = (
        timers.wake_due(database)
        + timers.bring_in(database)
        + timers.expire_waits(database)
        + clocks.fire_deadlines(database)
        + clocks.fire_queue_waits(database)
    )
    moved += sweep.sweep(database)
    with database.cursor() as cursor:
        cursor.execute(_SKIP_PAUSES)
        return moved + cursor.rowcount


def _named(workflow: WorkflowDefinition | type) -> tuple[str, int]:
    # A type checker believes that a decorated class is still a class.
    assert isinstance(workflow, WorkflowDefinition), f"{workflow!r} is no workflow; give the decorated class."
    return workflow.name, workflow.version


def _open_approval(outcome: Outcome, name: str) -> Wait:
    found = outcome.run.waits.filter(kind="approval", name=name, state="open").first()
    assert found is not None, (
        f"run {outcome.run.pk} does not ask for {name!r}: it is {outcome.state} and waits for {outcome.waits_for}."
    )
    return found


def _refuse_transaction() -> None:
    if connection.in_atomic_block:
        raise RuntimeError(
            "the test runs in a transaction, which the engine's own connection cannot see into. "
            "Mark it with @pytest.mark.django_db(transaction=True)."
        )
