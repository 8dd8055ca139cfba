"""Moving a run: steps in order, each once, state from the committed bytes, finish with the last step."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Retry, State, step, workflow
from durableops.conf import override_conf
from runs.models import Checkpoint, Receipt, Run, RunEvent
from tests.factories import events_of, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Counter(State):
    n: int = 0
    notes: list[str] = []


def test_run_goes_through_its_steps_in_order_and_succeeds(engine):
    @workflow(name="two", version=1, state=Counter)
    class Two:
        @step
        def first(run: Any):
            run.state.n += 1
            return {"seen": run.state.n}

        @step
        def second(run: Any):
            run.state.n += 10

    run = engine.run("two", {"n": 5})

    assert run.state == "succeeded"
    assert events_of(run) == ["start", "claim", "succeed"]
    rows = Checkpoint.objects.filter(run=run).order_by("seq")
    assert [(c.seq, c.kind, c.step_id, c.next_step) for c in rows] == [
        (0, "start", "", "first"),
        (1, "step", "first", "second"),
        (2, "finish", "second", ""),
    ]
    assert rows[1].output == '{"seen":6}'
    assert rows[2].state == '{"n":16,"notes":[]}'
    assert run.finished_at is not None
    assert run.worker_id is None


def test_each_step_costs_one_commit_and_the_finish_travels_with_the_last(engine, commits):
    @workflow(name="three", version=1, state=Counter)
    class Three:
        @step
        def a(run: Any):
            pass

        @step
        def b(run: Any):
            pass

        @step
        def c(run: Any):
            pass

    engine.run("three")
    assert commits.transitions == [None, None, "succeed"]


def test_state_that_did_not_change_is_not_copied(engine):
    @workflow(name="same", version=1, state=Counter)
    class Same:
        @step
        def a(run: Any):
            pass

        @step
        def b(run: Any):
            run.state.n = 1

        @step
        def c(run: Any):
            pass

    run = engine.run("same")
    rows = Checkpoint.objects.filter(run=run).order_by("seq")
    assert [(c.state is not None, c.state_seq) for c in rows] == [(True, 0), (False, 0), (True, 2), (False, 2)]


def test_next_step_gets_a_state_decoded_from_the_committed_bytes_not_the_object_in_memory(engine):
    seen = []

    @workflow(name="decoded", version=1, state=Counter)
    class Decoded:
        @step
        def a(run: Any):
            run.state.notes.append("kept")
            seen.append(run.state)

        @step
        def b(run: Any):
            seen.append(run.state)

    engine.run("decoded")
    assert seen[0] is not seen[1]
    assert seen[1].notes == ["kept"]


def test_failed_attempt_leaves_no_trace_in_the_state_of_the_next_one(engine):
    @workflow(name="dirty", version=1, state=Counter)
    class Dirty:
        @step(retry=AT_ONCE)
        def a(run: Any):
            run.state.notes.append(f"attempt {run.attempt}")
            if run.attempt == 1:
                raise ValueError("no")
            return list(run.state.notes)

    run = engine.run("dirty")
    assert Checkpoint.objects.get(run=run, kind="finish").output == '["attempt 2"]'


def test_input_can_be_read_in_every_step_and_changing_it_changes_nothing(engine):
    @workflow(name="input", version=1, state=Counter)
    class Input:
        @step
        def a(run: Any):
            run.state.n = 99
            run.input.n = 1000

        @step
        def b(run: Any):
            return [run.input.n, run.state.n]

    run = engine.run("input", {"n": 7})
    assert Checkpoint.objects.get(run=run, kind="finish").output == "[7,99]"


def test_committed_step_never_runs_again_after_its_worker_is_lost(engine):
    calls = []

    @workflow(name="lost", version=1, state=Counter)
    class Lost:
        @step
        def a(run: Any):
            calls.append("a")

        @step
        def b(run: Any):
            calls.append("b")
            if len(calls) == 2:
                engine.lose_worker()

    run = engine.start("lost")
    first = engine.worker
    first.drain()
    engine.drain()
    run.refresh_from_db()

    assert calls == ["a", "b", "b"]
    assert run.state == "succeeded"
    assert "late_result_rejected" in events_of(run)
    receipt = Receipt.objects.get(run=run)
    assert (receipt.cause, receipt.detail) == ("worker_lost", "its process was killed by SIGKILL")
    assert receipt.recovery_seconds is not None


def test_output_that_is_not_json_fails_the_step_that_made_it_and_says_where(engine):
    @workflow(name="notjson", version=1, state=Counter)
    class NotJson:
        @step
        def a(run: Any):
            return {"when": {"x": object()}}

    run = engine.run("notjson")
    assert run.state == "failed"
    assert "/when/x" in run.error_message
    assert run.error_class == "durableops.errors.PayloadRefused"


def test_output_over_the_limit_fails_the_step_without_a_retry(engine):
    @workflow(name="bigout", version=1, state=Counter)
    class Big:
        @step
        def a(run: Any):
            return "x" * 2000

    with override_conf(payload_max_bytes=1000):
        run = engine.run("bigout")
    assert run.state == "failed"
    assert run.step_attempts == 1


def test_run_whose_workflow_is_unknown_here_is_left_to_others_and_the_others_run(engine):  # C010
    @workflow(name="known", version=1, state=Counter)
    class Known:
        @step
        def a(run: Any):
            pass

    lost = make_run(workflow="nowhere", tenant=engine.tenant)
    good = [engine.start("known") for _ in range(3)]
    # Undecodable state: the plan fits, the bytes do not.
    broken = engine.start("known")
    Run.objects.filter(pk=broken.pk).update(state_seq=0)
    rewrite_state(broken, '{"n":"many"}')

    engine.drain()

    lost.refresh_from_db()
    broken.refresh_from_db()
    assert lost.state == "queued"
    assert broken.state == "in_review"
    assert [Run.objects.get(pk=run.pk).state for run in good] == ["succeeded"] * 3
    assert not Run.objects.filter(state="running").exists()
    parked = RunEvent.objects.get(run=broken, event="park")
    assert parked.data["code"]


def test_changed_plan_parks_the_run_and_names_the_difference(engine, own_registry):
    def declare(*steps):
        namespace = {name: step(id=name)(lambda run: None) for name in steps}
        workflow(name="moving", version=1, state=Counter)(type("Moving", (), namespace))

    declare("a", "b")
    run = engine.start("moving")
    own_registry.clear()
    declare("a", "extra", "b")
    engine.drain()

    run.refresh_from_db()
    assert run.state == "in_review"
    assert "extra" in str(RunEvent.objects.get(run=run, event="park").data["differences"])


def test_cancelled_run_that_cannot_be_read_ends_cancelled(engine):
    run = make_run(workflow="nowhere", tenant=engine.tenant, cancel_requested=True)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "cancelled"


@pytest.mark.parametrize("places", [1])
def test_run_gives_way_after_its_slice_when_others_wait(engine):
    order = []

    @workflow(name="slices", version=1, state=Counter)
    class Slices:
        @step
        def a(run: Any):
            order.append((run.labels["who"], "a"))

        @step
        def b(run: Any):
            order.append((run.labels["who"], "b"))

    runs = [engine.start("slices", labels={"who": who}) for who in ("x", "y")]
    with override_conf(slice_seconds=0.0):
        engine.drain()

    assert order == [("x", "a"), ("y", "a"), ("x", "b"), ("y", "b")]
    assert Receipt.objects.get(run=runs[0]).cause == "slice"
    assert Receipt.objects.get(run=runs[0]).entered_again is False


def test_run_alone_keeps_its_worker_past_its_slice(engine):
    @workflow(name="alone", version=1, state=Counter)
    class Alone:
        @step
        def a(run: Any):
            pass

        @step
        def b(run: Any):
            pass

    with override_conf(slice_seconds=0.0):
        run = engine.run("alone")
    assert events_of(run) == ["start", "claim", "succeed"]


@pytest.mark.parametrize("places", [1])
def test_stopping_worker_hands_back_between_steps_and_claims_nothing_new(engine):  # C154
    @workflow(name="stops", version=1, state=Counter)
    class Stops:
        @step
        def a(run: Any):
            engine.worker.stopping.begin(grace_seconds=10.0)

        @step
        def b(run: Any):
            pass

    run, other = engine.start("stops"), engine.start("stops")
    engine.drain()
    run.refresh_from_db()
    other.refresh_from_db()
    assert (run.state, run.step_id, run.head_seq) == ("queued", "b", 1)
    assert other.state == "queued"
    assert other.fence == 0
    assert RunEvent.objects.get(run=run, event="hand_back").data == {"cause": "worker_stopped"}
    engine.another_worker().drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_stopping_worker_leaves_a_long_step_at_its_next_call_once_half_the_grace_is_over(engine):  # C154
    entries = []

    @workflow(name="leaves", version=1, state=Counter)
    class Leaves:
        @step
        def a(run: Any):
            entries.append(run.entry)
            if len(entries) == 1:
                engine.worker.stopping.begin(grace_seconds=0.0)
            run.progress(1)

    run = engine.start("leaves")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "queued"
    assert run.step_attempts == 0
    engine.another_worker().drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def rewrite_state(run: Run, text: str) -> None:
    """Put other bytes into a checkpoint, as a bug of an earlier version could have."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_checkpoint DISABLE TRIGGER USER")
        cursor.execute("UPDATE runs_checkpoint SET state = %s WHERE run_id = %s", [text, run.pk])
        cursor.execute("ALTER TABLE runs_checkpoint ENABLE TRIGGER USER")
