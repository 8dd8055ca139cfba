"""Questions to people on the pages: the form, who it is for, handing it on, and the queue of the Inbox."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from durableops.authoring import asking
from durableops.authoring.asking import Choice
from runs.models import Approval, Wait
from tests.factories import make_run, make_tenant, make_wait, now
from tests.runs.approval_violations import make_approval

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
HTMX = {"HX-Request": "true"}
INBOX = reverse("console:inbox")
TERMS = asking.terms(
    choices=[Choice("pay", "Pay it"), Choice("half", "Pay half")], form={"amount": int, "note": (str, "")}
)


@pytest.fixture
def question() -> Approval:
    run = make_run(state="waiting", created_by="admin")
    wait = make_wait(
        run, kind="approval", name="payment", question="Pay ann?", facts='{"to":"ann"}', facts_hash="f" * 64,
        expires_at=now() + timedelta(hours=2), on_timeout="cancel",
    )  # fmt: skip
    return make_approval(run=run, wait=wait, choices=TERMS.choices, fields=TERMS.fields)


def at(question: Approval, verb: str = "decide") -> str:
    return reverse("console:decide", args=[question.run_id, question.pk, verb])


def given(question: Approval, **more: str) -> dict[str, str]:
    return {"facts_hash": "f" * 64, "choice": "pay", "reason": "fine", "in.amount": "40", **more}


def answer_of(question: Approval):
    return json.loads(Wait.objects.get(pk=question.pk).answer or "null")


def test_page_shows_facts_form_choices_and_what_happens_when_nobody_decides(signed_in, question):
    page = signed_in("reviewer").get(at(question)).content.decode()
    for told in ("Pay ann?", "<dd>ann</dd>", 'name="in.amount"', "Pay half", "Refuse", "the run is cancelled",
                 "For a reviewer"):  # fmt: skip
        assert told in page


def test_decision_with_its_form_is_kept_and_shown_to_those_who_may_see_it(signed_in, question):
    reviewer = signed_in("reviewer")
    answer = reviewer.post(at(question), given(question, choice="half"), headers=HTMX)
    assert answer.status_code == 200
    assert answer_of(question) == {
        "approved": True, "comment": "fine", "choice": "half", "values": {"amount": 40, "note": ""},
    }  # fmt: skip
    tab = reverse("console:run", args=[question.run_id]) + "?tab=decisions"
    assert "hidden" in reviewer.get(tab).content.decode()
    shown = signed_in("reviewer", sees_payloads=True).get(tab).content.decode()
    assert "Pay half" in shown
    assert "</span> 40" in shown


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"in.amount": "many"}, "a whole number"),
        ({"in.amount": ""}, "Amount is missing"),
        ({"choice": "x"}, "say which"),
    ],
)
def test_form_that_does_not_fit_keeps_the_dialog_and_what_was_typed(signed_in, question, change, told):
    answer = signed_in("reviewer").post(at(question), given(question, **{"in.note": "mine"}, **change), headers=HTMX)
    text = answer.content.decode()
    assert (answer.status_code, answer["HX-Retarget"]) == (422, "#dialog")
    assert told.lower() in text.lower()
    assert "mine" in text
    assert answer_of(question) is None


def test_facts_that_changed_are_refused_and_shown_anew(signed_in, question):
    Wait.objects.update(facts='{"to":"eve"}', facts_hash="e" * 64)
    answer = signed_in("reviewer").post(at(question), given(question, **{"in.note": "mine"}), headers=HTMX)
    text = answer.content.decode()
    assert (answer.status_code, answer["HX-Retarget"]) == (409, "#dialog")
    assert "<dd>eve</dd>" in text
    assert 'value="' + "e" * 64 in text
    assert answer_of(question) is None


def test_no_needs_a_reason_and_no_form(signed_in, question):
    reviewer = signed_in("reviewer")
    no = {"facts_hash": "f" * 64, "choice": "refuse"}
    assert reviewer.post(at(question), no, headers=HTMX).status_code == 422
    assert reviewer.post(at(question), no | {"reason": "no"}, headers=HTMX).status_code == 200
    assert answer_of(question) == {"approved": False, "comment": "no"}


@pytest.mark.parametrize(
    ("over", "who", "status"),
    [
        ({}, "reviewer", 200), ({}, "operator", 403), ({"roles": ["operator"]}, "operator", 200),
        ({"roles": ["operator"]}, "reviewer", 403), ({"roles": ["admin"]}, "reviewer", 403),
        ({"four_eyes": True}, "admin", 403), ({"four_eyes": True}, "reviewer", 200), ({}, "stranger", 404),
        ({"delegated_to": "bob", "delegated_by": "ann", "delegated_at": LONG_AGO}, "reviewer", 403),
        ({"roles": ["operator"], "escalate_to": "reviewer", "escalated_at": LONG_AGO}, "reviewer", 200),
    ],
    ids=str,
)  # fmt: skip
def test_question_is_for_those_it_names_and_nobody_else(signed_in, question, over, who, status):
    Approval.objects.update(**over)
    browser = signed_in(who)
    assert browser.get(at(question)).status_code == status
    done = browser.post(at(question), given(question), headers=HTMX)
    assert done.status_code == status
    assert (answer_of(question) is not None) == (status == 200)


def test_question_is_handed_on_passed_on_and_noted_from_its_dialogs(signed_in, question):
    admin, reviewer = signed_in("admin"), signed_in("reviewer")
    assert (
        '<option value=""></option><option>admin</option><option>reviewer</option>'
        in admin.get(at(question, "delegate")).content.decode()
    )
    assert admin.post(at(question, "delegate"), {"to": "reviewer", "reason": "yours"}).status_code == 302
    assert admin.post(at(question, "delegate"), {"to": "viewer", "reason": "yours"}).status_code == 422
    reviewer.post(at(question, "comment"), {"reason": "asked the customer"})
    reviewer.post(at(question, "escalate"), {"reason": "too large"})
    page = reviewer.get(at(question)).content.decode()
    assert "asked the customer" in page
    assert "Passed on to admins by reviewer" in page
    question.refresh_from_db()
    assert (question.delegated_to, question.escalated_by) == ("", "reviewer")


def test_inbox_lists_questions_with_who_they_are_for_and_when_a_clock_decides(signed_in, question):
    page = signed_in("reviewer").get(INBOX + "?queue=approval").content.decode()
    for told in (
        "payment",
        "Pay ann?",
        "a reviewer",
        "ends soon",
        "Nobody answers: the run is cancelled",
        at(question),
    ):
        assert told in page
    other = signed_in("operator").get(INBOX + "?queue=approval").content.decode()
    assert "not for you" in other
    assert at(question) not in other


def test_inbox_shows_no_question_of_another_tenant_nor_one_that_was_answered(signed_in, question):
    elsewhere = make_run(state="waiting", tenant=make_tenant("other"))
    make_wait(elsewhere, kind="approval", name="theirs")
    make_wait(make_run(), kind="approval", name="over", state="answered", answer="{}")
    page = signed_in("reviewer").get(INBOX + "?queue=approval").content.decode()
    assert "payment" in page
    assert "theirs" not in page
    assert "<b>over</b>" not in page


def test_question_is_claimed_released_and_found_under_mine(signed_in, question):
    reviewer = signed_in("reviewer")
    where = reverse("console:inbox_claim", args=["approval", question.pk, "claim"])
    assert "payment" not in reviewer.get(INBOX + "?queue=approval&mine=1").content.decode()
    assert reviewer.post(where).status_code == 302
    assert "payment" in reviewer.get(INBOX + "?queue=approval&mine=1").content.decode()
    assert signed_in("admin").post(where).status_code == 409
    reviewer.post(where.replace("/claim/", "/release/"))
    question.refresh_from_db()
    assert question.claimed_by == ""


def test_round_and_role_stand_in_the_runs_sentence(signed_in, question):
    Approval.objects.update(round=3, roles=["operator", "reviewer"])
    page = signed_in("viewer").get(reverse("console:run", args=[question.run_id])).content.decode()
    assert "an operator or a reviewer to decide “payment”</b>, round 3" in page
