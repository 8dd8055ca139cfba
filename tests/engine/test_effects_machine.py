"""Runs, crashes, timeouts, late workers, relays and people in any order, against a model of the other side.

All five classes. After each rule the promises are checked: nothing is done twice, nothing that is on record as done is
missing, nothing was sent that the record does not know of, and whatever is not known has a doubt that says so. People
who settle say what is so, or give up. EFFECTS_MACHINE=long plays it for minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from durableops import EffectGivenUp, Retry, State, failpoints, step, tool, workflow
from durableops.authoring.registry import Registry
from durableops.engine import bell, commands, messages, settling
from durableops.engine.burial import declare_ended
from durableops.engine.database import Database
from durableops.engine.relaying.relay import Relay
from durableops.engine.settlements import Settlement
from durableops.errors import DurableOpsError
from durableops.upkeep.invariants.report import examine
from durableops.upkeep.outbox import free_lanes
from runs import doubting
from runs.models import Doubt, IdempotencyRecord, OutboxDestination, OutboxLane, OutboxMessage, Run
from runs.states import TERMINAL
from tests.engine.effects_world import BEHAVIOURS, OF_MESSAGES, Killed, World
from tests.factories import make_due, make_tenant, now
from tests.fixtures.cleaning import delete_everything
from tests.fixtures.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

LONG = os.environ.get("EFFECTS_MACHINE") == "long"
PROFILE = settings(
    max_examples=300 if LONG else 7,
    stateful_step_count=60 if LONG else 16,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if LONG else [Phase.generate],
    print_blob=True,
)
CLASSES = ("read", "local", "keyed", "outbox", "legacy")
POINTS = ("before_intent", "after_intent", "after_answer", "before_checkpoint", "after_checkpoint")
WHY: dict[str, Any] = {"actor": "ann", "reason": "a machine said so"}
AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
PATIENT = Retry(max_attempts=50, first_delay=0.0, jitter=0.0)

SAID = ("", "truth", "give_up", "compensate")
"""What a person says of a doubt: how it is, or that it is not worth finding out."""

CALLED = ("read", "local", "keyed", "legacy")
"""Whose requests leave from the step."""
scripts = st.fixed_dictionaries(
    {safety: st.tuples(st.sampled_from(BEHAVIOURS), st.sampled_from(BEHAVIOURS)) for safety in CALLED}
)
"""Each class has its own: what goes wrong with one keeps no other from going wrong too."""


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

    @tool(safety="read", name="machine.read", timeout=5, retry=AT_ONCE)
    def read(call):
        return world.look(call)

    @tool(safety="legacy", name="machine.legacy", system="ledger", timeout=5, retry=AT_ONCE, resource_id="id")
    def legacy(call):
        return world.serve(call, deduplicates=False)

    @tool(safety="outbox", name="machine.outbox", retry=AT_ONCE, resource_id="id")
    def outbox(call):
        return world.take(call)

    for one in (keyed, local, read, legacy, outbox):
        declare_for(one)


def declare_for(one: Any) -> None:
    def act(run):
        name = run.state.name
        if run.state.many:
            run.call_many(one, [{"resource": f"{name} {n}"} for n in range(3)], on_error="return")
        else:
            for n in range(2):
                with suppress(EffectGivenUp):
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
        self.world.while_relay_stalled = self.lose_the_relay
        self.relay: Relay | None = None
        self.lost_relays: list[Relay] = []
        self.said_meanwhile = ""

    def another_relay(self) -> Relay:
        made = Relay(concurrency=1, name="relay of the machine")
        made.begin()
        return made

    # What happens.

    @initialize(many=st.lists(st.booleans(), min_size=len(CLASSES), max_size=len(CLASSES)))
    def begin(self, many: list[bool]) -> None:
        """There is a run of every class from the first moment."""
        for safety, each in zip(CLASSES, many, strict=True):
            self.start(safety, each, twice=False)

    @rule(safety=st.sampled_from(CLASSES), many=st.booleans(), twice=st.booleans())
    def start(self, safety: str, many: bool, twice: bool) -> None:
        """Somebody starts a run, perhaps with a client that asks twice."""
        name = f"{safety} {len(self.runs)}"
        for _ in range(1 + twice):
            run = self.engine.start(f"machine-{safety}", {"name": name, "many": many}, start_key=name)
        self.runs.append(run)

    @rule(script=scripts, kill_at=st.sampled_from(("", *POINTS)), said=st.sampled_from(SAID))
    def work(self, script: dict[str, Sequence[str]], kill_at: str, said: str) -> None:
        """A worker takes what there is. Some of its calls go wrong, and it may die. While a sender stands still, its
        worker is declared dead and somebody may settle what it left."""
        for safety, behaviours in script.items():
            self.world.scripts[safety].extend(behaviours)
        self.world.kill_at = kill_at
        self.said_meanwhile = said
        while not self.drained():
            self.engine.lose_worker()
        self.world.scripts.clear()
        self.world.kill_at = ""

    @rule(script=scripts, said=st.sampled_from(SAID))
    def work_again(self, script: dict[str, Sequence[str]], said: str) -> None:
        """The same, after bells that nobody asked for: what goes wrong is tried more often than anything else."""
        bell.ring(3)
        self.work(script, "", said)

    def drained(self) -> bool:
        """Whether the worker lived to see that there is nothing more to do."""
        try:
            self.engine.worker.drain()
        except Killed:
            return False
        return True

    @rule()
    def let_time_pass(self) -> None:
        """Upkeep makes its round, and whatever is due comes: also the time after which no late sender can exist."""
        self.world.arrive()
        for run in self.runs:
            make_due(run)
        past = now() - timedelta(seconds=1)
        IdempotencyRecord.objects.filter(state="in_doubt").update(quiet_after=past, send_before=past)
        OutboxLane.objects.update(due_at=now())
        OutboxDestination.objects.filter(open_until__isnull=False).update(open_until=now())
        self.engine.rounds()

    @precondition(lambda self: OutboxMessage.objects.filter(state="pending").exists())
    @rule(script=st.lists(st.sampled_from(OF_MESSAGES), max_size=3))
    def deliver(self, script: list[str]) -> None:
        """A relay delivers what is due. Some of it goes wrong, and it may lose its row to another relay."""
        self.relay = self.relay or self.another_relay()
        self.world.script_of_relay.extend(script)
        self.relay.drain()
        self.world.script_of_relay.clear()
        if self.relay in self.lost_relays:
            self.relay = None

    @precondition(lambda self: Doubt.objects.filter(settled_at=None).exists())
    @rule(data=st.data(), said=st.sampled_from(SAID[1:]))
    def somebody_settles(self, data: Any, said: str) -> None:
        """A person says what became of a call; what is refused, because it may still be sent, changes nothing."""
        found = list(Doubt.objects.filter(settled_at=None).select_related("effect").order_by("pk"))
        self.settle(data.draw(st.sampled_from(found)), said)

    @precondition(lambda self: OutboxMessage.objects.filter(state="poisoned").exists())
    @rule(data=st.data(), verb=st.sampled_from((messages.retry_message, messages.skip_message)))
    def somebody_tends_the_outbox(self, data: Any, verb: Any) -> None:
        """A person has a message that nobody took tried again, or gives it up."""
        message = data.draw(st.sampled_from(list(OutboxMessage.objects.filter(state="poisoned").order_by("pk"))))
        verb(message.pk, tenant=self.engine.tenant, **WHY)

    def settle(self, doubt: Doubt, said: str) -> None:
        resource = doubt.effect.resource
        happened = self.world.done[resource] and not self.world.people_lie
        how = said if said != "truth" else "happened" if happened else "did_not"
        settlement = Settlement(how=how, downstream_id="seen there" if how == "happened" else "")
        with suppress(DurableOpsError):
            settling.settle(doubt.pk, tenant=self.engine.tenant, settlement=settlement, **WHY)
            self.world.settled[resource] += 1

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), verb=st.sampled_from(("pause", "resume", "cancel")))
    def somebody_steers(self, data: Any, verb: str) -> None:
        """A person pauses, resumes or cancels; what is refused changes nothing."""
        run = data.draw(st.sampled_from(self.runs))
        with suppress(DurableOpsError):
            getattr(commands, verb)(run.pk, tenant=self.engine.tenant, **WHY)

    def lose_the_worker(self) -> None:
        """While a sender stands still, it is declared dead and another one goes on with its run."""
        self.world.while_stalled = lambda: None
        try:
            self.engine.lose_worker()
            if self.said_meanwhile:
                for doubt in Doubt.objects.filter(settled_at=None).select_related("effect"):
                    self.settle(doubt, self.said_meanwhile)
            while not self.drained():
                self.engine.lose_worker()
        finally:
            self.world.while_stalled = self.lose_the_worker

    def lose_the_relay(self) -> None:
        """While a relay stands still it is declared dead, its lanes are freed, and another one delivers."""
        self.world.while_relay_stalled = lambda: None
        stalled, other, database = self.relay, self.another_relay(), Database(name="machine")
        assert stalled is not None
        assert stalled._life is not None
        try:
            with database.transaction() as cursor:
                declare_ended(cursor, stalled._life.id, why="its counter stood still")
            free_lanes(database)
            other.drain()
        finally:
            other.end()
            database.close()
            self.lost_relays.append(stalled)
            self.world.while_relay_stalled = self.lose_the_relay

    # What must hold.

    @invariant()
    def nothing_is_done_twice(self) -> None:
        self.world.count_notes()
        assert [what for what, count in self.world.done.items() if count > 1] == []

    @invariant()
    def nothing_is_sent_by_whoever_stood_still_while_it_was_settled(self) -> None:
        assert self.world.sent_after_settled == []

    @invariant()
    def the_record_knows_what_was_sent(self) -> None:
        # Of reads only what they returned is kept: asking again changes nothing.
        effects = {effect.resource: effect for effect in self.effects()}
        for resource, count in self.world.requests.items():
            if resource.startswith("read"):
                continue
            effect = effects[resource]
            assert self.world.keys[resource] == {effect.key}
            assert count <= effect.attempts, f"{resource} was sent {count} times, {effect.attempts} are on record"

    @invariant()
    def what_is_on_record_as_done_was_done(self) -> None:
        for effect in self.effects():
            done = self.world.done[effect.resource] and effect.safety != "read"
            assert effect.state != "succeeded" or self.world.done[effect.resource], f"{effect.resource} was not done"
            assert effect.state not in ("withdrawn", "refused") or not done, f"{effect.resource} is {effect.state}"

    @invariant()
    def what_is_not_known_is_in_doubt_and_what_is_in_doubt_is_listed(self) -> None:
        listed = set(Doubt.objects.filter(settled_at=None).values_list("effect_id", flat=True))
        assert listed == {effect.pk for effect in self.effects() if effect.state == "in_doubt"}

    @invariant()
    def messages_left_as_often_as_is_told(self) -> None:
        for message in OutboxMessage.objects.select_related("effect"):
            assert self.world.requests[message.effect.resource] <= message.sendings

    def effects(self) -> list[IdempotencyRecord]:
        return list(IdempotencyRecord.objects.all())

    def teardown(self) -> None:
        """In the end every run comes to an end, with everything it wanted done once."""
        self.world.kill_at = ""
        try:
            self.come_to_an_end()
        finally:
            self.close()

    def close(self) -> None:
        for relay in filter(None, (self.relay, *self.lost_relays)):
            relay.stop()
            relay.end()
        self.engine.close()

    def come_to_an_end(self) -> None:
        for run in self.runs:
            with suppress(DurableOpsError):
                commands.resume(run.pk, tenant=self.engine.tenant, **WHY)
        for _ in range(60):
            self.let_time_pass()
            for doubt in Doubt.objects.filter(settled_at=None).select_related("effect"):
                self.settle(doubt, "truth")
            if not self.engine.drain() and not Doubt.objects.filter(settled_at=None).exists():
                break
        for message in OutboxMessage.objects.filter(state="poisoned"):
            messages.retry_message(message.pk, tenant=self.engine.tenant, **WHY)
        self.let_time_pass()
        self.deliver([])
        self.nothing_is_done_twice()
        self.the_record_knows_what_was_sent()
        self.what_is_on_record_as_done_was_done()
        assert not OutboxMessage.objects.exclude(state__in=("delivered", "skipped")).exists()
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


@pytest.fixture
def machine(world: World) -> Iterator[Machine]:
    """One world to be played by hand."""
    made = type("Played", (Machine,), {"world": world})()
    yield made
    made.close()


def test_the_machine_notices_a_downstream_that_breaks_its_promise(machine: Machine, world: World):
    world.forgets = True
    machine.start("keyed", many=False, twice=False)
    machine.work({"keyed": ["lost_answer"]}, "", "")

    with pytest.raises(AssertionError, match="keyed 0 0"):
        machine.nothing_is_done_twice()


def test_the_machine_notices_a_person_who_says_that_what_happened_did_not(machine: Machine, world: World):
    machine.start("legacy", many=False, twice=False)
    machine.work({"legacy": ["lost_answer"]}, "", "")
    machine.let_time_pass()
    world.people_lie = True
    machine.settle(Doubt.objects.get(), "truth")
    machine.work({}, "", "")

    with pytest.raises(AssertionError, match="legacy 0 0"):
        machine.nothing_is_done_twice()


def let_people_settle_what_may_still_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """People may say what became of it before its sender, who stands still, has tried."""
    monkeypatch.setattr(settling, "whether_unsendable", lambda cursor, doubt: "")


def take_anybodys_word_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """People may say that something did not happen while it is still under way."""
    monkeypatch.setattr(settling, "whether_quiet", lambda cursor, effect: "")


def take_what_was_left_for_unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lost worker left on the wire counts as not sent."""
    honest = doubting._LEAVE
    broken = honest.replace("ELSE 'in_doubt' END", "ELSE 'withdrawn' END")
    broken = broken.replace("CASE WHEN e.state = 'queued' THEN now() END", "now()")
    monkeypatch.setattr(doubting, "_LEAVE", broken.replace("SET state =", "SET holds_system = false, state ="))


@pytest.mark.parametrize(
    ("breaks", "behaviour", "said"),
    [
        (let_people_settle_what_may_still_be_sent, "stalls", "give_up"),
        (take_anybodys_word_at_once, "late", "truth"),
        (take_what_was_left_for_unsent, "dies", ""),
    ],
)
def test_the_machine_notices_an_engine_that_breaks_a_promise(machine: Machine, world: World, monkeypatch, breaks,
                                                             behaviour, said):  # fmt: skip
    def play_it() -> None:
        machine.start("legacy", many=False, twice=False)
        machine.work({"legacy": (behaviour,)}, "", said)
        if said == "truth":
            machine.settle(Doubt.objects.get(settled_at=None), said)
        machine.work({}, "", "")
        machine.let_time_pass()
        machine.nothing_is_done_twice()
        machine.nothing_is_sent_by_whoever_stood_still_while_it_was_settled()

    play_it()
    machine.come_to_an_end()
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match="legacy 1 0"):
        play_it()
