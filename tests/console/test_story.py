"""The sentence under the title: why, since when, what wakes it, for every state and every gate."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse

from runs.models import PauseSwitch, RunEvent
from tests.factories import make_run, make_wait, make_worker, now


def told(signed_in, run):
    page = signed_in("admin", sees_payloads=True).get(reverse("console:run", args=[run.pk])).content.decode()
    head = page[page.index('class="why"') : page.index("run-strip")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", head))


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"state": "queued"}, "The next free worker starts it."),
        ({"state": "queued", "started_at": now(), "wake_detail": "worker w1 was lost"}, "Ready to go on with first"),
        ({"state": "queued", "due_at": now() + timedelta(days=1), "wake_detail": "attempt 1 failed"},
         "attempt 1 failed. It is tried again in"),
        ({"state": "running"}, "Step first is running on here, process 1 since"),
        ({"state": "running", "cancel_requested": True, "cancel_requested_by": "ann"}, "ann asked it to stop"),
        ({"state": "running", "paused": True, "paused_by": "ann"}, "ann asked it to pause"),
        ({"state": "in_doubt"}, "An effect may or may not have happened"),
        ({"state": "in_review"}, "Recheck wakes it."),
        ({"state": "succeeded"}, "Succeeded at"),
        ({"state": "failed", "error_message": "422 from crm"}, "failed for good at"),
        ({"state": "timed_out", "error_message": "its deadline has passed"}, "its deadline has passed"),
        ({"state": "cancelled", "cancel_requested_by": "ann", "cancel_reason": "wrong file"}, "Cancelled by ann"),
        ({"state": "exhausted", "error_message": "10,000 calls"}, "Ended with its budget spent"),
    ],
)  # fmt: skip
def test_every_state_explains_itself(signed_in, over, sentence):
    assert sentence in told(signed_in, make_run(**over))


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        ({"kind": "approval", "name": "delivery"}, "Waits for a reviewer to approve “delivery”"),
        ({"kind": "event", "name": "paid", "correlation": "INV-7"}, "the event “paid” for INV-7"),
        ({"kind": "file", "name": "contract"}, "a file “contract”"),
        ({"kind": "time", "name": "sleep", "due_at": now() + timedelta(hours=2)}, "Sleeps until"),
        ({"kind": "poll", "name": "customs", "turns": 3, "due_at": now()}, "Asks customs in turns, 3 so far"),
        ({"kind": "children", "name": "shard"}, "its child runs of shard"),
        ({"kind": "approval", "name": "d", "expires_at": now() + timedelta(days=3), "on_timeout": "cancel"},
         "the run is cancelled."),
    ],
)  # fmt: skip
def test_every_wait_says_what_wakes_it_and_what_ends_it(signed_in, wait, sentence):
    run = make_run(state="waiting")
    make_wait(run, **wait)
    assert sentence in told(signed_in, run)


def test_deadline_that_comes_before_the_waits_own_clock_is_named(signed_in):
    run = make_run(state="waiting", deadline_at=now() + timedelta(hours=1))
    make_wait(run, expires_at=now() + timedelta(days=1))
    assert "the run's deadline" in told(signed_in, run).replace("&#x27;", "'")


def test_gates_are_listed_with_who_and_why(signed_in):
    run = make_run(paused=True, paused_by="ann")
    PauseSwitch.objects.create(scope="all", actor="bob", reason="ledger is down")
    text = told(signed_in, run)
    assert "Paused by ann" in text
    assert "Everything is paused by bob" in text
    assert "ledger is down" in text
    assert "No worker is alive." in text


def test_no_worker_for_this_version_is_said(signed_in):
    run = make_run()
    make_worker(versions={"made": [2]}, plans=[])
    assert "No worker for v1: none of 1 living workers has made v1; queued for more than 15 s like this" in told(
        signed_in, run
    )


def test_pinned_run_that_still_waits_says_that_nobody_has_its_version(signed_in):
    run = make_run(state="waiting", pinned=True)
    worker = make_worker(versions={"made": [2]}, plans=[])
    text = told(signed_in, run)
    assert "has made v1, to which it is pinned; once it is queued, it counts as limbo after 15 s" in text
    worker.plans = [run.plan_id]
    worker.save()
    assert "No worker for" not in told(signed_in, run)


def test_review_says_why_it_was_parked(signed_in):
    run = make_run(state="in_review")
    RunEvent.objects.create(run=run, event="park", reason="step ids were reordered")
    assert "step ids were reordered" in told(signed_in, run)


@pytest.mark.parametrize("state", ["queued", "running", "waiting", "in_doubt", "in_review", "succeeded", "failed",
                                   "cancelled", "timed_out", "exhausted"])  # fmt: skip
def test_only_buttons_that_fit_the_state_are_offered(signed_in, state):
    """The page, the form and the verb agree: what is offered is done, what is not offered is refused."""
    admin = signed_in("admin")
    run = make_run(state=state)
    page = admin.get(reverse("console:run", args=[run.pk])).content.decode()
    for verb in ("pause", "resume", "retry", "recheck", "cancel"):
        fresh = make_run(state=state)
        address = reverse("console:run_verb", args=[fresh.pk, verb])
        offered = f'id="do-{verb}"' in page
        assert admin.post(address, {"reason": "because"}).status_code == (302 if offered else 409), verb
