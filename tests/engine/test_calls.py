"""Effects: intent before call, results reused, old keys for repeats, and doubt where nobody can know."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from durableops import (
    CallFailed,
    CallsFailed,
    CallTimeout,
    DuplicateName,
    EffectConflict,
    Fatal,
    NotSent,
    Page,
    Refused,
    Retry,
    RetryLater,
    State,
    clock,
    step,
    tool,
    workflow,
)
from durableops.conf import override_conf
from durableops.engine import commands
from runs.models import Checkpoint, Doubt, IdempotencyRecord, Receipt, Run, RunEvent
from tests.factories import events_of, make_due
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
ONCE = Retry(max_attempts=1)


class Facts(State):
    n: int = 0


class Desk:
    """The other side: what it was sent, and what it answers. `script` is consumed, then everything succeeds."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, str, int]] = []
        self.lock = threading.Lock()

    def answer(self, call: Any, **request: Any) -> Any:
        with self.lock:
            self.calls.append((call.key, call.resource, call.attempt))
            next_ = self.script.pop(0) if self.script else None
        if isinstance(next_, BaseException):
            raise next_
        if callable(next_):
            try:
                return next_()
            finally:
                # Threads of a pool outlive the test; their connections must not.
                if threading.current_thread().name.startswith("call"):
                    connections.close_all()
        return {"id": f"T-{call.resource}", **request} if next_ is None else next_

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.calls]


def keyed(desk: Desk, **options: Any):
    values: dict[str, Any] = {"safety": "keyed", "name": "send", "retry": AT_ONCE, "resource_id": "id"} | options

    @tool(**values)
    def send(call, *, title: str = ""):
        return desk.answer(call, title=title)

    return send


def one_step(function, *, name="one", retry=AT_ONCE, **options):
    workflow(name=name, version=1, state=Facts, **options)(type("One", (), {"a": step(id="a", retry=retry)(function)}))


def effects(run: Run) -> list[IdempotencyRecord]:
    return list(IdempotencyRecord.objects.filter(run=run).order_by("id"))


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


# What it costs.


def test_lone_call_costs_two_commits_the_intent_and_the_result_with_the_checkpoint(engine, commits):
    send = keyed(Desk())
    one_step(lambda run: run.call(send, resource="r1", title="t"))
    run = engine.run("one")
    assert run.state == "succeeded"
    assert commits.count == 2


@pytest.mark.parametrize("k", [2, 5])
def test_loop_of_k_calls_costs_k_plus_one_commits(engine, commits, k):
    send = keyed(Desk())
    one_step(lambda run: [run.call(send, resource=f"r{n}") for n in range(k)] and None)
    engine.run("one")
    assert commits.count == k + 1


@pytest.mark.parametrize("k", [1, 7, 40])
def test_call_many_costs_two_commits_whatever_its_size(engine, commits, k):
    send = keyed(Desk())
    one_step(lambda run: len(run.call_many(send, [{"resource": f"r{n}"} for n in range(k)])))
    run = engine.run("one")
    assert output(run) == k
    assert commits.count == 2


def test_reading_costs_no_commit_of_its_own(engine, commits):
    desk = Desk()

    @tool(safety="read", name="look")
    def look(call, *, at: int):
        return desk.answer(call, at=at)["at"]

    one_step(lambda run: [run.call(look, at=n) for n in range(3)])
    run = engine.run("one")
    assert output(run) == [0, 1, 2]
    assert commits.count == 1


# What is on record.


def test_intent_is_committed_before_anything_is_sent(engine):
    seen = []

    def look() -> dict[str, str]:
        seen.append(list(IdempotencyRecord.objects.values_list("state", "key")))
        return {"id": "T"}

    desk = Desk(look)
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert seen == [[("intended", desk.keys[0])]]
    [effect] = effects(run)
    assert (effect.state, effect.downstream_id, effect.attempts) == ("succeeded", "T", 1)
    assert effect.send_before is not None


def test_every_intent_of_call_many_is_committed_before_the_first_is_sent(engine):
    seen = []

    def count() -> dict[str, str]:
        seen.append(IdempotencyRecord.objects.filter(state="intended").count())
        return {"id": "T"}

    send = keyed(Desk(count))
    one_step(lambda run: run.call_many(send, [{"resource": f"r{n}"} for n in range(5)], concurrency=1) and None)
    engine.run("one")
    assert seen == [5]


def test_results_come_in_the_order_of_the_items(engine):
    send = keyed(Desk())
    one_step(lambda run: [r["id"] for r in run.call_many(send, [{"resource": f"r{n}"} for n in range(20)])])
    assert output(engine.run("one")) == [f"T-r{n}" for n in range(20)]


def test_checkpoint_names_the_newest_effect_it_relies_on(engine):
    send = keyed(Desk())
    one_step(lambda run: run.call_many(send, [{"resource": f"r{n}"} for n in range(3)]) and None)
    run = engine.run("one")
    assert Checkpoint.objects.get(run=run, kind="finish").effects_through == effects(run)[-1].pk


def test_summary_shows_scalars_and_no_secret(engine):
    @tool(safety="keyed", name="send")
    def send(call, *, title: str, password: str, rows: list):
        return None

    one_step(lambda run: run.call(send, resource="r", title="t" * 500, password="hunter22!", rows=[1, 2]))
    [effect] = effects(engine.run("one"))
    assert "hunter22!" not in json.dumps(effect.request_summary)
    assert effect.request_summary["rows"] == "(2 entries)"
    assert len(effect.request_summary["title"]) < 300


# Re-entry.


def test_recorded_result_answers_when_the_step_is_entered_again(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        first = run.call(send, resource="r1")
        second = run.call(send, resource="r2")
        if run.attempt == 1:
            raise ValueError("after both")
        return [first["id"], second["id"]]

    one_step(a)
    run = engine.run("one")
    assert output(run) == ["T-r1", "T-r2"]
    assert [resource for _, resource, _ in desk.calls] == ["r1", "r2"]
    assert run.effects_avoided == 2
    assert [effect.reused for effect in effects(run)] == [1, 1]
    assert Receipt.objects.get(run=run).reused_effects == 2


def test_volatile_request_is_a_conflict_on_the_second_attempt_unsent_and_shown(engine):  # C032
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        run.call(send, resource="r1", title=f"made by entry {run.entry}")
        raise ValueError("after the provider accepted")

    one_step(a)
    run = engine.run("one")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.EffectConflict"
    assert len(desk.calls) == 1
    conflict = RunEvent.objects.get(run=run, event="effect_conflict")
    assert conflict.data["effect"] == effects(run)[0].pk
    assert "made by entry" not in json.dumps(conflict.data)


def test_conflict_inside_one_entry_is_caught_by_the_name_first(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        run.call(send, resource="r1", title="x")
        with pytest.raises(DuplicateName, match="key of its own"):
            run.call(send, resource="r1", title="x")
        run.call(send, resource="r1", title="y", key="second")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert len(desk.calls) == len(effects(run)) == 2


def test_order_of_calls_does_not_matter_on_re_entry(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        order = ["r1", "r2", "r3"] if run.attempt == 1 else ["r3", "r1", "r2"]
        found = [run.call(send, resource=r)["id"] for r in order]
        if run.attempt == 1:
            raise ValueError("again")
        return found

    one_step(a)
    run = engine.run("one")
    assert output(run) == ["T-r3", "T-r1", "T-r2"]
    assert len(desk.calls) == 3


def test_call_that_was_interrupted_goes_out_again_with_its_old_key_and_its_reason_first(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        return run.call(send, resource="r1")["id"]

    one_step(a)
    # The worker dies between the answer and its record.
    desk.script = [engine.lose_worker]
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "T-r1")
    assert len(desk.calls) == 2
    assert len(set(desk.keys)) == 1
    [effect] = effects(run)
    assert effect.attempts == 2
    repeated = RunEvent.objects.get(run=run, event="effects_repeated")
    assert repeated.data["cause"] == "worker_lost"
    assert repeated.data["keys"] == [effect.key]
    assert Receipt.objects.get(run=run).repeated_effects == 1


def test_result_of_a_call_is_kept_when_the_step_fails_right_after_it(engine):
    desk = Desk()
    send = keyed(desk)

    def a(run: Any):
        run.call(send, resource="r1")
        raise ValueError("now")

    one_step(a, retry=ONCE)
    run = engine.run("one")
    assert run.state == "failed"
    assert effects(run)[0].state == "succeeded"
    reopened = commands.retry(run.pk, tenant=engine.tenant, actor="ann", reason="again")
    assert reopened.state == "queued"
    engine.drain()
    assert len(desk.calls) == 1


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


# Scope and class.


def test_one_invoice_whoever_asks(engine):
    desk = Desk()
    send = keyed(desk, scope="tenant")
    one_step(lambda run: run.call(send, resource="invoice-7")["id"])
    first, second = engine.run("one"), engine.run("one")
    assert output(first) == output(second) == "T-invoice-7"
    assert len(desk.calls) == 1
    assert IdempotencyRecord.objects.count() == 1


def test_two_runs_have_slots_and_keys_of_their_own(engine):
    desk = Desk()
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource="r")["id"])
    engine.run("one")
    engine.run("one")
    assert len(set(desk.keys)) == 2


def test_read_is_called_again_after_an_interruption_that_lost_its_result(engine):
    calls = []

    @tool(safety="read", name="look")
    def look(call):
        calls.append(call.attempt)
        if len(calls) == 1:
            engine.lose_worker()
        return len(calls)

    one_step(lambda run: run.call(look))
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    assert output(run) == 2


def test_resource_is_demanded_when_it_could_not_be_seen_at_start_up(engine):
    send = keyed(Desk())
    unseen = {"resource": ""}
    one_step(lambda run: run.call(send, **unseen))
    run = engine.run("one")
    assert run.state == "failed"
    assert "resource" in run.error_message
    assert effects(run) == []


@pytest.mark.parametrize("resource", ["x" * 10_000, "a\nb", "a\0b", "\ud800", " x"])
def test_resource_that_cannot_be_a_key_fails_the_step_and_sends_nothing(engine, resource):
    desk = Desk()
    send = keyed(desk)
    one_step(lambda run: run.call(send, resource=resource))
    run = engine.run("one")
    assert run.state == "failed"
    assert desk.calls == []
    assert effects(run) == []


def test_slot_that_a_concurrent_run_took_is_answered_by_its_record(engine):
    """Two runs of a tenant-wide tool: the second finds the first's result between its look and its intent."""
    entered, go_on = threading.Event(), threading.Event()
    desk = Desk()
    send = keyed(desk, scope="tenant")

    def a(run: Any):
        if run.labels.get("who") == "slow":
            entered.set()
            assert go_on.wait(20)
        return run.call(send, resource="invoice")["id"]

    one_step(a)
    slow = engine.start("one", labels={"who": "slow"})
    work = Background(engine.another_worker().drain)
    assert entered.wait(20)
    quick = engine.run("one")
    go_on.set()
    work.result()
    assert output(slow) == output(quick)
    assert len(desk.calls) == 1
    assert IdempotencyRecord.objects.get().reused == 1


def test_conflict_is_raised_to_the_step_by_name(engine):
    desk = Desk()
    send = keyed(desk, scope="tenant")

    def a(run: Any):
        try:
            return run.call(send, resource="invoice", title=run.labels["title"])["title"]
        except EffectConflict as conflict:
            return str(conflict)

    one_step(a)
    engine.run("one", labels={"title": "first"})
    told = output(engine.run("one", labels={"title": "second"}))
    assert "was asked with another request before" in told
    assert len(desk.calls) == 1
