"""Effects: intent before call, results reused, old keys for repeats, and doubt where nobody can know."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from durableops import (
    DuplicateName,
    EffectConflict,
    tool,
)
from durableops.engine import commands
from runs.models import Checkpoint, IdempotencyRecord, Receipt, RunEvent
from tests.engine.desk import Desk, keyed
from tests.engine.one_step import ONCE, effects, one_step, output
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


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
