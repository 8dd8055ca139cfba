"""The drill `deploy`: the second and the third version of a workflow come while runs of the older ones are mid-flight.

Old and new workers are alive side by side, then the old ones are asked to stop. What is made of it stands in `verdict`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from durableops.checkpoints import codec
from durableops.engine import commands, reshaping, reviewing
from durableops.engine.inbound import send_event
from durableops.engine.start import start
from durableops.upkeep.drills.checks import DrillStopped
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.facts import database_time
from durableops.upkeep.drills.processes import Member
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from examples.demo.desk_client import DeskClient
from examples.desk import ADDRESS_VARIABLE as DESK_VARIABLE
from examples.five_classes.people import settle_what_can_be
from examples.ledger import ADDRESS_VARIABLE as LEDGER_VARIABLE
from examples.ledger_desk.client import LedgerClient
from examples.rolling.fates import Plan, plans
from examples.rolling.verdict import Played, judge
from examples.rolling.workflows import CODE_VARIABLE, EVERY_CODE, GO, INSPECTED, NAME, WAITS_AT
from runs.models import Checkpoint, Doubt, IdempotencyRecord, Review, Run, Wait
from runs.states import TERMINAL, State

REVIEWER = "somebody who reviews"
WITHIN_SECONDS = 120.0
LOOK_EVERY_SECONDS = 0.1
SILENT_SECONDS = 30.0


@drill
class DeployDrill(Drill):
    """Two deploys over runs in every state, then every run to its end; compare the record with what was sent."""

    name = "deploy"

    def __init__(self) -> None:
        self.played = Played()
        self._desk: DeskClient | None = None
        self._ledger: LedgerClient | None = None
        self._workers = 0

    @property
    def ledger(self) -> LedgerClient:
        assert self._ledger is not None
        return self._ledger

    def play(self, stage: Stage) -> None:
        self._set(stage)
        old = self._deploy(stage, "1")
        self._start(stage)
        new = self._deploy(stage, "2")
        self._side_by_side()
        self._stop(stage, old)
        self._under_the_second(stage)
        newest = self._deploy(stage, "3")
        self._event(INSPECTED, self._with("migrates"))
        self._await_end(self._with("migrates"))
        self._stop(stage, new)
        self._review(stage)
        self._await_end(list(self.played.runs))
        stage.checks.add("newest_workers_were_needed", bool(newest), f"{len(newest)} of them")

    def judge(self, stage: Stage) -> dict[str, Any]:
        return judge(self.played, stage.checks, self._desk, self._ledger)

    def _set(self, stage: Stage) -> None:
        self._desk = DeskClient(self._serve(stage, "ticket_desk", DESK_VARIABLE))
        self._ledger = LedgerClient(self._serve(stage, "ledger_desk", LEDGER_VARIABLE))
        settings = {
            "DURABLEOPS_CONCURRENCY": "16",
            "DURABLEOPS_VERSION_PATIENCE_SECONDS": "1",
            "DURABLEOPS_UPKEEP_RELAY_CONCURRENCY": "0",
            CODE_VARIABLE: EVERY_CODE,
        }
        stage.cast.environment.update(settings)
        stage.start_upkeep()
        stage.await_upkeep()

    def _serve(self, stage: Stage, service: str, variable: str) -> str:
        command = [sys.executable, "-m", f"examples.{service}", "--data", str(stage.folder / service)]
        member = stage.cast.start(service, [*command, "--stop-at-end-of-input"], answers=True)
        url: str = member.answer["url"]
        stage.cast.environment[variable] = url
        return url

    def _deploy(self, stage: Stage, code: str) -> list[Member]:
        """Start workers that have this version alone, beside those that are there."""
        stage.cast.environment[CODE_VARIABLE] = code
        members = []
        for _ in range(1 if stage.short else 2):
            self._workers += 1
            members.append(stage.start_worker(self._workers))
        stage.await_workers(members)
        return members

    def _stop(self, stage: Stage, members: list[Member]) -> None:
        """As a deploy does: ask, and wait until they have handed back what they had."""
        for member in members:
            member.process.terminate()
        until(
            lambda: all(member.process.poll() is not None for member in members),
            wanted="the end of the older workers", within=WITHIN_SECONDS, every=LOOK_EVERY_SECONDS,
        )  # fmt: skip
        stage.checks.equal(
            "older_workers_stop_when_asked", {member.process.returncode for member in members}, {0}, "exit status"
        )

    def _start(self, stage: Stage) -> None:
        """Start every run under the first version, and wait until each is in the middle of what its kind says."""
        prefix = f"{stage.seed}-{database_time():%H%M%S%f}"
        every = list(plans(prefix, short=stage.short))
        doubted = [plan for plan in every if plan.kind == "doubt"]
        for plan in doubted:
            self.ledger.set_fault(kind="timeout", when="after", title=f"{plan.name} load", seconds=SILENT_SECONDS)
            self._begin(plan)
        self._until("a call that is in doubt", lambda: Doubt.objects.filter(run__in=self.played.runs).exists())
        for plan in every:
            if plan not in doubted:
                self._begin(plan)
        for run_id, plan in self.played.runs.items():
            self._until(f"{plan.name} in the middle", lambda run_id=run_id, plan=plan: _is_mid_flight(run_id, plan))
        for run_id in self._of("paused"):
            commands.pause(run_id, tenant=tenant(), actor=ACTOR, reason="a drill")
        self.played.note_states()

    def _begin(self, plan: Plan) -> None:
        given = {"name": plan.name, "kind": plan.kind}
        made = start(NAME, given, tenant=tenant(), actor=ACTOR, labels=LABELS, version=1)
        self.played.runs[made.run_id] = plan

    def _side_by_side(self) -> None:
        """Some runs are woken while workers of both versions live: those of their own have them to the end."""
        continues = self._with("continues")
        self._event(GO, continues)
        self._resume(continues)
        self._await_end(continues)

    def _under_the_second(self, stage: Stage) -> None:
        """The workers of the first version are gone: what moves now is migrated. Some end, some stay in the middle."""
        moving = [*self._with("migrates"), *self._with("stops_at_three")]
        self._event(GO, moving)
        self._resume(moving)
        self._until("every doubt to be settled", self._settled)
        self._until(
            "the runs that move to wait under the second version",
            lambda: _wait_for_inspection(moving),
            meanwhile=lambda: _refuse_review(moving),
        )

    def _settled(self) -> bool:
        settle_what_can_be(self.ledger)
        return not Doubt.objects.filter(run__in=self.played.runs, settled_at=None).exists()

    def _review(self, stage: Stage) -> None:
        """Nobody has a version for the rest. Half of them are woken and parked, half listed while they wait."""
        woken, waiting = self._with("stops_at_three"), self._with("stops_at_one")
        self._event(INSPECTED, woken)
        stopped = [*woken, *waiting]
        self._until("a finding about each run that stopped", lambda: _found(stopped))
        groups = Review.objects.filter(run__in=stopped, closed_at=None).values("fingerprint").distinct().count()
        stage.checks.add("findings_are_grouped", 0 < groups <= len(stopped) / 2, f"{len(stopped)} in {groups} groups")
        self._until(
            "the woken ones to be parked",
            lambda: Run.objects.filter(pk__in=woken, state=State.IN_REVIEW).count() == len(woken),
        )
        for number, run_id in enumerate(stopped):
            self._decide(run_id, goes_on=number % 2 == 0)

    def _decide(self, run_id: UUID, *, goes_on: bool) -> None:
        who: dict[str, Any] = {"tenant": tenant(), "actor": REVIEWER, "reason": "a drill"}
        run = Run.objects.get(pk=run_id)
        if not goes_on:
            reviewing.reject(run_id, **who, done="keep")
            self.played.rejected.add(run_id)
            return
        text = Checkpoint.objects.values_list("state", flat=True).get(run=run, seq=run.state_seq)
        kept = codec.loads(text or "{}")
        state = {"origin": {"by": REVIEWER}, **{name: kept[name] for name in ("name", "kind", "facts", "trail")}}
        reshaping.edit(run_id, **who, state=state, step_id="finish", version=3)
        if run.paused:
            commands.resume(run_id, **who)

    def _event(self, name: str, runs: Iterable[UUID]) -> None:
        for run_id in runs:
            plan = self.played.runs[run_id]
            if name == INSPECTED or plan.is_awaiting_go:
                send_event(name, tenant=tenant(), actor=ACTOR, correlation=plan.name)

    def _resume(self, runs: Iterable[UUID]) -> None:
        for run_id in runs:
            if self.played.runs[run_id].kind == "paused":
                commands.resume(run_id, tenant=tenant(), actor=ACTOR, reason="a drill")

    def _with(self, fate: str) -> list[UUID]:
        return [run_id for run_id, plan in self.played.runs.items() if plan.fate == fate]

    def _of(self, kind: str) -> list[UUID]:
        return [run_id for run_id, plan in self.played.runs.items() if plan.kind == kind]

    def _await_end(self, runs: list[UUID]) -> None:
        self._until(
            f"the end of {len(runs)} runs",
            lambda: not Run.objects.filter(pk__in=runs).exclude(state__in=TERMINAL).exists(),
            meanwhile=lambda: _refuse_bad_end(runs),
        )

    def _until(self, wanted: str, look: Any, *, meanwhile: Any = None) -> None:
        until(look, wanted=wanted, within=WITHIN_SECONDS, every=LOOK_EVERY_SECONDS, meanwhile=meanwhile)


def _is_mid_flight(run_id: UUID, plan: Plan) -> bool:
    here = Run.objects.filter(pk=run_id, step_id="load")
    if plan.kind == "busy":
        return here.filter(cursor__gte=1).exists()
    if plan.kind == "pages":
        here = here.filter(cursor=WAITS_AT)
    if plan.kind in ("doubt", "pending"):
        state = "in_doubt" if plan.kind == "doubt" else "queued"
        return IdempotencyRecord.objects.filter(run_id=run_id, state=state).exists()
    return here.filter(state=State.WAITING).exists()


def _wait_for_inspection(runs: list[UUID]) -> bool:
    waits = Wait.objects.filter(run__in=runs, name=INSPECTED, state="open", run__state=State.WAITING)
    return waits.count() == len(runs)


def _refuse_review(runs: list[UUID]) -> None:
    parked = Run.objects.filter(pk__in=runs, state=State.IN_REVIEW).first()
    if parked is not None:
        raise DrillStopped(f"run {parked.pk} was to be migrated and is parked: {parked.error_message}")


def _found(runs: list[UUID]) -> bool:
    return Review.objects.filter(run__in=runs, closed_at=None).count() == len(runs)


def _refuse_bad_end(runs: list[UUID]) -> None:
    bad = Run.objects.filter(pk__in=runs, state__in=TERMINAL - {State.SUCCEEDED, State.CANCELLED}).first()
    if bad is not None:
        raise DrillStopped(f"run {bad.pk} is {bad.state} at step {bad.step_id!r}: {bad.error_message}")
