"""What the API reads: one run, and pages of runs. Each answer costs a few statements, however many runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, TextField, Value, When

from durableops import clock
from durableops.api import shaping, why
from durableops.api.auth import Client, no_such_run
from durableops.api.paging import Position, fingerprint, from_cursor, to_cursor
from durableops.api.schemas import Payload, RunPage, RunSummary
from durableops.api.schemas import Run as RunOut
from durableops.engine import budgeting, gates
from runs.models import Checkpoint, PauseSwitch, Run, Wait, Worker
from runs.querysets import RunQuerySet
from runs.states import State

WINDOW = 10_000
"""Rows one request looks through for filters that no index answers; the cursor goes on from there."""
WAITS_SHOWN = 50
SWITCHES_SHOWN = 5
WORKERS_ASKED = 200


def run_of(client: Client, run_id: UUID) -> RunOut:
    """One run in full. Raises RunNotFound, also for a run of another tenant."""
    run = client.runs().select_related("plan").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    waits = [] if run.is_terminal else list(Wait.objects.filter(run=run, state="open").order_by("-id")[:WAITS_SHOWN])
    facts = why.Facts(run=run, now=clock.now(), waits=waits, switches=_switches(run), workers=_workers(run),
                      before=gates.before(run))  # fmt: skip
    documents = {seq: (given, output) for seq, given, output in _documents(run)}
    sight = client.sees_payloads
    result = documents.get(run.head_seq, ("", None))[1] if run.state == State.SUCCEEDED else None
    return RunOut(
        **shaping.summary(run),
        priority=run.priority,
        parent=run.parent_id,
        attempt=run.step_attempts + 1,
        why=why.tell(facts),
        waits=[shaping.wait(wait, sight=sight) for wait in waits],
        input=shaping.payload(documents[0][0], checkpoint=0, sight=sight) if 0 in documents else None,
        result=None if result is None else shaping.payload(result, checkpoint=run.head_seq, sight=sight),
        partial=_partial(run, sight=sight),
        budgets=[shaping.budget(row) for row in budgeting.of_run(run)],
    )


def _partial(run: Run, *, sight: bool) -> Payload | None:
    if run.state != State.EXHAUSTED:
        return None
    made = Checkpoint.objects.filter(run_id=run.pk, output__isnull=False).order_by("-seq").values_list("seq", "output")
    found = made.first()
    return None if found is None else shaping.payload(found[1] or "null", checkpoint=found[0], sight=sight)


def summary_of(client: Client, run_id: UUID) -> RunSummary:
    """One run as a list shows it. Raises RunNotFound."""
    run = client.runs().select_related("plan").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    return shaping.summary_of(run)


def _documents(run: Run) -> Any:
    """The input and, of a run that succeeded, what its last step returned; no other text is read."""
    wanted = [0, run.head_seq] if run.state == State.SUCCEEDED else [0]
    given = Case(When(seq=0, then=F("state")), default=Value(""), output_field=TextField())
    return Checkpoint.objects.filter(run_id=run.pk, seq__in=wanted).values_list("seq", given, "output")


def _switches(run: Run) -> list[PauseSwitch]:
    if run.is_terminal:
        return []
    here = Q(scope="all") | Q(scope="tenant", tenant=run.tenant_id)
    here |= Q(scope="workflow", workflow=run.workflow) & (Q(tenant=None) | Q(tenant=run.tenant_id))
    return list(PauseSwitch.objects.filter(here)[:SWITCHES_SHOWN])


def _workers(run: Run) -> list[Worker]:
    if run.state != State.QUEUED:
        return []
    return list(Worker.objects.filter(ended_at=None).only("id", "plans")[:WORKERS_ASKED])


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """What a list of runs is narrowed to."""

    states: Sequence[str] = ()
    workflow: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    since: datetime | None = None

    def indexed(self, runs: RunQuerySet) -> RunQuerySet:
        """What an index of (tenant, state, time) answers."""
        if len(self.states) == 1:
            runs = runs.filter(state=self.states[0])
        return runs if self.since is None else runs.filter(created_at__gte=self.since)

    def rest(self, runs: RunQuerySet) -> RunQuerySet:
        """What is compared row by row."""
        if len(self.states) > 1:
            runs = runs.filter(state__in=self.states)
        if self.workflow:
            runs = runs.filter(workflow=self.workflow)
        return runs.filter(labels__contains=self.labels) if self.labels else runs

    @property
    def compares_rows(self) -> bool:
        return len(self.states) > 1 or bool(self.workflow or self.labels)

    @property
    def fingerprint(self) -> str:
        return fingerprint([sorted(self.states), self.workflow, self.labels, self.since])


def page_of(client: Client, wanted: RunFilter, *, limit: int, cursor: str) -> RunPage:
    """A page of runs, newest first. Raises InputRefused for a cursor of another list.

    With filters that no index answers a page looks through so many rows and may come back short, even empty; its
    cursor goes on behind them.
    """
    runs = wanted.indexed(client.runs()).order_by("-created_at", "-id")
    if cursor:
        runs = _after(runs, from_cursor(cursor, filters=wanted.fingerprint))
    end = None
    if wanted.compares_rows:
        end = _position(runs.values_list("created_at", "id")[WINDOW - 1 : WINDOW])
        runs = wanted.rest(runs if end is None else _until(runs, end))
    found = list(runs.select_related("plan")[: limit + 1])
    more = len(found) > limit
    last = Position(at=found[limit - 1].created_at, id=found[limit - 1].pk) if more else end
    return RunPage(
        runs=[shaping.summary_of(run) for run in found[:limit]],
        next=None if last is None else to_cursor(last, filters=wanted.fingerprint),
    )


def ids_of(client: Client, wanted: RunFilter, *, most: int, window: int) -> list[UUID]:
    """The runs that a list shows, newest first: at most so many, of the newest `window` that an index finds."""
    runs = wanted.indexed(client.runs()).order_by("-created_at", "-id")
    if wanted.compares_rows:
        end = _position(runs.values_list("created_at", "id")[window - 1 : window])
        runs = wanted.rest(runs if end is None else _until(runs, end))
    return list(runs.values_list("pk", flat=True)[:most])


def _after(runs: RunQuerySet, position: Position) -> RunQuerySet:
    # The first condition is the one an index can use; the second settles rows of the same instant.
    return runs.filter(created_at__lte=position.at).filter(Q(created_at__lt=position.at) | Q(id__lt=position.id))


def _until(runs: RunQuerySet, end: Position) -> RunQuerySet:
    return runs.filter(created_at__gte=end.at).filter(Q(created_at__gt=end.at) | Q(id__gte=end.id))


def _position(rows: Any) -> Position | None:
    return next((Position(at=at, id=run_id) for at, run_id in rows), None)
