"""Runs, crashes, timeouts, late workers and people in any order, against a model of the other side.

After each rule the promises are checked: nothing is done twice, nothing that is on record as done is missing, and
nothing was sent that the record does not know of. EFFECTS_MACHINE=long plays it for minutes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from durableops import Retry, State, failpoints, step, tool, workflow
from durableops.authoring.registry import Registry
from durableops.engine import commands
from durableops.engine.database import Database
from durableops.errors import DurableOpsError
from durableops.upkeep.invariants.report import examine
from runs.models import IdempotencyRecord, Run
from runs.states import TERMINAL
from tests.engine.effects_world import BEHAVIOURS, Killed, World
from tests.factories import make_due, make_tenant
from tests.fixtures.cleaning import delete_everything
from tests.fixtures.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

LONG = os.environ.get("EFFECTS_MACHINE") == "long"
PROFILE = settings(
    max_examples=300 if LONG else 12,
    stateful_step_count=60 if LONG else 25,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    print_blob=True,
)
CLASSES = ("local", "keyed")
POINTS = ("before_intent", "after_intent", "after_answer", "before_checkpoint", "after_checkpoint")
AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
PATIENT = Retry(max_attempts=50, first_delay=0.0, jitter=0.0)

scripts = st.lists(st.sampled_from(BEHAVIOURS), max_size=4)


class Facts(State):
    name: str
    many: bool = False
    called: int = 0


def declare(world: World) -> None:
    """A workflow of two steps for each class: calls, then one more call that must not be entangled with them."""

    @tool(safety="keyed", name="machine.keyed", timeout=5, retry=AT_ONCE, resource_id="id")
    def keyed(call):
        return world.serve(call, deduplicates=True)

    @tool(safety="local", name="machine.local", retry=AT_ONCE)
    def local(call):
        return world.note(call)

    for one in (keyed, local):
        declare_for(one)


def declare_for(one: Any) -> None:
    def act(run):
        name = run.state.name
        if run.state.many:
            run.call_many(one, [{"resource": f"{name} {n}"} for n in range(3)])
        else:
            for n in range(2):
                run.call(one, resource=f"{name} {n}")
        run.state.called += 1

    def then(run):
        run.call(one, resource=f"{run.state.name} then")
        run.state.called += 1

    steps = {"act": step(id="act", retry=PATIENT)(act), "then": step(id="then", retry=PATIENT)(then)}
    workflow(name=f"machine-{one.safety}", version=1, state=Facts, max_recoveries=1000)(type("Machine", (), steps))


class Machine(RuleBasedStateMachine):
    """One world, one tenant; workers come and go."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        delete_everything()
        self.engine = Engine(make_tenant())
        self.runs: list[Run] = []
        self.world.begin_anew()
        self.world.while_stalled = self.lose_the_worker

    # What happens.

    @rule(safety=st.sampled_from(CLASSES), many=st.booleans(), twice=st.booleans())
    def start(self, safety: str, many: bool, twice: bool) -> None:
        """Somebody starts a run, perhaps with a client that asks twice."""
        name = f"{safety} {len(self.runs)}"
        for _ in range(1 + twice):
            run = self.engine.start(f"machine-{safety}", {"name": name, "many": many}, start_key=name)
        self.runs.append(run)

    @rule(script=scripts, kill_at=st.sampled_from(("", *POINTS)))
    def work(self, script: list[str], kill_at: str) -> None:
        """A worker takes what there is. Some of its calls go wrong, and it may die."""
        self.world.script.extend(script)
        self.world.kill_at = kill_at
        try:
            self.engine.drain()
        except Killed:
            self.engine.lose_worker()
        self.world.script.clear()
        self.world.kill_at = ""

    @rule()
    def let_time_pass(self) -> None:
        """Upkeep makes its round, and whatever is due comes."""
        for run in self.runs:
            make_due(run)
        self.engine.rounds()

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), verb=st.sampled_from(("pause", "resume", "cancel")))
    def somebody_steers(self, data: Any, verb: str) -> None:
        """A person pauses, resumes or cancels; what is refused changes nothing."""
        run = data.draw(st.sampled_from(self.runs))
        with suppress(DurableOpsError):
            getattr(commands, verb)(run.pk, tenant=self.engine.tenant, actor="ann", reason="a machine said so")

    def lose_the_worker(self) -> None:
        """While a sender stands still, it is declared dead and another one goes on with its run."""
        self.world.while_stalled = lambda: None
        try:
            self.engine.lose_worker()
            self.engine.worker.drain()
        finally:
            self.world.while_stalled = self.lose_the_worker

    # What must hold.

    @invariant()
    def nothing_is_done_twice(self) -> None:
        self.world.count_notes()
        assert [what for what, count in self.world.done.items() if count > 1] == []

    @invariant()
    def the_record_knows_what_was_sent(self) -> None:
        effects = {effect.resource: effect for effect in self.effects()}
        for resource, count in self.world.requests.items():
            effect = effects[resource]
            assert self.world.keys[resource] == {effect.key}
            assert count <= effect.attempts, f"{resource} was sent {count} times, {effect.attempts} are on record"

    @invariant()
    def what_is_on_record_as_done_was_done(self) -> None:
        for effect in self.effects():
            done = self.world.done[effect.resource]
            assert effect.state != "succeeded" or done, f"{effect.resource} is on record as done and was not"
            assert effect.state not in ("withdrawn", "refused") or not done, f"{effect.resource} is {effect.state}"

    def effects(self) -> list[IdempotencyRecord]:
        return list(IdempotencyRecord.objects.all())

    def teardown(self) -> None:
        """In the end every run comes to an end, with everything it wanted done once."""
        try:
            self.come_to_an_end()
        finally:
            self.engine.close()

    def come_to_an_end(self) -> None:
        for run in self.runs:
            with suppress(DurableOpsError):
                commands.resume(run.pk, tenant=self.engine.tenant, actor="ann", reason="it is over")
        for _ in range(60):
            self.let_time_pass()
            if not self.engine.drain():
                break
        self.nothing_is_done_twice()
        self.the_record_knows_what_was_sent()
        self.what_is_on_record_as_done_was_done()
        for run in self.runs:
            run.refresh_from_db()
            assert run.state in TERMINAL, f"{run.pk} is {run.state}: {run.error_message}"
        self.ask_the_invariants()

    def ask_the_invariants(self) -> None:
        database = Database(name="machine")
        try:
            found = examine(database, newest_runs=max(1, len(self.runs)))
        finally:
            database.close()
        assert found.broken == []


@pytest.fixture
def world(own_registry: Registry, clean_queue: redis.Redis, media: str, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    declare(made)
    monkeypatch.setattr(failpoints, "reach", made.reach)
    return made


def play(world: World, profile: settings) -> None:
    run_state_machine_as_test(type("Played", (Machine,), {"world": world}), settings=profile)


def test_nothing_is_sent_twice_and_nothing_is_lost_whatever_happens_in_whatever_order(world: World):
    play(world, PROFILE)


def test_the_machine_notices_a_downstream_that_breaks_its_promise(world: World):
    world.forgets = True

    with pytest.raises(AssertionError, match="keyed"):
        play(world, settings(PROFILE, max_examples=50, print_blob=False, phases=[Phase.generate]))
