"""Making the runs of the table: rows as the engine would have written them, had it all happened that long ago."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models

from durableops import sealing
from durableops.artifacts import storage
from durableops.engine import prompts
from durableops.upkeep.drills.company import ACTOR, LABELS
from examples.keeping.cells import HOUR, Cell
from examples.keeping.workflows import FIRST, PLAIN, REOPENABLE, SECOND
from runs.ids import uuid7
from runs.models import (
    Artifact,
    Checkpoint,
    Compensation,
    CompensationOrder,
    Decision,
    Doubt,
    IdempotencyRecord,
    Lineage,
    LogLine,
    OutboxBody,
    OutboxLane,
    OutboxMessage,
    Prompt,
    Receipt,
    Review,
    Run,
    RunEvent,
    Tenant,
    Wait,
    Worker,
    WorkflowPlan,
)

HELD = {"keeping": "held"}
"""The label that a legal hold is on."""
DESTINATION = "keeping"
BATCH = 1000
CONTENT = b"what ann bought"
_STATE = '{"customer":"ann"}'
_SOON = timedelta(days=1)
_MOVES = {
    "queued": "hand_back", "waiting": "suspend", "in_doubt": "doubt", "in_review": "park", "succeeded": "succeed",
    "failed": "fail", "cancelled": "stop", "timed_out": "time_out", "exhausted": "exhaust",
}  # fmt: skip
"""The move of a running run into each state."""
_ORDER: tuple[type[models.Model], ...] = (
    Run, Checkpoint, Lineage, IdempotencyRecord, Doubt, CompensationOrder, Compensation, OutboxLane, OutboxBody,
    OutboxMessage, Wait, Review, Decision, Prompt, Artifact, RunEvent, LogLine, Receipt,
)  # fmt: skip


@dataclass(kw_only=True)
class Maker:
    """Makes runs, a row of every class each, and what holds them; written together at the end."""

    at: datetime
    """When all of it is now."""
    plans: dict[str, WorkflowPlan]
    """The plan of each workflow, as the code has it."""
    tenant: Tenant
    held_tenant: Tenant
    """The one that a legal hold is on as a whole."""
    dead: Worker
    """The worker that held what is running."""
    prompt: dict[str, Any] = field(default_factory=lambda: prompts.row("kind", "What is ann?", key=""))
    """The raw prompt of each: sealed once, and the same for all."""
    cells: dict[UUID, Cell] = field(default_factory=dict)
    others: list[UUID] = field(default_factory=list)
    """Parents, children and so on: what holds a cell."""
    paths: dict[UUID, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """The files of each run: class and place in the storage."""
    _rows: dict[type[models.Model], list[Any]] = field(default_factory=lambda: defaultdict(list))
    _families: list[tuple[Run, Run, Wait]] = field(default_factory=list)
    """Child, parent and the wait between them."""
    _number: int = 0

    @property
    def tenants(self) -> list[Tenant]:
        return [self.tenant, self.held_tenant]

    def make(self, wanted: Collection[Cell]) -> None:
        """Make all these runs."""
        for cell in wanted:
            ended = self.at - cell.age
            run = self._run(
                cell.state,
                ended,
                workflow=REOPENABLE if cell.held_by == "may be reopened" else PLAIN,
                tenant=self.held_tenant if cell.held_by == "hold on the tenant" else self.tenant,
                labels=HELD if cell.held_by == "hold on a label" else {},
            )
            self.cells[run.pk] = cell
            self._fill(run, ended)
            if holds := _HOLDS.get(cell.held_by):
                holds(self, run, ended)
            if of_state := _OF_STATE.get(cell.state):
                of_state(self, run, ended)
        for model in _ORDER:
            model._default_manager.bulk_create(self._rows[model], batch_size=BATCH)
        for below, above, wait in self._families:
            Run.objects.filter(pk=below.pk).update(parent=above, parent_wait=wait, child_index=0)

    def _add[M: models.Model](self, row: M) -> M:
        self._rows[type(row)].append(row)
        return row

    def _run(
        self, state: str, ended: datetime, *, workflow: str = PLAIN, tenant: Tenant | None = None,
        labels: dict[str, str] | None = None, **over: Any,
    ) -> Run:  # fmt: skip
        of_state: dict[str, Any] = {"finished_at": ended}
        if state in ("queued", "running", "waiting", "in_doubt", "in_review"):
            of_state = {"due_at": self.at} if state == "queued" else {}
        if state == "running":
            of_state = {"worker": self.dead}
        run = Run(
            id=uuid7(), tenant=tenant or self.tenant, workflow=workflow, plan=self.plans[workflow], state=state,
            state_since=ended, created_at=ended - HOUR, created_by=ACTOR, input_hash="i" * 64, step_id=SECOND,
            step_entries=1, head_seq=1, fence=1, max_recoveries=20, labels=LABELS | (labels or {}),
            wake_cause="start", started_at=ended, **of_state, **over,
        )  # fmt: skip
        self._add(run)
        for event, before, after in _story(state):
            self._add(
                RunEvent(run=run, at=ended, event=event, from_state=before, to_state=after, step_id=SECOND, fence=1)
            )
        for seq, kind, step, text, output in (
            (0, "start", "", _STATE, None), (1, "step", FIRST, None, '"ann"'), (2, "finish", SECOND, None, '"ann"'),
        ):  # fmt: skip
            if kind == "finish" and state != "succeeded":
                break
            run.head_seq = seq
            self._add(
                Checkpoint(
                    run=run, seq=seq, lineage=1, kind=kind, step_id=step, next_step=_next(kind), plan=run.plan,
                    state=text, state_seq=0, output=output, fence=min(seq, 1), at=ended,
                )
            )  # fmt: skip
        return run

    def _fill(self, run: Run, at: datetime) -> None:
        """Something of every class."""
        self.effect(run, at, result='{"id":"T-1"}', request_summary={"for": "ann"}, response_summary=None)
        self._add(Decision(run=run, step_id=FIRST, name="kind", input_hash="i" * 64, result='"a"', fence=1, at=at))
        self._add(Prompt(run=run, step_id=FIRST, fence=1, **self.prompt))
        self._add(LogLine(run=run, at=at, step_id=FIRST, level="info", message="hello"))
        run.resumes = 1
        self._add(Receipt(run=run, number=1, cause="timer", step_id=FIRST, fence=1, resumed_at=at))
        for data_class in ("temp_file", "deliverable"):
            self._file(run, data_class)

    def _file(self, run: Run, data_class: str) -> None:
        private = data_class == "temp_file"
        path = storage.new_path(tenant=run.tenant.slug, run_id=run.pk)
        if self.cells[run.pk].has_files:
            storage.write(path, CONTENT, sealed=private)
            self.paths[run.pk].append((data_class, path))
        self._add(
            Artifact(
                run=run, step_id=FIRST, name=data_class, data_class=data_class, content_type="text/plain", fence=1,
                readable_by="prompts" if private else "payloads", path=path, size_bytes=len(CONTENT),
                content_hash=storage.hash_of(CONTENT) or "", sealed_with=sealing.key_id() if private else "",
            )
        )  # fmt: skip

    def effect(self, run: Run, at: datetime, *, state: str = "succeeded", **over: Any) -> IdempotencyRecord:
        """One more effect of a run."""
        self._number += 1
        values: dict[str, Any] = {
            "slot": run.pk.bytes + self._number.to_bytes(16, "big"), "key": f"{run.pk.hex}{self._number:016d}",
            "request_hash": "r" * 64, "step_id": FIRST, "tool": "keeping", "resource": f"thing-{self._number}",
            "safety": "keyed", "state": state, "fence": 1, "intended_at": at,
            "completed_at": None if state in ("queued", "intended", "in_doubt") else at,
            "result": '"done"' if state == "succeeded" else None,
        }  # fmt: skip
        return self._add(IdempotencyRecord(run=run, tenant=run.tenant, **(values | over)))

    def doubt(self, run: Run, at: datetime, **settled: Any) -> None:
        """An effect that may or may not have happened; or that is known by now."""
        effect = self.effect(run, at, state="succeeded" if settled else "in_doubt")
        self._add(Doubt(effect=effect, run=run, tenant=run.tenant, cause="call_timeout", why="silence", since=at,
                        **settled))  # fmt: skip

    def message(self, run: Run, at: datetime, *, delivered: bool) -> None:
        """A message that has left, or has not."""
        lane = self._add(OutboxLane(run=run, tenant=run.tenant, destination=DESTINATION, depth=int(not delivered),
                                    due_at=self.at))  # fmt: skip
        effect = self.effect(run, at, state="succeeded" if delivered else "queued", safety="outbox", attempts=0)
        self._add(OutboxBody(effect=effect, body="{}", open_messages=int(not delivered),
                             delivered_messages=int(delivered)))  # fmt: skip
        self._add(
            OutboxMessage(
                lane=lane, effect=effect, tenant=run.tenant, on_poison="hold", created_at=at,
                state="delivered" if delivered else "pending", finished_at=at if delivered else None,
            )
        )  # fmt: skip

    def compensation(self, run: Run, at: datetime, **over: Any) -> None:
        """Something that is to be undone, or was."""
        effect = self.effect(run, at)
        self._add(Compensation(effect=effect, run=run, tenant=run.tenant, how="person", instructions="call them",
                               owed_at=at, **over))  # fmt: skip

    def wait(self, run: Run, at: datetime, *, kind: str = "approval", answered: bool = False, **over: Any) -> Wait:
        """Somebody is asked, or was."""
        if answered:
            over |= {"state": "answered", "answer": '{"approved":true}', "answered_by": "ann", "answered_at": at}
        return self._add(
            Wait(
                run=run, tenant=run.tenant, step_id=SECOND, kind=kind, name="ask", opened_at=at, since=at,
                question="Go?", **over,
            )
        )  # fmt: skip

    def review(self, run: Run, at: datetime, **closed: Any) -> None:
        """A finding that somebody has to decide about, or has."""
        self._add(
            Review(
                run=run, tenant=run.tenant, workflow=run.workflow, plan=run.plan, code="plan", fingerprint="f" * 32,
                reason="the plan is another", seq=run.head_seq, found_at=at, **closed,
            )
        )  # fmt: skip

    def order(self, run: Run, at: datetime) -> None:
        """Undoing was ordered and has not begun."""
        self._add(CompensationOrder(run=run, tenant=run.tenant, choice="later", actor="ann", at=at))

    def lineage(self, run: Run, at: datetime) -> None:
        """Its last checkpoint begins a line of its own."""
        self._add(Lineage(run=run, number=2, kind="edit", from_seq=0, seq=1, from_plan=run.plan, plan=run.plan,
                          actor="ann", reason="a correction", at=at))  # fmt: skip

    def parent(self, run: Run, at: datetime, state: str, workflow: str = PLAIN) -> None:
        """Another run that asked for this one."""
        above = self._other(state, at, workflow)
        wait = self.wait(above, at, kind="children", answered=state != "waiting", turns=1)
        self._families.append((run, above, wait))

    def child(self, run: Run, at: datetime, state: str, **over: Any) -> None:
        """Another run that this one asked for."""
        wait = self.wait(run, at, kind="children", state="cancelled", turns=1)
        self._families.append((self._other(state, at, **over), run, wait))

    def undone_by(self, run: Run, at: datetime) -> None:
        """This run undid what another one did, which is held."""
        other = self._other("failed", at, labels=HELD)
        self.compensation(other, at, state="done", linked_run=run, settled_at=at, settled_by="ann", evidence="R-1")

    def _other(self, state: str, at: datetime, workflow: str = PLAIN, labels: dict[str, str] | None = None) -> Run:
        made = self._run(state, at, workflow=workflow, labels=labels)
        self.others.append(made.pk)
        return made


def _story(state: str) -> list[tuple[str, str, str]]:
    """How it came into its state: event, and from which state to which."""
    moves = [("start", "", "queued"), ("claim", "queued", "running")]
    return moves if state == "running" else [*moves, (_MOVES[state], "running", state)]


def _next(kind: str) -> str:
    return {"start": FIRST, "step": SECOND}.get(kind, "")


type _Holds = Callable[[Maker, Run, datetime], object]
_HOLDS: dict[str, _Holds] = {
    "effect in doubt": lambda m, run, at: m.doubt(run, at),
    "message not delivered": lambda m, run, at: m.message(run, at, delivered=False),
    "compensation owed": lambda m, run, at: m.compensation(run, at),
    "undoing ordered": Maker.order,
    "open approval": lambda m, run, at: m.wait(run, at),
    "open review": lambda m, run, at: m.review(run, at),
    "parent open": lambda m, run, at: m.parent(run, at, "waiting"),
    "parent may be reopened": lambda m, run, at: m.parent(run, at, "failed", REOPENABLE),
    "child open": lambda m, run, at: m.child(run, at, "waiting"),
    "child on record": lambda m, run, at: m.child(run, at, "succeeded", labels=HELD),
    "it undid what is on record": Maker.undone_by,
    "key still known": lambda m, run, at: m.effect(run, at, window_ends_at=m.at + _SOON),
    "shared effect": lambda m, run, at: m.effect(run, at, scope="tenant", result='"shared"'),
    "doubt settled": lambda m, run, at: m.doubt(
        run, at, settled_at=at, settled_as="happened", settled_by="ann", evidence="seen"
    ),
    "message delivered": lambda m, run, at: m.message(run, at, delivered=True),
    "compensation done": lambda m, run, at: m.compensation(
        run, at, state="done", settled_at=at, settled_by="ann", evidence="R-1"
    ),
    "approval given": lambda m, run, at: m.wait(run, at, answered=True),
    "review closed": lambda m, run, at: m.review(run, at, closed_at=at, closed_as="ended", closed_by="engine"),
    "key forgotten": lambda m, run, at: m.effect(run, at, window_ends_at=at),
    "parent ended": lambda m, run, at: m.parent(run, at, "succeeded"),
    "later lineage": Maker.lineage,
}
"""What makes it so; of legal holds, people do."""
_OF_STATE: dict[str, _Holds] = {
    "in_doubt": lambda m, run, at: m.doubt(run, at),
    "in_review": lambda m, run, at: None if m.cells[run.pk].held_by == "open review" else m.review(run, at),
    "waiting": lambda m, run, at: None if m.cells[run.pk].held_by == "open approval" else m.wait(run, at),
}
"""What an open state demands."""
