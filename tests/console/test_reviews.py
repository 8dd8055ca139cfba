"""Reviews in the Inbox and on the Run page: what does not fit, for whom, and the verbs with their consequences."""

from __future__ import annotations

from django.urls import reverse

from runs.models import AuditEntry, Review, Run
from tests.factories import make_run, make_tenant
from tests.runs.version_violations import make_review

INBOX = reverse("console:inbox") + "?queue=review"
RENAMED = [{"kind": "step_renamed", "subject": "load", "recorded": "fetch", "present": "load"}]


def test_review_is_listed_with_what_changed_how_many_are_alike_and_where(signed_in):
    first = make_review(differences=RENAMED)
    make_review(differences=RENAMED)
    page = signed_in("reviewer").get(INBOX).content.decode()
    for told in ("made v1", "step renamed", "fetch → load", '<td class="num">2</td>', str(first.run_id), "in review"):
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
