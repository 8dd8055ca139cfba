"""The helpers for authors' tests: runs come to their end or next rest, and what comes from outside is delivered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from durableops import Retry, State, step, testing, tool, workflow
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import InputRefused
from durableops.testing import approve, deliver, let_time_pass, look_at, move_on, refuse, run_workflow
from runs.models import Receipt, Run, RunEvent, Tenant, Worker

pytestmark = pytest.mark.django_db(transaction=True)


class Numbers(State):
    number: int
    seen: list[str] = []


@workflow(name="testing-double", version=1, state=Numbers)
class Double:
    @step
    def double(run: Any):
        run.state.number *= 2

    @step
    async def say(run: Any):
        return {"number": run.state.number}


@workflow(name="testing-flaky", version=1, state=Numbers)
class Flaky:
    @step(retry=Retry(max_attempts=3, first_delay=3600, max_delay=3600))
    def fail_until(run: Any):
        if run.attempt < run.input.number:
            raise ValueError(f"attempt {run.attempt} is too early")
        return {"attempt": run.attempt}


@workflow(name="testing-hopeless", version=1, state=Numbers)
class Hopeless:
    @step(retry=Retry(max_attempts=10_000, first_delay=0, jitter=0))
    def fail(run: Any):
        raise ValueError("never")


@workflow(name="testing-asks", version=1, state=Numbers, deadline=timedelta(days=30))
class Asks:
    @step
    def ask(run: Any):
        answer = run.approval("go", on_refusal="return")
        return {"approved": answer.approved, "by": answer.by, "comment": answer.comment}


@workflow(name="testing-patient", version=1, state=Numbers)
class Patient:
    @step
    def listen(run: Any):
        return run.wait_for("testing-arrived", correlation=str(run.state.number), timeout=timedelta(hours=1))


@workflow(name="testing-sleeper", version=1, state=Numbers)
class Sleeper:
    @step
    def sleep(run: Any):
        run.sleep(timedelta(days=3))
        return {"awake": True}


turns: list[int] = []


@tool(safety="read", name="testing.look")
def look(call: Any) -> int:
    turns.append(len(turns) + 1)
    return len(turns)


@workflow(name="testing-poller", version=1, state=Numbers)
class Poller:
    @step
    def poll(run: Any):
        return run.poll(look, every=timedelta(hours=1), until=lambda seen: seen >= run.input.number)


@workflow(name="testing-parent", version=1, state=Numbers)
class Parent:
    @step
    def spread(run: Any):
        found = run.children(Double, [{"number": n} for n in range(run.state.number)])
        return [child.result["number"] for child in found]


def test_run_comes_to_its_end_with_its_result():
    outcome = run_workflow(Double, {"number": 21})
    assert (outcome.state, outcome.result, outcome.error) == ("succeeded", {"number": 42}, "")
    assert outcome.run.workflow == "testing-double"


def test_workflow_may_be_given_by_name_and_tenant_by_slug():
    outcome = run_workflow("testing-double", {"number": 1}, tenant="acme")
    assert outcome.result == {"number": 2}
    assert outcome.run.tenant == Tenant.objects.get(slug="acme")


def test_failed_attempts_are_repeated_without_waiting_for_their_pause():
    outcome = run_workflow(Flaky, {"number": 3})
    assert (outcome.state, outcome.result) == ("succeeded", {"attempt": 3})
    assert Receipt.objects.filter(run=outcome.run, cause="retry").count() == 2


def test_pause_that_ends_between_two_looks_is_no_rest(monkeypatch: pytest.MonkeyPatch):
    keep_up = testing._keep_up

    def after_the_pause(database: Any) -> int:
        Run.objects.filter(state="queued").update(due_at=Now())
        return keep_up(database)

    monkeypatch.setattr(testing, "_keep_up", after_the_pause)
    assert run_workflow(Flaky, {"number": 3}).state == "succeeded"


def test_run_that_fails_says_why():
    outcome = run_workflow(Flaky, {"number": 9})
    assert (outcome.state, outcome.result) == ("failed", None)
    assert "attempt 3 is too early" in outcome.error


def test_run_that_never_rests_is_an_assertion_with_its_step_and_error():
    tenant = get_or_make_tenant("default")
    with pytest.raises(AssertionError, match=r"did not come to rest within 0 s: it is \w+ in step 'fail'"):
        move_on(start("testing-hopeless", {"number": 1}, tenant=tenant, actor="test").run_id, patience=0)


def test_approval_is_given_under_its_name():
    waiting = run_workflow(Asks, {"number": 1})
    assert (waiting.state, waiting.waits_for) == ("waiting", ["go"])
    assert approve(waiting, "go", comment="fine").result == {"approved": True, "by": "test", "comment": "fine"}


def test_refusal_reaches_the_step_that_wants_it():
    assert refuse(run_workflow(Asks, {"number": 1}), "go", comment="no").result["approved"] is False


def test_approval_that_nobody_asked_for_is_an_assertion_that_says_what_is_waited_for():
    waiting = run_workflow(Asks, {"number": 1})
    with pytest.raises(AssertionError, match=r"does not ask for 'gone': it is waiting and waits for \['go'\]"):
        approve(waiting, "gone")


def test_event_reaches_only_the_correlation_it_names():
    waiting = run_workflow(Patient, {"number": 7})
    assert deliver(waiting, "testing-arrived", correlation="8").state == "waiting"
    assert deliver(waiting, "testing-arrived", correlation="7", payload={"ok": 1}).result == {"ok": 1}


def test_sleep_is_a_rest_that_ends_when_time_passes():
    asleep = run_workflow(Sleeper, {"number": 1})
    assert (asleep.state, asleep.waits_for) == ("waiting", ["sleep"])
    assert let_time_pass(asleep).result == {"awake": True}


def test_wait_expires_when_its_time_passes():
    outcome = let_time_pass(run_workflow(Patient, {"number": 7}))
    assert outcome.state == "failed"
    assert "testing-arrived" in outcome.error
    assert RunEvent.objects.get(run=outcome.run, event="wait_timeout").data["cause"] == "unresponsive_system"


def test_deadline_comes_when_nothing_comes_before_it():
    assert let_time_pass(run_workflow(Asks, {"number": 1})).state == "timed_out"


def test_each_turn_of_a_poll_takes_one_passing_of_time():
    turns.clear()
    outcome = run_workflow(Poller, {"number": 3})
    assert outcome.state == "waiting"
    outcome = let_time_pass(outcome)
    assert outcome.state == "waiting"
    assert let_time_pass(outcome).result == 3


def test_time_changes_nothing_for_a_finished_run():
    with pytest.raises(AssertionError, match="no clock of it is set"):
        let_time_pass(run_workflow(Double, {"number": 1}))


def test_child_runs_are_moved_too():
    assert run_workflow(Parent, {"number": 3}).result == [0, 2, 4]


def test_looking_moves_nothing():
    asleep = run_workflow(Sleeper, {"number": 1})
    assert look_at(asleep.run.pk).state == "waiting"


def test_bad_input_is_refused_as_a_start_refuses_it():
    with pytest.raises(InputRefused, match="number"):
        run_workflow(Double, {"number": "many"})


def test_worker_of_the_test_ends_its_lease():
    run_workflow(Double, {"number": 1})
    assert Worker.objects.filter(ended_at=None).count() == 0


def test_transaction_of_a_test_is_refused_with_the_remedy():
    with transaction.atomic(), pytest.raises(RuntimeError, match=r"django_db\(transaction=True\)"):
        run_workflow(Double, {"number": 1})
