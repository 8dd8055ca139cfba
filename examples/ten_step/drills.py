"""The drill `ten-step`: one order through ten steps while its workers are killed and stopped; the scenes, in order.

What is made of it afterwards stands in `verdict`.
"""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

from durableops.engine import commands
from durableops.engine.inbound import Received, send_event
from durableops.engine.start import Started, start
from durableops.upkeep.drills import deliveries, facts
from durableops.upkeep.drills.checks import DrillStopped
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.facts import Interruption, database_time
from durableops.upkeep.drills.processes import Member
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import comes_true, until
from examples.company.crowd import Crowd
from examples.demo.desk_client import DeskClient
from examples.demo.record import effect_state
from examples.desk import ADDRESS_VARIABLE
from examples.ten_step.verdict import Played, judge
from examples.ten_step.workflows import APPROVAL, EVENT, TITLE_THAT_TIMES_OUT
from runs.models import Checkpoint, InboundEvent, Run, Wait
from runs.states import State

KILLED_AFTER = ("price", "confirm", "ship")
"""Steps three, six and nine."""
WORKERS = 3
NO_ANSWER_FOR_SECONDS = 30.0
TITLE_THAT_IS_HELD = "propose *"
REFUSED_WITHIN_SECONDS = 3.0


@drill
class TenStepDrill(Drill):
    """Kill, stop, deliver twice, time out, ask a person, all in company; then compare the record with the desk's."""

    name = "ten-step"

    def __init__(self) -> None:
        self.played = Played()
        self._crowd: Crowd | None = None
        self._desk: DeskClient | None = None
        self._holds: list[int] = []
        """The desk's faults that keep the first and the second request of one call."""
        self._workers = 0

    @property
    def desk(self) -> DeskClient:
        assert self._desk is not None
        return self._desk

    @property
    def crowd(self) -> Crowd:
        assert self._crowd is not None
        return self._crowd

    @property
    def run_id(self) -> UUID:
        assert self.played.run_id is not None
        return self.played.run_id

    def play(self, stage: Stage) -> None:
        self._set(stage)
        self._start_twice(stage)
        self._kill_after("price", stage)
        self._freeze_in_call(stage)
        self._approve(stage)
        self._kill_after("confirm", stage)
        self._send_event_twice(stage)
        self._kill_after("ship", stage)
        until(lambda: facts.is_over(self._run()), wanted="the end of the run")
        self.crowd.leave()

    def judge(self, stage: Stage) -> dict[str, Any]:
        return judge(self.played, stage.checks, self._desk, self._crowd)

    def _set(self, stage: Stage) -> None:
        """The desk, company, upkeep, and three workers that hold still after each step after which they are killed."""
        command = [sys.executable, "-m", "examples.ticket_desk", "--data", str(stage.folder / "desk")]
        member = stage.cast.start("desk", [*command, "--stop-at-end-of-input"], answers=True)
        self._desk = DeskClient(member.answer["url"])
        stage.cast.environment[ADDRESS_VARIABLE] = self.desk.url
        self._crowd = Crowd(name=f"crowd-{stage.seed}-{database_time():%H%M%S%f}")
        self._crowd.come(stage)
        stage.arm(",".join(f"after_checkpoint:{step}=hold" for step in KILLED_AFTER))
        stage.start_upkeep()
        workers = [self._start_worker(stage) for _ in range(WORKERS)]
        stage.await_upkeep()
        stage.await_workers(workers)
        self.desk.set_fault(kind="timeout", title=TITLE_THAT_TIMES_OUT, seconds=NO_ANSWER_FOR_SECONDS)
        self._holds = [self.desk.set_fault(kind="hold", title=TITLE_THAT_IS_HELD, nth=nth) for nth in (1, 2)]

    def _start_worker(self, stage: Stage) -> Member:
        self._workers += 1
        return stage.start_worker(self._workers)

    def _start_twice(self, stage: Stage) -> None:
        """The same start request, twice at once; and bells that nobody asked for."""
        order = f"order-{stage.seed}-{database_time():%H%M%S%f}"
        given = {"order": order, "quantity": stage.random.randint(1, 20)}

        def deliver() -> Started:
            return start("ten-step", given, tenant=tenant(), actor=ACTOR, start_key=order, labels=LABELS)

        first, second = deliveries.twice(deliver)
        deliveries.ring_twice()
        self.played.order, self.played.run_id = order, first.run_id
        made = [started for started in (first, second) if started.created]
        is_one = first.run_id == second.run_id and len(made) == 1
        stage.checks.add("start_twice_is_one_run", is_one, f"two requests at once made {len(made)} run: {first.run_id}")

    def _kill_after(self, step: str, stage: Stage) -> None:
        """SIGKILL the worker that holds the run, parent and child, when the step's checkpoint has been committed."""
        until(lambda: self._is_committed(step), wanted=f"the checkpoint of {step!r}", meanwhile=self._refuse_early_end)
        struck, member = self._holder("killed", stage)
        stage.cast.kill(member)
        self.played.kills.append(struck)
        self._await_recovery(struck)
        self._start_worker(stage)  # a supervisor's work; it waited, so as not to slow what is measured

    def _freeze_in_call(self, stage: Stage) -> None:
        """SIGSTOP the worker while its request is at the desk, until another one has the run; then let it go on."""
        first, second = self._holds
        self._await_held(first)
        struck, member = self._holder("stopped", stage)
        key = self.desk.fault(first)["keys"][0]
        found = effect_state(self.run_id, key)
        stage.checks.equal("intent_before_call", found, ("intended", False), f"while the desk had key {key[:12]}")
        stage.cast.freeze(member)
        self.played.freeze = struck
        self.desk.release(first)  # its answer arrives, and lies there
        self._await_recovery(struck)
        self._await_held(second)
        stage.cast.thaw(member)
        # The other one is in the same call under a newer fence: nothing but the fence tells the two apart.
        comes_true(lambda: facts.refused_late(self.run_id, struck), within=REFUSED_WITHIN_SECONDS)
        self.desk.release(second)

    def _approve(self, stage: Stage) -> None:
        """A person says yes, by the audited verb."""
        wait = self._await_wait("approval", APPROVAL)
        stage.checks.add(
            "waits_for_the_person",
            not self._is_committed("propose"),
            f"{wait.question!r} was asked and nothing went on",
        )
        commands.approve(wait.pk, tenant=tenant(), actor=ACTOR, reason="a drill needs no parts")

    def _send_event_twice(self, stage: Stage) -> None:
        """The awaited event, twice at once, under the sender's own key."""
        self._await_wait("event", EVENT)
        payload = {"parts": stage.random.randint(1, 500)}

        def deliver() -> Received:
            return send_event(
                EVENT, tenant=tenant(), actor=ACTOR, correlation=self.played.order, payload=payload,
                event_key=self.played.order,
            )  # fmt: skip

        answers = deliveries.twice(deliver)
        event = InboundEvent.objects.get(pk=answers[0].event_id)
        seen = (len({answer.event_id for answer in answers}), event.answered_waits, event.duplicates)
        stage.checks.equal("event_twice_is_one_event", seen, (1, 1, 1), "events kept, waits answered, repeats counted")

    def _run(self) -> Run:
        return Run.objects.get(pk=self.run_id)

    def _is_committed(self, step: str) -> bool:
        return Checkpoint.objects.filter(run_id=self.run_id, step_id=step, kind="step").exists()

    def _holder(self, how: str, stage: Stage) -> tuple[Interruption, Member]:
        """Who holds the run, among company. Read just before it is struck."""
        run = Run.objects.select_related("worker").get(pk=self.run_id)
        if run.worker is None:
            raise DrillStopped(f"run {run.pk} is {run.state} at step {run.step_id!r}; wanted a worker that holds it.")
        self.crowd.gather_around(run.worker.pk)
        member = stage.cast.with_pid(run.worker.pid)
        struck = Interruption(how=how, worker_id=run.worker.pk, fence=run.fence, step=run.step_id, at=database_time())
        return struck, member

    def _await_recovery(self, struck: Interruption) -> None:
        until(
            lambda: facts.started_again_at(self.run_id, after=struck.fence),
            wanted=f"another worker to go on with step {struck.step!r}",
            meanwhile=self._refuse_early_end,
        )

    def _await_held(self, fault: int) -> None:
        until(
            lambda: self.desk.fault(fault)["holding"],
            wanted="a request that the desk holds",
            meanwhile=self._refuse_early_end,
        )

    def _await_wait(self, kind: str, name: str) -> Wait:
        waits = Wait.objects.filter(run_id=self.run_id, kind=kind, name=name, state="open", run__state=State.WAITING)
        return until(waits.all().first, wanted=f"the run to wait for {kind} {name!r}", meanwhile=self._refuse_early_end)

    def _refuse_early_end(self) -> None:
        """A run that has ended moves no further: say how it ended instead of waiting in vain."""
        run = self._run()
        if facts.is_over(run) and run.state != State.SUCCEEDED:
            raise DrillStopped(f"the run is {run.state} at step {run.step_id!r}: {run.error_message}")
        if run.state == State.SUCCEEDED:
            raise DrillStopped("the run has succeeded before the drill was through with it.")
