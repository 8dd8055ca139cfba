"""How a run leaves its worker: retries, failures, timeouts, pauses, deadlines, and errors written down safely."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import Fatal, Retry, RetryLater, State, step, tool, workflow
from durableops.conf import override_conf
from durableops.engine import commands
from runs.models import Checkpoint, IdempotencyRecord, LogLine, PauseSwitch, Receipt, Run, RunEvent
from tests.factories import events_of, make_due, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
ONCE = Retry(max_attempts=1)


class Nothing(State):
    n: int = 0


def one_step(function, *, retry=AT_ONCE, timeout: float | None = 3600.0, **options):
    workflow(name="one", version=1, state=Nothing, **options)(
        type("One", (), {"a": step(id="a", retry=retry, timeout=timeout)(function)})
    )


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


# Retries.


def test_failed_step_is_tried_as_often_as_its_policy_says_and_each_time_is_told(engine):
    def a(run: Any):
        raise ValueError(f"attempt {run.attempt}")

    one_step(a)
    run = engine.run("one")
    assert (run.state, run.step_attempts, run.error_message) == ("failed", 3, "attempt 3")
    assert run.error_class == "builtins.ValueError"
    assert len(run.error_fingerprint) == 16
    told = RunEvent.objects.filter(run=run, event__in=["retry_later", "fail"]).order_by("id")
    assert [(e.event, e.attempt, e.data["failed_attempts"]) for e in told] == [
        ("retry_later", 1, 1), ("retry_later", 2, 2), ("fail", 3, 3),
    ]  # fmt: skip
    assert "ValueError: attempt 1" in told[0].data["traceback"]
    assert [r.cause for r in Receipt.objects.filter(run=run)] == ["retry", "retry"]


def test_pause_before_the_next_attempt_is_the_policys(engine):
    def a(run: Any):
        raise ValueError

    one_step(a, retry=Retry(max_attempts=2, first_delay=600.0, max_delay=600.0, jitter=0.0))
    run = engine.run("one")
    assert run.state == "queued"
    assert abs(run.due_at - now() - timedelta(seconds=600)) < timedelta(seconds=30)
    assert engine.drain() == 0
    make_due(run)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "failed"


def test_error_of_an_earlier_attempt_is_cleared_by_success(engine):
    def a(run: Any):
        if run.attempt == 1:
            raise ValueError("once")

    one_step(a)
    run = engine.run("one")
    assert (run.state, run.error_class, run.error_message) == ("succeeded", "", "")


@pytest.mark.parametrize("error", [Fatal("no use"), KeyError("listed")], ids=["fatal", "given up on"])
def test_error_that_is_not_retried_ends_the_run_at_once(engine, error):
    def a(run: Any):
        raise error

    one_step(a, retry=Retry(max_attempts=5, first_delay=0.0, give_up_on=(KeyError,)))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)


@pytest.mark.parametrize(("seconds", "expected"), [(30, 30), (999_999, 60), (0, 5), (-5, 5), (float("nan"), 5)])
def test_step_that_asks_to_be_tried_later_is_heard_within_the_cap(engine, seconds, expected):  # C058
    def a(run: Any):
        raise RetryLater(seconds)

    one_step(a, retry=Retry(max_attempts=2, first_delay=5.0, max_delay=5.0, jitter=0.0))
    run = engine.run("one")
    assert run.state == "queued"
    assert abs((run.due_at - now()).total_seconds() - expected) < 4


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_step_that_tries_to_leave_the_process_only_fails(engine, kind):
    def a(run: Any):
        raise kind

    one_step(a, retry=ONCE)
    assert engine.run("one").state == "failed"


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "error",
    [
        Hostile(),
        ValueError("a\0b"),
        ValueError("\ud800"),
        ValueError("x" * 10**6),
        ValueError("<script>"),
        ValueError("%s %(a)s"),
    ],
    ids=["no text", "nul", "surrogate", "a million", "markup", "percent"],
)
def test_error_of_any_text_is_written_down_and_ends_the_run(engine, error):
    def a(run: Any):
        raise error

    one_step(a, retry=ONCE)
    run = engine.run("one")
    assert run.state == "failed"
    assert len(run.error_message) < 10_000
    assert RunEvent.objects.filter(run=run, event="fail").exists()


def test_log_lines_of_failed_attempts_are_kept_with_their_attempt(engine):  # C023
    def a(run: Any):
        for n in range(3):
            run.log(f"event {n}", n=n)
        run.progress(run.attempt, 4)
        if run.attempt < 3:
            raise ValueError

    one_step(a)
    run = engine.run("one")
    lines = LogLine.objects.filter(run=run).order_by("id")
    assert [line.attempt for line in lines] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    # Who reads the final stream reads the lines of the attempt that was committed.
    final = Checkpoint.objects.get(run=run, kind="finish").attempt
    assert [line.message for line in lines if line.attempt == final] == ["event 0", "event 1", "event 2"]
    run.refresh_from_db()
    assert (run.progress_done, run.progress_total) == (3, 4)


def test_hostile_log_fields_are_kept_as_text(engine):
    def a(run: Any):
        run.log("a\0\ud800", level="warning", when=now(), huge=2**100, nan=float("nan"), nul="\0")

    one_step(a)
    assert engine.run("one").state == "succeeded"
    line = LogLine.objects.get()
    assert line.level == "warning"
    assert "\0" not in line.message


def test_unknown_log_level_fails_the_step_with_the_levels_there_are(engine):
    one_step(lambda run: run.log("x", level="loud"))
    run = engine.run("one")
    assert run.state == "failed"
    assert "warning" in run.error_message


# Step timeouts.


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_step_that_swallows_its_timeout_is_timed_out_all_the_same(engine, later, swallowed):  # C050
    def a(run: Any):
        if run.attempt == 1:
            later(31)
            for _ in range(5):
                try:  # noqa: SIM105
                    run.progress(1)
                except swallowed:
                    pass
        return f"attempt {run.attempt}"

    one_step(a, timeout=30.0)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert output(run) == "attempt 2"
    firing = RunEvent.objects.get(run=run, event="step_timeout")
    assert firing.data["clock"] == "step_timeout"
    assert firing.data["limit_seconds"] == 30.0
    assert firing.data["elapsed_seconds"] >= 31
    assert (firing.data["cause"], firing.data["next_state"]) == ("design_error", "queued")


def test_result_that_comes_after_the_timeout_is_refused_and_told(engine, later):  # C001 C050
    ledger = []

    @workflow(name="two", version=1, state=Nothing)
    class Two:
        @step(timeout=4.0, retry=Retry(max_attempts=2, first_delay=0.0))
        def a(run: Any):
            later(7 if run.attempt == 1 else 1)
            return run.attempt

        @step
        def b(run: Any):
            ledger.append(run.attempt)

    run = engine.run("two")
    assert run.state == "succeeded"
    assert ledger == [1]
    assert Checkpoint.objects.get(run=run, step_id="a").output == "2"
    assert events_of(run).count("late_result_rejected") == 1


def test_last_timeout_fails_the_run_and_says_which_clock(engine, later):  # C052
    def a(run: Any):
        later(11)

    one_step(a, timeout=10.0, retry=Retry(max_attempts=2, first_delay=0.0))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 2)
    assert run.error_class == "durableops.errors.StepTimeout"
    firings = RunEvent.objects.filter(run=run, event="step_timeout").order_by("id")
    assert [f.data["next_state"] for f in firings] == ["queued", "failed"]


def test_time_of_one_step_does_not_count_against_the_next(engine, later):
    @workflow(name="two", version=1, state=Nothing)
    class Two:
        @step(timeout=10.0)
        def a(run: Any):
            later(8)

        @step(timeout=10.0)
        def b(run: Any):
            later(8)

    assert engine.run("two").state == "succeeded"


# The run's own deadline.


def test_deadline_that_comes_during_a_step_ends_the_run_at_its_next_call(engine, later):  # C053
    def a(run: Any):
        later(3601)
        run.progress(1)

    one_step(a, timeout=None, deadline=timedelta(hours=1))
    run = engine.run("one")
    assert run.state == "timed_out"
    firing = RunEvent.objects.get(run=run, event="time_out").data
    assert (firing["clock"], firing["limit_seconds"], firing["next_state"]) == ("run_deadline", 3600.0, "timed_out")


def test_deadline_stays_where_it_was_over_retries_pauses_and_lost_workers(engine):  # C053
    def a(run: Any):
        if run.attempt == 1:
            raise ValueError
        if run.attempt == 2:
            engine.lose_worker()
            run.log("late")

    one_step(a, deadline=timedelta(hours=1))
    run = engine.start("one")
    deadline = run.deadline_at
    commands.pause(run.pk, tenant=engine.tenant, actor="ann", reason="look")
    commands.resume(run.pk, tenant=engine.tenant, actor="ann", reason="go")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert run.deadline_at == deadline


def test_run_past_its_deadline_is_never_started(engine):  # C055
    one_step(lambda run: 1, deadline=timedelta(hours=1))
    run = engine.start("one")
    Run.objects.filter(pk=run.pk).update(deadline_at=now() - timedelta(seconds=1))
    assert engine.drain() == 0
    engine.rounds()
    run.refresh_from_db()
    assert (run.state, run.started_at) == ("timed_out", None)
    firing = RunEvent.objects.get(run=run, event="time_out").data
    assert (firing["phase"], firing["cause"]) == ("queued", "overload")


# Pause and cancel.


def test_paused_run_is_handed_back_at_its_next_commit_and_keeps_its_attempts(engine):
    @workflow(name="two", version=1, state=Nothing)
    class Two:
        @step
        def a(run: Any):
            commands.pause(Run.objects.get().pk, tenant=engine.tenant, actor="ann", reason="look")

        @step
        def b(run: Any):
            return run.attempt

    run = engine.run("two")
    assert (run.state, run.step_id, run.paused, run.head_seq) == ("queued", "b", True, 1)
    commands.resume(run.pk, tenant=engine.tenant, actor="ann", reason="go")
    engine.drain()
    assert output(run) == 1


def test_switch_hands_back_whatever_runs_and_lets_it_go_on_when_it_is_lifted(engine):
    @workflow(name="two", version=1, state=Nothing)
    class Two:
        @step
        def a(run: Any):
            switches.append(commands.set_switch("all", actor="ann", reason="fire"))

        @step
        def b(run: Any):
            pass

    switches: list[PauseSwitch] = []
    run = engine.run("two")
    assert (run.state, run.step_id) == ("queued", "b")
    other = engine.start("two")
    assert engine.drain() == 0
    commands.lift_switch(switches[0], actor="ann", reason="out")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert other.fence == 0


def test_cancelled_run_stops_at_its_next_call_and_says_who_and_why(engine):
    after = []

    def a(run: Any):
        commands.cancel(Run.objects.get().pk, tenant=engine.tenant, actor="ann", reason="wrong file")
        run.decide("x", {}, lambda: 1)
        run.progress(1)
        after.append(1)

    one_step(a)
    run = engine.run("one")
    assert run.state == "cancelled"
    assert after == []
    assert events_of(run)[-2:] == ["cancel_requested", "stop"]
    assert (run.cancel_requested_by, run.cancel_reason) == ("ann", "wrong file")


@pytest.mark.parametrize("ending", ["fail", "retry", "suspend", "succeed"])
def test_accepted_cancel_wins_over_every_ending_of_the_step(engine, ending):  # C013
    def a(run: Any):
        Run.objects.update(cancel_requested=True)
        if ending in ("fail", "retry"):
            raise ValueError
        if ending == "suspend":
            run.wait_for("go")

    one_step(a, retry=ONCE if ending == "fail" else AT_ONCE)
    run = engine.run("one")
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert run.waits.exclude(state="cancelled").count() == 0


def test_stale_log_lines_are_written_by_the_next_call(engine, monkeypatch):
    from durableops.engine import hand

    monkeypatch.setattr(hand, "FLUSH_AFTER_SECONDS", -1.0)
    seen = []

    def a(run: Any):
        run.log("first")
        run.decide("x", {}, lambda: seen.append(LogLine.objects.count()))

    one_step(a)
    engine.run("one")
    assert seen == [1]


def test_large_state_fails_the_step_that_made_it(engine):
    def a(run: Any):
        run.state.n = 1
        object.__setattr__(run.state, "__dict__", {"n": "x" * 5000})

    one_step(a, retry=ONCE)
    with override_conf(payload_max_bytes=1000):
        run = engine.run("one")
    assert run.state == "failed"
    assert Checkpoint.objects.filter(run=run).count() == 1


def test_write_that_the_database_refuses_fails_the_step_and_never_the_worker(engine, monkeypatch):
    """A constraint met what no check of ours did: the outcomes of the calls before it are kept all the same."""
    desk = []

    @tool(safety="keyed", name="send")
    def send(call):
        desk.append(call.key)

    def a(run: Any):
        run.call(send, resource="x")
        run._hand.keep(
            {
                "name": "a",
                "data_class": "junk",
                "content_type": "",
                "content_hash": "c",
                "size_bytes": 1,
                "path": "",
                "readable_by": "members",
                "sealed_with": "",
            }
        )

    one_step(a)
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 3)
    assert "artifact_data_class_known" in run.error_message
    assert len(desk) == 1
    assert IdempotencyRecord.objects.get().state == "succeeded"


def test_wait_that_the_database_refuses_fails_the_step_and_never_the_worker(engine, monkeypatch):
    from durableops.engine import waits

    real = waits.wait_row
    monkeypatch.setattr(waits, "wait_row", lambda *args, **options: real(*args, **options) | {"on_timeout": "cry"})
    one_step(lambda run: run.wait_for("go"), retry=ONCE)
    run = engine.run("one")
    assert run.state == "failed"
    assert events_of(run) == ["start", "claim", "fail"]
