"""Calls that come to nothing, or to nobody knows what: doubt, refusals, failures, and what is not sent any more."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from durableops import (
    CallFailed,
    CallsFailed,
    CallTimeout,
    Fatal,
    NotSent,
    Page,
    Refused,
    Retry,
    RetryLater,
    clock,
    tool,
)
from durableops.conf import override_conf
from durableops.engine import commands
from runs.models import Doubt, IdempotencyRecord, Run, RunEvent
from tests.engine.desk import Desk, keyed
from tests.engine.one_step import ONCE, effects, one_step, output
from tests.factories import events_of, make_due

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# Windows and doubt.


def test_interrupted_call_past_its_key_window_is_in_doubt_and_never_sent_again(engine):  # C031
    desk = Desk()
    send = keyed(desk, key_window=timedelta(hours=24))
    one_step(lambda run: run.call(send, resource="r1"))
    desk.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    IdempotencyRecord.objects.update(window_ends_at=run.created_at - timedelta(hours=12))
    engine.drain()

    run.refresh_from_db()
    assert run.state == "in_doubt"
    assert len(desk.calls) == 1
    assert effects(run)[0].state == "in_doubt"
    assert events_of(run)[-2:] == ["effect_in_doubt", "doubt"]
    assert engine.drain() == 0


def test_interrupted_call_inside_its_window_goes_out_again(engine):
    desk = Desk()
    send = keyed(desk, key_window=timedelta(hours=24))
    one_step(lambda run: run.call(send, resource="r1"))
    desk.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert len(desk.calls) == 2


def test_doubt_about_one_call_of_many_keeps_the_results_of_the_others(engine):
    desk = Desk()
    send = keyed(desk, key_window=timedelta(hours=24))
    one_step(lambda run: run.call_many(send, [{"resource": "r1"}, {"resource": "r2"}], concurrency=1) and None)
    desk.script = [None, engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    first, _second = effects(run)
    IdempotencyRecord.objects.filter(pk=first.pk).update(window_ends_at=run.created_at)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "in_doubt"
    assert {effect.resource: effect.state for effect in effects(run)} == {"r1": "in_doubt", "r2": "succeeded"}


def test_call_whose_window_closes_between_two_attempts_is_in_doubt(engine):
    desk = Desk(TimeoutError("no answer"))
    send = keyed(desk, key_window=timedelta(microseconds=1))
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert run.state == "in_doubt"
    assert len(desk.calls) == 1


# Refusals, failures, results.


def test_refusal_is_a_result_and_is_not_asked_for_again(engine):
    desk = Desk(Refused("no such customer"))
    send = keyed(desk)

    def a(run: Any):
        try:
            run.call(send, resource="r1")
        except Refused as refused:
            if run.attempt == 1:
                raise ValueError("again") from None
            return str(refused)

    one_step(a)
    run = engine.run("one")
    assert output(run) == "no such customer"
    assert len(desk.calls) == 1
    assert effects(run)[0].state == "refused"


def test_refusal_that_the_step_does_not_handle_fails_the_run_without_a_retry(engine):
    desk = Desk(Refused("no"))
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert run.error_class == "durableops.errors.Refused"


def test_call_that_was_certainly_not_sent_is_withdrawn_and_intended_again(engine):
    desk = Desk(*[NotSent("no connection")] * 3)
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1")["id"])
    run = engine.run("one")
    assert output(run) == "T-r1"
    assert len(set(desk.keys)) == 1
    [effect] = effects(run)
    assert (effect.state, effect.attempts) == ("succeeded", 1)
    assert "effects_repeated" not in events_of(run)


def test_call_that_was_never_sent_is_in_no_doubt_past_its_window(engine):
    desk = Desk(*[NotSent("no connection")] * 3)
    send = keyed(desk, key_window=timedelta(hours=1))
    one_step(lambda run: run.call(send, resource="r1"), retry=Retry(max_attempts=2, first_delay=60.0, max_delay=60.0))
    run = engine.run("one")
    assert (run.state, effects(run)[0].state) == ("queued", "withdrawn")
    IdempotencyRecord.objects.update(window_ends_at=run.created_at - timedelta(hours=2))
    make_due(run)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_call_that_failed_may_have_been_sent_and_is_in_doubt_once_its_run_has_ended(engine):
    desk = Desk(*[ValueError("slow bytes")] * 3)
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"), retry=ONCE)
    run = engine.run("one")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.CallFailed"
    [effect] = effects(run)
    assert (effect.state, effect.attempts) == ("in_doubt", 3)
    assert [attempt for _, _, attempt in desk.calls] == [1, 2, 3]
    doubt = Doubt.objects.get()
    assert (doubt.effect_id, doubt.cause, doubt.why) == (effect.pk, "call_failed", "after 3 attempts: slow bytes")
    assert events_of(run)[-2:] == ["effect_in_doubt", "fail"]


def test_retried_run_sends_again_what_was_in_doubt_while_the_key_is_remembered(engine):
    desk = Desk(*[ValueError("slow bytes")] * 3)
    send = keyed(desk, key_window=timedelta(hours=24))
    one_step(lambda run: run.call(send, resource="r1")["id"], retry=ONCE)
    run = engine.run("one")
    commands.retry(run.pk, tenant=engine.tenant, actor="ann", reason="it is back")
    engine.drain()
    assert output(run) == "T-r1"
    assert len(desk.calls) == 4
    assert len(set(desk.keys)) == 1
    doubt = Doubt.objects.get()
    assert (doubt.settled_as, doubt.settled_by) == ("sent_again", "engine")
    assert effects(run)[0].state == "succeeded"


def test_call_whose_failure_the_step_caught_is_in_doubt_when_the_step_goes_on(engine):
    desk = Desk(*[TimeoutError("no answer")] * 3)
    send = keyed(desk)

    def a(run: Any):
        try:
            run.call(send, resource="r1")
        except CallTimeout:
            return "went on"

    one_step(a)
    run = engine.run("one")
    assert (run.state, output(run)) == ("succeeded", "went on")
    [effect] = effects(run)
    assert (effect.state, Doubt.objects.get().cause) == ("in_doubt", "call_timeout")


def test_call_of_a_page_whose_failure_was_caught_is_in_doubt_with_the_page(engine):
    desk = Desk(*[ValueError("slow")] * 3)
    send = keyed(desk)
    seen = []

    def a(run: Any):
        for rows in run.pages(lambda at: Page(items=[at], next_cursor=at + 1) if at < 2 else None, start=0):
            seen.append(Doubt.objects.count())
            run.call_many(send, [{"resource": f"r{row}"} for row in rows], on_error="return")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert seen == [0, 1]
    assert [effect.state for effect in effects(run)] == ["in_doubt", "succeeded"]


def test_caught_failure_of_a_call_that_was_never_sent_leaves_no_doubt(engine):
    desk = Desk(*[NotSent("no connection")] * 3)
    send = keyed(desk)

    def a(run: Any):
        try:
            run.call(send, resource="r1")
        except CallFailed:
            return "went on"

    one_step(a)
    run = engine.run("one")
    assert (run.state, effects(run)[0].state, Doubt.objects.count()) == ("succeeded", "withdrawn", 0)


def test_call_that_the_entered_step_does_not_ask_for_again_is_in_doubt(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        if run.attempt == 1:
            run.call(send, resource="r1")

    one_step(a)
    desk.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    assert effects(run)[0].state == "intended"
    engine.drain()
    run.refresh_from_db()
    assert (run.state, effects(run)[0].state) == ("succeeded", "in_doubt")
    assert Doubt.objects.get().cause == "left_open"


@pytest.mark.parametrize("end", ["cancel", "deadline"])
def test_run_that_ends_between_two_entries_leaves_its_unanswered_call_in_doubt(engine, end):
    desk = Desk()
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"), deadline=timedelta(hours=1))
    desk.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    engine.upkeep.make_one()
    if end == "cancel":
        commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="no more")
    else:
        Run.objects.update(deadline_at=run.created_at)
        engine.upkeep.make_one()
    assert effects(run)[0].state == "in_doubt"
    assert Doubt.objects.get().cause == "run_ended"
    assert "effect_in_doubt" in events_of(run)


def test_each_repeat_after_a_failure_is_told_before_it_goes_out(engine):
    desk = Desk(ValueError("slow"), TimeoutError("none"))
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1")["id"])
    run = engine.run("one")
    assert run.state == "succeeded"
    told = RunEvent.objects.filter(run=run, event="effects_repeated").order_by("id")
    assert [e.data["cause"] for e in told] == ["ValueError: slow", "call timeout"]
    assert effects(run)[0].attempts == len(desk.calls) == 3


def test_call_timeout_is_an_event_with_clock_limit_trigger_elapsed_cause_and_next_state(engine):
    desk = Desk(TimeoutError("no answer"))
    send = keyed(desk, timeout=7.0)
    one_step(lambda run: run.call(send, resource="r1")["id"])
    run = engine.run("one")
    firing = RunEvent.objects.get(run=run, event="call_timeout").data
    assert firing["clock"] == "call_timeout"
    assert firing["limit_seconds"] == 7.0
    assert "attempt 1 of send for 'r1'" in firing["trigger"]
    assert firing["elapsed_seconds"] >= 0
    assert firing["cause"] == "slow_dependency"
    assert firing["next_state"] == "sent again"
    assert firing["key"] == desk.keys[0]


def test_result_that_is_too_large_keeps_the_outcome_and_fails_the_step(engine):
    desk = Desk({"id": "T-1", "rows": "x" * 5000})
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"))
    with override_conf(payload_max_bytes=1000):
        run = engine.run("one")
        assert run.state == "failed"
        assert run.error_class == "durableops.errors.PayloadRefused"
        [effect] = effects(run)
        assert (effect.state, effect.result, effect.error_class) == ("succeeded", None, "PayloadRefused")
        commands.retry(run.pk, tenant=engine.tenant, actor="ann", reason="again")
        engine.drain()
    run.refresh_from_db()
    assert run.state == "failed"
    assert len(desk.calls) == 1


@pytest.mark.parametrize(
    "value", [pytest.param(object(), id="object"), {"a": float("nan")}, {1: 2}, "\ud800", "a\0b", 2**60], ids=repr
)
def test_result_that_is_not_json_keeps_the_outcome_and_fails_the_step(engine, value):
    desk = Desk(value)
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.PayloadRefused"
    assert effects(run)[0].state == "succeeded"


def test_fatal_error_of_a_tool_is_not_tried_again(engine):
    desk = Desk(Fatal("wrong account"))
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert run.state == "failed"
    assert len(desk.calls) == 1


def test_failed_call_can_be_caught_by_the_step(engine):
    desk = Desk(*[ValueError("x")] * 3)
    send = keyed(desk)

    def a(run: Any):
        try:
            run.call(send, resource="r1")
        except CallFailed as failed:
            return str(failed)

    one_step(a)
    assert "gave up after 3 attempts" in output(engine.run("one"))


def test_some_failed_calls_of_many_are_named_and_the_others_are_recorded(engine):
    desk = Desk(None, Refused("not this one"), None)
    send = keyed(desk)

    def a(run: Any):
        try:
            run.call_many(send, [{"resource": f"r{n}"} for n in range(3)], concurrency=1)
        except CallsFailed as failed:
            return [list(each) for each in failed.context["errors"].items()]

    one_step(a)
    run = engine.run("one")
    assert output(run) == [[1, "not this one"]]
    assert [effect.state for effect in effects(run)] == ["succeeded", "refused", "succeeded"]


def test_errors_stand_in_their_places_when_they_are_asked_for(engine):
    desk = Desk(None, Refused("not this one"), None)
    send = keyed(desk)

    def a(run: Any):
        found = run.call_many(send, [{"resource": f"r{n}"} for n in range(3)], concurrency=1, on_error="return")
        return [type(each).__name__ for each in found]

    one_step(a)
    assert output(engine.run("one")) == ["dict", "Refused", "dict"]


def test_concurrency_of_call_many_is_never_exceeded(engine):
    now, most, lock = [0], [0], threading.Lock()

    @tool(safety="keyed", name="send")
    def send(call):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        with lock:
            now[0] -= 1

    one_step(lambda run: run.call_many(send, [{"resource": f"r{n}"} for n in range(30)], concurrency=3) and None)
    assert engine.run("one").state == "succeeded"
    assert most[0] <= 3


@pytest.mark.parametrize("concurrency", [0, -1, 65])
def test_senseless_concurrency_fails_the_step_with_a_sentence(engine, concurrency):
    send = keyed(Desk())
    one_step(lambda run: run.call_many(send, [{"resource": "r"}], concurrency=concurrency))
    run = engine.run("one")
    assert run.state == "failed"
    assert "concurrency" in run.error_message


def test_no_items_are_no_calls(engine, commits):
    send = keyed(Desk())
    one_step(lambda run: run.call_many(send, []))
    assert output(engine.run("one")) == []
    assert commits.count == 1


# Retry-After.


@pytest.mark.parametrize(("seconds", "low", "high"), [(0, 0.0, 0.0), (0.02, 0.02, 0.02), (999_999, 0.05, 0.05)])
def test_retry_later_is_honoured_up_to_the_cap(engine, monkeypatch, seconds, low, high):  # C058
    paused = []
    from durableops.engine import drivers

    monkeypatch.setattr(drivers.SyncDriver, "_pause", lambda self, seconds: paused.append(seconds))
    desk = Desk(RetryLater(seconds))
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1")["id"])
    with override_conf(call_retry_after_cap_seconds=0.05):
        run = engine.run("one")
    assert run.state == "succeeded"
    assert len(paused) == 1
    assert low <= paused[0] <= high


# Stopping.


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_nothing_more_is_sent_once_a_person_stopped_the_run(engine, verb):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        run.call(send, resource="r1")
        getattr(commands, verb)(run_id(), tenant=engine.tenant, actor="ann", reason="stop")
        run.call(send, resource="r2")

    def run_id():
        return Run.objects.get().pk

    one_step(a)
    run = engine.run("one")
    assert run.state == ("cancelled" if verb == "cancel" else "queued")
    assert [resource for _, resource, _ in desk.calls] == ["r1"]
    assert [(e.resource, e.state) for e in effects(run)] == [("r1", "succeeded")]


def test_nothing_is_sent_after_the_deadline(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        Run.objects.update(deadline_at=run_row().created_at)
        run.call(send, resource="r1")

    def run_row():
        return Run.objects.get()

    one_step(a, deadline=timedelta(hours=1))
    run = engine.run("one")
    assert run.state == "timed_out"
    assert desk.calls == []
    assert effects(run) == []


def test_call_held_up_past_its_time_to_send_is_not_sent(engine, monkeypatch):
    """A worker that slept between the intent and the wire: by now somebody may have settled the effect."""
    from durableops.engine import calling

    desk = Desk()
    send = keyed(desk, timeout=30.0, retry=ONCE)
    real = clock.uptime
    monkeypatch.setattr(calling, "uptime", lambda: real() + 31.0)
    one_step(lambda run: run.call(send, resource="r1"), retry=ONCE)
    run = engine.run("one")
    assert run.state == "failed"
    assert desk.calls == []
    assert effects(run)[0].state == "withdrawn"
