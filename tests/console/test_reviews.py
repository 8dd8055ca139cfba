"""Reviews in the Inbox and on the Run page: what does not fit, for whom, and the verbs with their consequences."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from durableops import State, migration, step, workflow
from runs.models import AuditEntry, Bulk, Review, Run
from tests.factories import make_run, make_tenant
from tests.runs.version_violations import make_review

INBOX = reverse("console:inbox") + "?queue=review"
RENAMED = [{"kind": "step_renamed", "subject": "load", "recorded": "fetch", "present": "load"}]


def test_review_is_listed_with_what_changed_how_many_are_alike_and_where(signed_in):
    first = make_review(differences=RENAMED)
    make_review(differences=RENAMED)
    page = signed_in("reviewer").get(INBOX).content.decode()
    for told in ("made v1", "step renamed", "fetch → load", ">2</a></td>", str(first.run_id), "in review"):
        assert told in page, told


def test_reviews_are_for_reviewers_of_their_tenant(signed_in):
    theirs = make_review(run=make_run(state="in_review", tenant=make_tenant("other")))
    ours = make_review()
    page = signed_in("reviewer").get(INBOX).content.decode()
    assert (str(ours.run_id) in page, str(theirs.run_id) in page) == (True, False)
    assert str(ours.run_id) not in signed_in("operator").get(INBOX).content.decode()


def test_decided_review_is_not_listed(signed_in):
    found = make_review()
    signed_in("reviewer").post(reverse("console:run_verb", args=[found.run_id, "pin"]), {"reason": "old worker stays"})
    run = Run.objects.get(pk=found.run_id)
    assert (run.state, run.pinned) == ("queued", True)
    assert (Review.objects.get().closed_as, AuditEntry.objects.get(verb="pin").actor) == ("pinned", "reviewer")
    assert "Nothing is open" in signed_in("reviewer").get(INBOX).content.decode()


def test_consequences_are_told_before_a_run_is_pinned(signed_in):
    found = make_review()
    page = signed_in("reviewer").get(reverse("console:run_verb", args=[found.run_id, "pin"])).content.decode()
    assert "Only workers that have" in page


def test_migration_that_cannot_be_made_is_refused_in_words(signed_in):
    found = make_review()
    answer = signed_in("reviewer").post(
        reverse("console:run_verb", args=[found.run_id, "migrate"]), {"reason": "try"}, headers={"HX-Request": "true"}
    )
    assert answer.status_code == 409
    assert "there is no workflow" in answer.content.decode()
    assert Run.objects.get(pk=found.run_id).state == "in_review"


def test_operator_cannot_decide_about_a_review(signed_in):
    found = make_review()
    answer = signed_in("operator").post(reverse("console:run_verb", args=[found.run_id, "reject"]), {"reason": "no"})
    assert answer.status_code == 403
    assert Run.objects.get(pk=found.run_id).state == "in_review"


# The desk.


@pytest.fixture
def desk(own_registry):
    """Two runs of version 1 with one finding, and the code of version 2, which migrates them."""
    own_registry.clear()

    class New(State):
        sources: list[str] = []

    newer = workflow(name="made", version=2, state=New, migrate="reviewed")(
        type("Made", (), {"first": step(id="first")(lambda run: None), "load": step(id="load")(lambda run: None)})
    )

    @migration(newer, from_version=1)
    def wrap(state: dict[str, Any]) -> dict[str, Any]:
        return {"sources": [state.get("source", "none")]}

    runs = [make_run(state="in_review") for _ in range(2)]
    return [make_review(run=run, differences=RENAMED) for run in runs]


def test_group_shows_what_does_not_fit_whose_runs_and_both_plans(signed_in, desk):
    page = signed_in("reviewer").get(reverse("console:review_group", args=["f" * 32])).content.decode()
    for told in ("step renamed", "acme", "Migrate all 2", *[str(one.run_id) for one in desk]):
        assert told in page
    assert signed_in("operator").get(reverse("console:review_group", args=["f" * 32])).status_code == 403


@pytest.mark.parametrize(("chosen", "runs"), [("selected", 1), ("all", 2)])
def test_chosen_runs_of_a_group_become_one_bulk_migration(signed_in, desk, chosen, runs):
    answer = signed_in("reviewer").post(
        reverse("console:review_group", args=["f" * 32]),
        {"tenant": "acme", "which": chosen, "run": str(desk[0].run_id)},
    )
    made = Bulk.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/bulk/{made.pk}/")
    assert (made.verb, made.runs, made.arguments) == (
        "migrate", runs, {"workflow": "made", "version": 2, "finding": "f" * 32},
    )  # fmt: skip


@pytest.mark.parametrize("run", [[], ["x"]])
def test_group_without_a_ticked_run_captures_nothing(signed_in, desk, run):
    where = reverse("console:review_group", args=["f" * 32])
    answer = signed_in("reviewer").post(where, {"tenant": "acme", "which": "selected", "run": run})
    assert (answer.status_code, Bulk.objects.count()) == (422, 0)


def test_review_shows_the_checkpoint_before_and_after_to_those_who_see_payloads(signed_in, desk):
    where = reverse("console:review", args=[desk[0].pk])
    seen = signed_in("reviewer", sees_payloads=True).get(where).content.decode()
    for told in ("wrap (1 → 2)", "&quot;sources&quot;", "stands here", "No call is at stake"):
        assert told in seen
    assert "&quot;sources&quot;" not in signed_in("reviewer").get(where).content.decode()
    assert signed_in("operator").get(where).status_code == 403
    assert signed_in("stranger").get(where).status_code == 404


def test_edited_state_is_compared_first_and_applied_when_it_is_sent_once_more(signed_in, desk):
    where = reverse("console:review_edit", args=[desk[0].pk])
    browser = signed_in("reviewer", sees_payloads=True)
    given = {"state": '{"sources": ["mended"]}', "step": "first", "reason": "mend it"}
    shown = browser.post(where, given)
    assert "Nothing is done yet" in shown.content.decode()
    assert Run.objects.get(pk=desk[0].run_id).state == "in_review"
    changed = browser.post(where, given | {"compared": shown.context["compared"], "state": '{"sources": []}'})
    assert "Nothing is done yet" in changed.content.decode()
    assert browser.post(where, given | {"compared": shown.context["compared"]}).status_code == 302
    run = Run.objects.get(pk=desk[0].run_id)
    assert (run.state, run.plan.version, run.head_seq) == ("queued", 2, 1)


def test_state_outside_the_schema_keeps_what_was_typed(signed_in, desk):
    browser = signed_in("reviewer", sees_payloads=True)
    given = {"state": '{"sources": 7}', "step": "first", "reason": "mend it"}
    answer = browser.post(reverse("console:review_edit", args=[desk[0].pk]), given)
    assert answer.status_code == 409
    assert "/sources" in answer.content.decode()
    assert "&quot;sources&quot;: 7" in answer.content.decode()


def test_review_is_claimed_in_the_inbox_and_second_reviewer_is_asked_on_the_run(signed_in, desk):
    reviewer = signed_in("reviewer")
    claim = reverse("console:inbox_claim", args=["review", desk[0].pk, "claim"])
    assert reviewer.post(claim).status_code == 302
    assert str(desk[0].run_id) in reviewer.get(INBOX + "&mine=1").content.decode()
    assert str(desk[1].run_id) not in reviewer.get(INBOX + "&mine=1").content.decode()
    where = reverse("console:run_verb", args=[desk[0].run_id, "ask_second"])
    assert "You" in reviewer.get(where).content.decode()
    reviewer.post(where, {"reason": "not sure"})
    assert Review.objects.get(pk=desk[0].pk).second_asked_by == "reviewer"
