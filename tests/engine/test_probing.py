"""Probes: a tool that can ask settles its own doubts, at once or later, and never guesses."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import DidNotHappen, Happened, Retry, State, Unknown, step, tool, workflow
from durableops.engine import settling
from durableops.engine.settlements import Settlement
from runs.models import AuditEntry, Checkpoint, Doubt, IdempotencyRecord, Run, RunEvent
from tests.factories import events_of, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ONCE = Retry(max_attempts=1)


class Facts(State):
    n: int = 0


@pytest.fixture
def asked(engine):
    """A legacy call without an answer, and the answers its probe gives, in order."""
    found: dict[str, Any] = {"answers": [], "asked": [], "sent": []}

    def probe(call, *, amount: int):
        found["asked"].append((call.resource, call.key, amount))
        answer = found["answers"].pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(safety="legacy", name="post", resource_id="id", retry=ONCE, probe=probe)
    def post(call, *, amount: int):
        found["sent"].append(call.key)
        if len(found["sent"]) == 1:
            raise TimeoutError("no answer")
        return {"id": "L-2"}

    @workflow(name="posting", version=1, state=Facts)
    class Posting:
        @step
        def a(run: Any):
            return run.call(post, resource="r1", amount=40)["id"]

    return found


def due(engine, run: Run) -> Run:
    """Let the time of the next question come."""
    Doubt.objects.filter(settled_at=None).update(probe_at=now() - timedelta(seconds=1))
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    return run


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_probe_is_asked_a_while_after_the_doubt_began_and_settles_it(engine, asked):
    run = engine.run("posting")
    doubt = Doubt.objects.get()
    assert run.state == "in_doubt"
    assert doubt.probe_at is not None
    assert asked["asked"] == []
    asked["answers"] = [Happened({"id": "L-9"})]
    due(engine, run)
    assert (run.state, output(run)) == ("succeeded", "L-9")
    effect = IdempotencyRecord.objects.get()
    assert asked["asked"] == [("r1", effect.key, 40)]
    assert (effect.downstream_id, effect.holds_system, len(asked["sent"])) == ("L-9", False, 1)
    doubt.refresh_from_db()
    assert (doubt.settled_as, doubt.settled_by) == ("happened", "probe")
    assert not AuditEntry.objects.exists()
    told = RunEvent.objects.get(run=run, event="settle", from_state="")
    assert (told.actor, told.data["as"]) == ("probe", "happened")
    assert "probe" in events_of(run)


def test_probe_that_does_not_know_is_asked_again_later_and_later(engine, asked):
    run = engine.run("posting")
    asked["answers"] = [Unknown("their books are closed"), ConnectionError("refused"), "what?"]
    delays = []
    for _ in range(3):
        due(engine, run)
        doubt = Doubt.objects.get()
        assert run.state == "in_doubt"
        assert doubt.probe_at is not None
        delays.append((doubt.probe_at - now()).total_seconds())
        delays[-1] = round(delays[-1])
    assert doubt.probe_attempts == 3
    assert "it wants Happened" in doubt.probe_said
    assert delays == sorted(delays)
    assert delays[0] < delays[2]
    assert len(asked["sent"]) == 1


def test_probe_is_not_asked_before_its_time(engine, asked):
    run = engine.run("posting")
    engine.rounds()
    engine.drain()
    assert asked["asked"] == []
    assert Run.objects.get(pk=run.pk).state == "in_doubt"


def test_what_has_not_happened_is_sent_again_only_once_nobody_can_be_sending_it(engine, asked):
    run = engine.run("posting")
    asked["answers"] = [DidNotHappen("not on the list"), DidNotHappen("not on the list")]
    due(engine, run)
    assert run.state == "in_doubt"
    assert "may still be on its way" in Doubt.objects.get().probe_said
    IdempotencyRecord.objects.update(quiet_after=now() - timedelta(seconds=1))
    due(engine, run)
    assert (run.state, output(run)) == ("succeeded", "L-2")
    assert len(set(asked["sent"])) == 1
    doubt = Doubt.objects.get()
    assert (doubt.settled_as, doubt.evidence) == ("did_not", "not on the list")
    assert IdempotencyRecord.objects.get().attempts == 2


def test_person_who_is_quicker_than_the_probe_wins(engine, asked):
    run = engine.run("posting")

    def meanwhile():
        doubt = Doubt.objects.select_related("tenant").get()
        said = Settlement(how="happened", downstream_id="by hand")
        # The run is in a worker's hand: settling it waits for nothing and wakes nobody.
        settling.settle(doubt.pk, tenant=doubt.tenant, actor="ann", reason="asked", settlement=said)
        return Happened({"id": "L-9"})

    asked["answers"] = [meanwhile]
    due(engine, run)
    assert (run.state, output(run)) == ("succeeded", "by hand")
    assert Doubt.objects.get().settled_by == "ann"


def test_lost_worker_is_followed_by_the_probe_at_once(engine):
    answers: list[Any] = [Happened({"id": "L-1"})]

    @tool(safety="legacy", name="post", probe=lambda call: answers.pop(0))
    def post(call):
        engine.lose_worker()
        return {"id": "L-1"}

    @workflow(name="posting", version=1, state=Facts)
    class Posting:
        @step
        def a(run: Any):
            return run.call(post, resource="r1")["id"]

    run = engine.start("posting")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "L-1")


def test_keyed_call_past_its_window_is_settled_by_its_probe(engine):
    async def probe(call):
        return Happened({"id": "K-1"}, "K-1")

    @tool(safety="keyed", name="send", key_window=timedelta(microseconds=1), retry=ONCE, probe=probe)
    async def send(call):
        raise TimeoutError("no answer")

    @workflow(name="sending", version=1, state=Facts)
    class Sending:
        @step(retry=Retry(max_attempts=2, first_delay=0))
        async def a(run: Any):
            return (await run.call(send, resource="r1"))["id"]

    run = engine.run("sending")
    assert run.state == "in_doubt"
    due(engine, run)
    assert (run.state, output(run)) == ("succeeded", "K-1")


def test_result_that_cannot_be_kept_settles_nothing(engine, asked):
    run = engine.run("posting")
    asked["answers"] = [Happened({"id": float("nan")})]
    due(engine, run)
    assert run.state == "in_doubt"
    assert "cannot be recorded" in Doubt.objects.get().probe_said
