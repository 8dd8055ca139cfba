"""Verbs: consequences first, a reason, one effect however often it is pressed, and a fresh page as the answer."""

from __future__ import annotations

import pytest
from django.urls import reverse

from runs.models import AuditEntry
from tests.factories import make_effect, make_run

HTMX = {"HX-Request": "true"}


def decide(run, wait, verb="approve"):
    return reverse("console:decide", args=[run.pk, wait.pk, verb])


def test_approval_shows_question_and_facts_before_it_is_given(signed_in, asking):
    page = signed_in("reviewer").get(decide(*asking)).content.decode()
    assert "Deliver?" in page
    assert "rows" in page
    assert 'name="facts_hash" value="' + "f" * 64 in page


def test_approving_wakes_the_run_and_writes_the_audit(signed_in, asking):
    run, wait = asking
    answer = signed_in("reviewer").post(
        decide(run, wait), {"facts_hash": wait.facts_hash, "reason": "looks right"}, headers=HTMX
    )
    run.refresh_from_db()
    wait.refresh_from_db()
    entry = AuditEntry.objects.get(verb="approve")
    assert (answer.status_code, run.state, wait.answered_by) == (200, "queued", "reviewer")
    assert (entry.actor, entry.reason, entry.target_id) == ("reviewer", "looks right", str(run.pk))
    # Read your writes: the answer is the run as it is now.
    assert 'data-state="queued"' in answer.content.decode()
    assert "delivery was approved." in answer.content.decode()


def test_second_click_on_approve_is_refused_with_the_fresh_region_and_one_sentence(signed_in, asking):
    run, wait = asking
    reviewer = signed_in("reviewer")
    given = {"facts_hash": wait.facts_hash}
    assert reviewer.post(decide(run, wait), given, headers=HTMX).status_code == 200
    again = reviewer.post(decide(run, wait), given, headers=HTMX)
    text = again.content.decode()
    assert again.status_code == 409
    assert 'id="run-live"' in text
    assert "was answered by reviewer" in text
    assert "Nothing was changed." in text
    assert AuditEntry.objects.filter(verb="approve").count() == 1


def test_stale_tab_cannot_decide_about_facts_it_did_not_show(signed_in, asking):
    run, wait = asking
    answer = signed_in("reviewer").post(decide(run, wait), {"facts_hash": "0" * 64}, headers=HTMX)
    wait.refresh_from_db()
    assert (answer.status_code, wait.state) == (409, "open")
    assert "the facts changed" in answer.content.decode()


def test_refusing_wants_a_reason_and_keeps_the_dialog(signed_in, asking):
    answer = signed_in("reviewer").post(
        decide(asking[0], asking[1], "refuse"), {"facts_hash": asking[1].facts_hash}, headers=HTMX
    )
    assert (answer.status_code, answer["HX-Retarget"]) == (422, "#dialog")
    assert "Say why" in answer.content.decode()


def test_refusing_tells_the_run_and_keeps_the_reason(signed_in, asking):
    run, wait = asking
    signed_in("reviewer").post(decide(run, wait, "refuse"), {"facts_hash": wait.facts_hash, "reason": "too early"})
    wait.refresh_from_db()
    assert wait.answer == '{"approved":false,"comment":"too early"}'


def test_verbs_work_without_javascript(signed_in, asking):
    run, wait = asking
    reviewer = signed_in("reviewer")
    answer = reviewer.post(decide(run, wait), {"facts_hash": wait.facts_hash}, follow=True)
    assert answer.redirect_chain == [(f"/runs/{run.pk}/", 302)]
    assert "delivery was approved." in answer.content.decode()
    assert reviewer.post(decide(run, wait), {"facts_hash": wait.facts_hash}).status_code == 409


def test_asking_for_a_verb_changes_nothing(signed_in):
    run = make_run()
    admin = signed_in("admin")
    for verb in ("pause", "cancel"):
        assert admin.get(reverse("console:run_verb", args=[run.pk, verb])).status_code == 200
    run.refresh_from_db()
    assert (run.state, run.paused, AuditEntry.objects.count()) == ("queued", False, 0)


@pytest.mark.parametrize(
    ("verb", "state", "over", "after"),
    [
        ("pause", "queued", {}, ("queued", True)),
        ("resume", "queued", {"paused": True, "paused_by": "somebody"}, ("queued", False)),
        ("cancel", "waiting", {}, ("cancelled", False)),
        ("retry", "failed", {}, ("queued", False)),
        ("recheck", "in_review", {}, ("queued", False)),
    ],
)
def test_verb_does_what_its_button_says(signed_in, verb, state, over, after):
    run = make_run(state=state, **over)
    answer = signed_in("operator").post(
        reverse("console:run_verb", args=[run.pk, verb]), {"reason": "because"}, headers=HTMX
    )
    run.refresh_from_db()
    assert (answer.status_code, (run.state, run.paused)) == (200, after)
    assert AuditEntry.objects.filter(verb=verb, actor="operator").count() == 1


@pytest.mark.parametrize(
    ("verb", "state"),
    [("pause", "succeeded"), ("resume", "queued"), ("cancel", "failed"), ("retry", "running"), ("recheck", "queued")],
)
def test_verb_that_does_not_fit_answers_409_and_the_run_as_it_is(signed_in, verb, state):
    run = make_run(state=state)
    answer = signed_in("operator").post(
        reverse("console:run_verb", args=[run.pk, verb]), {"reason": "because"}, headers=HTMX
    )
    text = answer.content.decode()
    assert answer.status_code == 409
    assert f"run {run.pk} is {state}" in text
    assert 'id="run-live"' in text


def test_deadline_is_extended_in_the_persons_zone(signed_in):
    from datetime import timedelta

    from tests.factories import now

    run = make_run(deadline_at=now() + timedelta(hours=1))
    operator = signed_in("operator")
    operator.cookies["zone"] = "Europe/Berlin"
    wanted = f"{now().year + 2}-01-01T12:00"
    operator.post(reverse("console:run_verb", args=[run.pk, "extend"]), {"reason": "because", "deadline_at": wanted})
    run.refresh_from_db()
    assert run.deadline_at is not None
    assert run.deadline_at.isoformat() == f"{now().year + 2}-01-01T11:00:00+00:00"


def test_cancel_names_the_calls_without_an_outcome_first(signed_in):
    run = make_run(state="waiting")
    make_effect(run, tool="post_ledger")
    page = signed_in("operator").get(reverse("console:run_verb", args=[run.pk, "cancel"])).content.decode()
    assert "1 call of <b>post_ledger</b> (keyed): no outcome on record, stays listed" in page


def test_resume_tells_what_becomes_of_each_open_call_by_its_class(signed_in):
    run = make_run(state="waiting", paused=True, paused_by="ann")
    make_effect(run, tool="desk.post")
    make_effect(run, tool="ledger.post", safety="legacy", state="in_doubt")
    make_effect(run, tool="mailed", state="succeeded")
    page = signed_in("operator").get(reverse("console:run_verb", args=[run.pk, "resume"])).content.decode()
    assert "1 call of <b>desk.post</b> (keyed): no outcome on record, sent again <b>with the old key" in page
    assert "1 call of <b>ledger.post</b> (legacy): may or may not have happened, and not sent again" in page
    assert "mailed" not in page
