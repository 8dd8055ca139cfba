"""Legacy systems: one call at a time over all runs, in order, sent once, and never again by the engine."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import CallFailed, CallsFailed, NotSent, Refused, RetryLater
from durableops.engine.claim import claim_next
from runs.models import Doubt, IdempotencyRecord, Run, RunEvent, System
from tests.engine.ledger import Ledger, posting, sound
from tests.engine.one_step import effects, one_step, output
from tests.factories import events_of, make_effect, make_run, make_taker, make_tenant, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_call_is_queued_dispatched_sent_and_recorded(engine, commits):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1", amount=4)["id"])
    run = engine.run("one")
    assert (run.state, output(run)) == ("succeeded", "L-1")
    [effect] = effects(run)
    assert (effect.state, effect.system, effect.holds_system, effect.attempts) == ("succeeded", "ledger", False, 1)
    assert (effect.downstream_id, effect.request_summary) == ("L-1", {"amount": 4})
    assert effect.queue_order is not None
    # Its place, its turn, its outcome (which frees the system at once), the checkpoint.
    assert commits.count == 4
    assert System.objects.get().name == "ledger"
    sound(engine)


def test_intent_is_queued_before_and_on_the_wire_while_it_is_sent(engine):
    seen: list[Any] = []

    def look():
        effect: Any = IdempotencyRecord.objects.get()
        seen.append((effect.state, effect.holds_system, now() < effect.send_before < effect.quiet_after))

    post = posting(Ledger(look))
    one_step(lambda run: run.call(post, resource="r1") and None)
    engine.run("one")
    assert seen == [("intended", True, True)]


def test_second_run_waits_for_its_turn_and_is_woken_by_the_first(engine):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1")["id"])
    second: list[Run] = []

    def meanwhile():
        second.append(engine.start("one"))
        engine.another_worker().drain()
        second[0].refresh_from_db()
        assert second[0].state == "waiting"
        assert effects(second[0])[0].state == "queued"

    ledger.script = [meanwhile]
    first = engine.run("one")
    assert first.state == "succeeded"
    second[0].refresh_from_db()
    assert (second[0].state, output(second[0])) == ("succeeded", "L-2")
    assert second[0].wake_cause == "turn"
    assert events_of(second[0]).count("suspend") == 1
    sound(engine)


def test_queue_is_one_for_all_tenants_and_all_tools_of_a_system(engine):
    ledger = Ledger()
    post, pay = posting(ledger), posting(ledger, name="pay")
    one_step(lambda run: run.call(post, resource="r1")["id"])
    one_step(lambda run: run.call(pay, resource="r1")["id"], name="other")
    states = []

    def meanwhile():
        run = engine.start("other", tenant=make_tenant("other"))
        engine.another_worker().drain()
        states.append(Run.objects.get(pk=run.pk).state)

    ledger.script = [meanwhile]
    engine.run("one")
    assert states == ["waiting"]
    assert [run.state for run in Run.objects.all()] == ["succeeded", "succeeded"]


def test_systems_do_not_wait_for_each_other(engine):
    ledger, press = Ledger(), Ledger()
    post, label = posting(ledger), posting(press, name="label", system="press")
    one_step(lambda run: run.call(post, resource="r1")["id"])
    one_step(lambda run: run.call(label, resource="r1")["id"], name="other")
    states = []

    def meanwhile():
        run = engine.start("other")
        engine.another_worker().drain()
        states.append(Run.objects.get(pk=run.pk).state)

    ledger.script = [meanwhile]
    engine.run("one")
    assert states == ["succeeded"]


def test_order_is_that_of_the_places(engine):
    ledger = Ledger()
    post = posting(ledger)

    def a(run: Any):
        return run.call(post, resource=f"r{run.state.n}")["id"]

    one_step(a)

    def meanwhile():
        for n in (2, 3, 4):
            engine.start("one", {"n": n})
            engine.another_worker().drain()

    ledger.script = [meanwhile]
    engine.run("one", {"n": 1})
    engine.drain()
    assert ledger.posted == ["r1", "r2", "r3", "r4"]


def test_call_many_takes_all_places_at_once_and_goes_one_by_one(engine):
    on_wire = []

    def look():
        states = IdempotencyRecord.objects.order_by("queue_order").values_list("resource", "state")
        on_wire.append([state for _, state in states])

    ledger = Ledger(look, look, look)
    post = posting(ledger)
    one_step(lambda run: [r["id"] for r in run.call_many(post, [{"resource": f"r{n}"} for n in range(3)])])
    run = engine.run("one")
    assert output(run) == ["L-1", "L-2", "L-3"]
    assert on_wire == [
        ["intended", "queued", "queued"], ["succeeded", "intended", "queued"], ["succeeded", "succeeded", "intended"],
    ]  # fmt: skip
    sound(engine)


# What is certain and what is not.


@pytest.mark.parametrize(
    "raised", [TimeoutError("no answer"), ValueError("half a line"), RetryLater(3), ConnectionResetError("reset")]
)
def test_unknown_outcome_is_in_doubt_at_once_and_holds_the_queue(engine, raised):
    ledger = Ledger(raised)
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1") and None)
    run = engine.run("one")
    assert run.state == "in_doubt"
    [effect] = effects(run)
    assert (effect.state, effect.holds_system) == ("in_doubt", True)
    assert Doubt.objects.get().effect_id == effect.pk
    assert events_of(run)[-2:] == ["effect_in_doubt", "doubt"]
    if isinstance(raised, TimeoutError):
        assert events_of(run)[-3] == "call_timeout"
    second = engine.run("one")
    assert second.state == "waiting"
    for _ in range(3):
        engine.rounds()
        engine.drain()
    assert ledger.posted == ["r1"]
    sound(engine)


def test_timeout_of_a_call_is_told_with_in_doubt_as_the_next_state(engine):
    post = posting(Ledger(TimeoutError("no answer")))
    one_step(lambda run: run.call(post, resource="r1") and None)
    run = engine.run("one")
    told = RunEvent.objects.get(run=run, event="call_timeout").data
    assert (told["next_state"], told["cause"]) == ("in doubt", "slow_dependency")


def test_refusal_is_an_outcome_and_lets_the_next_one_go(engine):
    ledger = Ledger(Refused("no such account"))
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1")["id"])
    first, second = engine.run("one"), engine.run("one")
    assert (first.state, effects(first)[0].state, second.state) == ("failed", "refused", "succeeded")


def test_call_that_was_certainly_not_sent_is_tried_again_under_the_same_turn(engine):
    ledger = Ledger(NotSent("refused"), NotSent("refused"))
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1")["id"])
    run = engine.run("one")
    assert output(run) == "L-3"
    [effect] = effects(run)
    assert (effect.state, effect.attempts) == ("succeeded", 1)
    assert "effects_repeated" not in events_of(run)


def test_call_that_could_not_be_sent_is_withdrawn_frees_the_system_and_is_queued_anew(engine):
    ledger = Ledger(*[NotSent("refused")] * 3)
    post = posting(ledger)
    states: list[Any] = []

    def a(run: Any):
        try:
            return run.call(post, resource="r1")["id"]
        except CallFailed:
            states.extend(IdempotencyRecord.objects.values_list("state", "holds_system"))
            raise

    one_step(a)
    run = engine.run("one")
    assert states == [("withdrawn", False)]
    assert output(run) == "L-4"
    sound(engine)


def test_step_hears_of_a_doubt_and_may_go_on_without_it(engine):
    from durableops import EffectInDoubt

    ledger = Ledger(TimeoutError("no answer"))
    post = posting(ledger)

    def a(run: Any):
        try:
            run.call(post, resource="r1")
        except EffectInDoubt:
            return "by hand"

    one_step(a)
    run = engine.run("one")
    assert (run.state, output(run), effects(run)[0].state) == ("succeeded", "by hand", "in_doubt")
    sound(engine)


def test_doubt_about_one_of_many_keeps_the_places_of_those_behind_it(engine):
    ledger = Ledger(None, TimeoutError("no answer"))
    post = posting(ledger)
    one_step(lambda run: run.call_many(post, [{"resource": f"r{n}"} for n in range(4)], on_error="return") and None)
    run = engine.run("one")
    assert run.state == "in_doubt"
    assert [effect.state for effect in effects(run)] == ["succeeded", "in_doubt", "queued", "queued"]
    assert ledger.posted == ["r0", "r1"]
    sound(engine)


def test_refusals_among_many_do_not_stop_the_others(engine):
    ledger = Ledger(None, Refused("no"), None)
    post = posting(ledger)

    def a(run: Any):
        try:
            run.call_many(post, [{"resource": f"r{n}"} for n in range(3)])
        except CallsFailed as failed:
            return list(failed.context["errors"].values())

    one_step(a)
    assert output(engine.run("one")) == ["no"]


# Lost workers.


def test_call_whose_worker_was_lost_on_the_wire_is_in_doubt_and_never_sent_again(engine):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1") and None)
    ledger.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    [effect] = effects(run)
    assert (effect.state, effect.holds_system, effect.error_class) == ("in_doubt", True, "worker_lost")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "in_doubt"
    assert ledger.posted == ["r1"]
    sound(engine)


def test_late_answer_of_a_lost_worker_settles_nothing_and_is_told(engine):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1") and None)

    def lose():
        engine.lose_worker()
        return {"id": "L-9"}

    ledger.script = [lose]
    run = engine.start("one")
    engine.worker.drain()
    assert effects(run)[0].state == "in_doubt"
    told = RunEvent.objects.get(run=run, event="late_result_rejected").data
    assert told["outcomes"] == [{"effect": effects(run)[0].pk, "state": "succeeded", "downstream_id": "L-9"}]


def test_call_that_waits_for_its_turn_is_in_no_doubt_when_its_worker_is_lost(engine):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1")["id"])
    held = make_effect(make_run(), safety="legacy", tool="post", system="ledger", state="in_doubt", holds_system=True)
    System.objects.create(name="ledger")
    run = engine.run("one")
    assert run.state == "waiting"
    claim_next(engine.worker.database, taker=make_taker(engine.worker.id))
    engine.lose_worker()
    assert effects(run)[0].state == "queued"
    IdempotencyRecord.objects.filter(pk=held.pk).update(holds_system=False)
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
