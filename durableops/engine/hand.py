"""A run in hand: what its holder knows since the claim, and what it has to write with its next commit."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from durableops.authoring.definitions import StepDefinition, WorkflowDefinition
from durableops.authoring.state import State
from durableops.checkpoints.made_plans import MadePlan
from durableops.checkpoints.states import decode_state
from durableops.clock import monotonic
from durableops.engine.known import KnownEffect, KnownWait
from durableops.errors import ControlSignal, DuplicateName
from runs.claiming import Claimed
from runs.fenced import CheckpointRow, FencedWrite, Written
from runs.states import TERMINAL, TRANSITIONS

if TYPE_CHECKING:
    from durableops.engine.in_hand import Held

GOES_ON = "step_default"
"""Cause of a resume that commits a step's default: it did not end at its timeout and its process was killed."""
FLUSH_AFTER_SECONDS = 1.0
"""Log lines and progress wait at most this long for a commit to travel with."""
KEEPS_MESSAGES = (None, "suspend", "succeed")
"""Moves with which a step's messages are posted. An entry that fails or is broken off leaves none behind."""


@dataclass(frozen=True, kw_only=True)
class Posting:
    """The messages that wait for a commit: how many, and how much they say."""

    count: int
    bytes: int


@dataclass(kw_only=True)
class Stopping:
    """Whether this process is on its way out. Written by its signal handler, read by every run in hand."""

    since: float | None = None
    leave_at: float | None = None
    """After this, runs leave their step at the next `run.` call instead of at the next commit (monotonic clock)."""

    def begin(self, *, grace_seconds: float) -> None:
        if self.since is None:
            self.since = monotonic()
            self.leave_at = self.since + grace_seconds / 2


_RANDOM = random.Random()  # noqa: S311 - jitter, not secrets; seeding one for each run took longer than its claim


class UnderWay(Protocol):
    """A call between its intent and its outcome."""

    @property
    def certainly_unsent(self) -> bool:
        """Whether nothing of it can have reached the other side, and nobody is about to send it."""

    @property
    def must_be_answered(self) -> bool:
        """Whether it is on the wire and would be in doubt if its step were left now."""


class Hand:
    """One claimed run. Not shared between threads except through the engine's ops."""

    _outcomes: dict[int, dict[str, Any]]
    _doubts: dict[int, dict[str, Any]]
    _records: list[dict[str, Any]]
    _messages: list[dict[str, Any]]
    _decisions: list[dict[str, Any]]
    _prompts: list[dict[str, Any]]
    _artifacts: list[dict[str, Any]]
    _events: list[dict[str, Any]]
    _logs: list[dict[str, Any]]
    random = _RANDOM
    _progress_told: tuple[int, int | None, str] | None

    def __init__(
        self, claimed: Claimed, definition: WorkflowDefinition, *, worker_id: UUID, stopping: Stopping
    ) -> None:
        self.claimed = claimed
        self.stopping = stopping
        self.definition = definition
        self.worker_id = worker_id
        self.run_id = claimed.run_id
        self.fence = claimed.fence
        self.head_seq = claimed.head_seq
        self.state_json = claimed.state_json
        self.state_bytes = claimed.state_bytes
        self.cursor: Any = claimed.cursor
        self.resource = claimed.resource
        """What it uses, as it is on record."""
        self.effects_through = claimed.effects_through
        self.newest_effect = claimed.effects_through
        self.deadline = _at(claimed.deadline_left)
        self.cancel_requested = claimed.cancel_requested
        self.pause_requested = False
        self.held: Held | None = None
        """Its place in this process, where the commit that finishes the run may put the next one."""
        self.answers_lost = 0
        """How often the answer to one of its commits was lost."""
        self.step: StepDefinition = definition.step(claimed.step_id)
        self.made_plan: MadePlan | None = None
        """The plan that the run made for itself, in force where it stands."""
        self.attempt = claimed.step_attempts + claimed.recoveries + 1
        self.failed_attempts = claimed.step_attempts
        self.entry = claimed.step_entries
        self.resumed = claimed.resumes > 0
        """Whether something of this step or page may be on record already."""
        self.went_back: bool | None = False if claimed.lineage == 1 else None
        """Whether it went back to an earlier checkpoint, so that every step may find what earlier lines of positions
        did; None while nobody has asked the record."""
        self.lost = False
        """Whether a newer claim is known to own the run."""
        self.in_step = False
        """Whether the author's code has it just now."""
        self.entries = 0
        """Which entry of this hand it is: what an earlier one left running may send nothing any more."""
        self.task: asyncio.Task[Any] | None = None
        """The task of an async step."""
        self.told: ControlSignal | None = None
        """Why the present entry was asked to stop from outside."""
        self.told_at = 0.0
        self.stop = threading.Event()
        """Set when it was: a pause ends early."""
        self.budgeted: bool | None = None
        """Whether the run or one above it has a budget; None while nobody has asked the record."""
        self.budget_phase: Any = None
        """What was to be paid when a budget turned out to be spent."""
        self.reserved: list[dict[str, Any]] = []
        """What this hand has reserved of budgets and not settled."""
        self.compute: Any = None
        """What the present entry may compute, where a budget limits that."""
        self.taken_at = monotonic()
        self.last_commit = self.taken_at
        self._clear_pending()
        self.begin_entry()

    def begin_entry(self, state: State | None = None) -> None:
        """Enter the present step from its top, with its state decoded from the committed bytes.

        `state` is given by whoever has just decoded it.
        """
        self.state: State = state or decode_state(self.definition.state, self.state_json)
        self.used: set[tuple[str, ...]] = set()
        self.effects: dict[str, KnownEffect] = {}
        self.waits: dict[tuple[str, str, str], KnownWait] = {}
        self.decisions: dict[tuple[str, str, str], str] = {}
        self.files: dict[str, dict[str, Any]] = {}
        """Files of this entry by name, the newest of each."""
        self.loaded = not (self.resumed or self.went_back is not False)
        self.under_way: dict[int, UnderWay] = {}
        """Calls of this entry by effect, from their intent on."""
        self.gave_up: dict[int, dict[str, Any]] = {}
        """Calls of this entry that gave up without an outcome: in doubt, once the step goes on without them."""
        self.shared: set[int] = set()
        """Effects of this entry that belong to the whole tenant."""
        self.probeable: set[int] = set()
        """Effects in doubt of this entry whose tool has a probe."""
        self.holds: dict[int, str] = {}
        """Calls of this entry that have a place in the queue of a system, or are on the wire to it."""
        self.leftovers = self.resumed
        """Whether an earlier entry may have left effects without an outcome that this one did not ask for."""
        self.replan: MadePlan | None = None
        """What this entry said about the steps that follow."""
        self.replan_why = ""
        self.entries += 1
        self.on_the_wire: tuple[str, float, float | None] | None = None
        """The tool that is being called, or was last, with when that began and ended."""
        self.entered_at = self.page_at = monotonic()
        self.in_page = False
        self.extended = False
        """Whether this entry's clock has come and it was given once more as long."""
        self.leaving: ControlSignal | None = None
        """The signal with which the engine left the step's code in this entry, whatever that code made of it."""
        self.told = None
        self.stop.clear()

    @property
    def following(self) -> StepDefinition | None:
        """The step that comes after the present one; None when it is the last."""
        plan = self.replan or self.made_plan
        if plan is None:
            return self.definition.next_step(self.step.id)
        step_id = plan.after(self.step.id)
        return None if step_id is None else self.definition.step(step_id)

    def leave_entry(self) -> None:
        """The author's code has let go; what it left running belongs to nobody."""
        self.in_step = False
        self.entries += 1

    def tell_to_stop(self, reason: ControlSignal, *, cancel: bool = True) -> None:
        """Ask the present entry to leave, from another thread. With `cancel`, an async step is cancelled, once."""
        self.told, self.told_at = reason, monotonic()
        self.stop.set()
        task = self.task
        if cancel and task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    @property
    def step_deadline(self) -> float | None:
        """When the present entry times out, on the monotonic clock."""
        return None if self.step.longest is None else self.entered_at + self.step.longest

    @property
    def killed_and_goes_on(self) -> bool:
        """Whether the process of this very step was killed at its timeout, and its policy is to go on without it."""
        goes_on = self.claimed.wake_cause == GOES_ON and self.step.on_timeout == "continue"
        return goes_on and self.head_seq == self.claimed.head_seq

    def tool_called_at(self, instant: float) -> str:
        """The tool whose answer the step was waiting for at an instant (monotonic clock); "" for none."""
        if self.on_the_wire is None:
            return ""
        tool, began, ended = self.on_the_wire
        return tool if began <= instant and (ended is None or instant <= ended) else ""

    def drop_messages(self) -> None:
        """An entry that was broken off leaves no messages behind."""
        self._messages, self._posting_bytes = [], 0

    def use(self, kind: str, *names: str) -> None:
        """Note that a name and key were used. Raises DuplicateName the second time in one entry."""
        place = (kind, *names)
        if place in self.used:
            shown = ", ".join(repr(n) for n in names if n)
            raise DuplicateName(
                f"step {self.step.id!r} used {kind} {shown} twice in one entry; give the second a key of its own."
            )
        self.used.add(place)

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        self._logs.append(
            {
                "n": len(self._logs),
                "at": datetime.now(UTC).isoformat(),
                "level": level,
                "message": message,
                "fields": fields,
            }
        )

    def progress(self, done: int, total: int | None, note: str) -> None:
        self._progress_told = (done, total, note)

    def settle(self, effect_id: int, **outcome: Any) -> None:
        """Note an effect's outcome; it is committed before, or with, the checkpoint that relies on it."""
        self.under_way.pop(effect_id, None)
        self._outcomes[effect_id] = {**self._outcomes.get(effect_id, {"reused": 0}), "id": effect_id, **outcome}
        self.newest_effect = max(self.newest_effect, effect_id)

    def answers_that_came_too_late(self) -> list[dict[str, Any]]:
        """What calls brought whose outcome could not be written any more, as references."""
        return [
            {"effect": row["id"], "state": row["state"], "downstream_id": row.get("downstream_id") or ""}
            for row in self._outcomes.values()
            if row.get("state")
        ]

    def told_to_others(self, write: FencedWrite) -> list[int]:
        """Effects whose outcome this write brings and that other runs of the tenant may wait for."""
        return [row["id"] for row in write.outcomes if row.get("state") and row["id"] in self.shared]

    def frees(self, write: FencedWrite) -> set[str]:
        """The systems at which somebody else may be next once this write is committed."""
        if not self.holds:
            return set()
        if write.leaves:
            return set(self.holds.values())
        done = (row["id"] for row in write.outcomes if row.get("state"))
        return {self.holds[effect_id] for effect_id in done if effect_id in self.holds}

    def give_up(self, effect_id: int, *, cause: str, why: str) -> None:
        """Note that nobody is at an effect any more and that it may have happened. Its step may still ask again."""
        self.under_way.pop(effect_id, None)
        self.gave_up[effect_id] = {"id": effect_id, "cause": cause, "why": why}
        self.newest_effect = max(self.newest_effect, effect_id)

    def doubt(self, effect_id: int, *, cause: str, why: str, response: dict[str, Any] | None = None) -> None:
        """Note that an effect's outcome is unknown and that it is not sent again; committed with what comes next."""
        self.under_way.pop(effect_id, None)
        self._doubts[effect_id] = {"id": effect_id, "cause": cause, "why": why, "response": response}
        self.newest_effect = max(self.newest_effect, effect_id)

    def reuse(self, effect_id: int) -> None:
        """Note that a recorded result answered a call."""
        row = self._outcomes.setdefault(effect_id, {"id": effect_id, "reused": 0})
        row["reused"] += 1
        self._reused += 1
        self.newest_effect = max(self.newest_effect, effect_id)

    def repeat(self, count: int) -> None:
        """Note calls that were sent again with their old key."""
        self._repeated += count

    def record(self, row: dict[str, Any]) -> None:
        self._records.append(row)

    def post(self, row: dict[str, Any]) -> None:
        """Note a message for the outbox; it is posted with the next commit, unless the entry ends without one."""
        self._messages.append({"n": len(self._messages), **row})
        self._posting_bytes += len(row["body"])

    @property
    def posting(self) -> Posting:
        """How much waits to be posted."""
        return Posting(count=len(self._messages), bytes=self._posting_bytes)

    def decide(self, row: dict[str, Any]) -> None:
        self._decisions.append(row)

    def prompt(self, row: dict[str, Any]) -> None:
        self._prompts.append(row)

    def keep(self, row: dict[str, Any]) -> None:
        self._artifacts.append(row)
        self.files[row["name"]] = row

    def event(self, name: str, *, reason: str = "", data: dict[str, Any] | None = None, moves: bool = False) -> None:
        self._events.append(
            {"n": len(self._events), "event": name, "reason": reason, "data": data or {}, "moves": moves}
        )

    @property
    def is_stale(self) -> bool:
        """Whether something has waited long enough to deserve a commit of its own."""
        waiting = self._logs or self._progress_told
        return bool(waiting) and monotonic() - self.last_commit > FLUSH_AFTER_SECONDS

    def write(
        self, *, checkpoint: CheckpointRow | None = None, transition: str | None = None, **more: Any
    ) -> FencedWrite:
        """Everything that is pending, as one write. What an async step says meanwhile belongs to the next one."""
        posts = checkpoint is not None or transition in KEEPS_MESSAGES
        leaves, keeps = self._leave(checkpoint, transition)
        made = FencedWrite(
            run_id=self.run_id,
            fence=self.fence,
            seq=self.head_seq,
            worker_id=self.worker_id,
            step_id=self.step.id,
            attempt=self.attempt,
            entry=self.entry,
            checkpoint=checkpoint,
            transition=transition,
            outcomes=list(self._outcomes.values()),
            doubts=list(self._doubts.values()),
            leaves=leaves,
            keeps=keeps,
            records=self._records,
            messages=self._messages if posts else [],
            decisions=self._decisions,
            prompts=self._prompts,
            artifacts=self._artifacts,
            events=self._events,
            logs=self._logs,
            progress=self._progress_told,
            reused=self._reused,
            repeated=self._repeated,
            **more,
        )
        self._clear_pending()
        return made

    def _leave(self, checkpoint: CheckpointRow | None, transition: str | None) -> tuple[str, list[int]]:
        """Note what becomes of calls without an outcome, if this write leaves some behind.

        Returns why they are left, empty if none can be, and the effects that are not: their calls go on.
        """
        open_ = self.under_way or self.gave_up or self.holds or self.leftovers
        if (checkpoint is None and transition is None) or not open_:
            return "", []
        if checkpoint is not None and checkpoint.kind == "page" and transition is None:
            # Other tasks of an async step may be in the middle of a call.
            self._doubts |= self.gave_up
            return f"step {self.step.id!r} went on to its next page without it.", list(self.under_way)
        for effect_id in [effect_id for effect_id, call in self.under_way.items() if call.certainly_unsent]:
            self.settle(effect_id, state="withdrawn", error_class="NotSent", error_message="the step left before.")
        if checkpoint is not None or (transition is not None and TRANSITIONS[transition].target in TERMINAL):
            self._doubts |= self.gave_up
        why = "went on without it" if transition is None else f"was left ({transition.replace('_', ' ')}) without it"
        return f"step {self.step.id!r} {why}.", []

    def put_back(self, write: FencedWrite) -> None:
        """Keep the outcomes of a write that could not be made, and how they came about, before whatever came after.

        What else it held is made anew when the step is entered again; one of those things is why it failed. Messages
        are kept, in case that the step's code goes on all the same: it believes them posted.
        """
        self._outcomes = {row["id"]: row for row in write.outcomes} | self._outcomes
        self._doubts = {row["id"]: row for row in write.doubts} | self._doubts
        told = [row for row in write.events if not row["moves"]]
        self._events = [{**row, "n": n} for n, row in enumerate(told + self._events)]
        self._messages = [{**row, "n": n} for n, row in enumerate(write.messages + self._messages)]
        self._posting_bytes = sum(len(row["body"]) for row in self._messages)
        self._reused += write.reused
        self._repeated += write.repeated

    def resume_pending(self, write: FencedWrite) -> None:
        """Take back all of a write that was not even tried."""
        self.put_back(write)
        self._records = write.records + self._records
        self._decisions = write.decisions + self._decisions
        self._prompts = write.prompts + self._prompts
        self._artifacts = write.artifacts + self._artifacts
        self._logs = [{**row, "n": n} for n, row in enumerate(write.logs + self._logs)]
        self._progress_told = self._progress_told or write.progress

    def written(self, write: FencedWrite, found: Written) -> None:
        """Take over what a write left behind."""
        self.fence = write.fence
        self.head_seq = found.head_seq
        self.cancel_requested = found.cancel_requested
        self.pause_requested = found.paused or found.switched_off
        self.deadline = _at(found.deadline_left)
        self.last_commit = monotonic()
        self.newest_effect = max([self.newest_effect, *found.intents.values(), *found.messages.values()])
        for row in write.outcomes:
            if row.get("state"):
                self.holds.pop(row["id"], None)
        if write.checkpoint is not None:
            self.state_bytes += len((write.checkpoint.state or "").encode())
            self.leftovers = False
            self.gave_up = {}

    def advance_to(self, step: StepDefinition, *, state_json: str, state: State) -> None:
        """Go on with the next step: nothing of it can be on record yet. `state` was decoded from `state_json`."""
        self.made_plan = self.replan or self.made_plan
        self.step = step
        self.state_json = state_json
        self.cursor = None
        self.attempt, self.failed_attempts, self.entry = 1, 0, 1
        self.resumed = False
        self.effects_through = self.newest_effect
        self.begin_entry(state)

    def _clear_pending(self) -> None:
        self._outcomes = {}
        self._doubts = {}
        self._records = []
        self._messages = []
        self._posting_bytes = 0
        self._decisions = []
        self._prompts = []
        self._artifacts = []
        self._events = []
        self._logs = []
        self._progress_told = None
        self._reused = 0
        self._repeated = 0


def _at(seconds_left: float | None) -> float | None:
    return None if seconds_left is None else monotonic() + seconds_left
