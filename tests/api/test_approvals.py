from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from durableops.authoring import asking
from durableops.authoring.asking import Choice
from runs.models import Approval, AuditEntry, Wait
from runs.states import State
from tests import factories
from tests.api.clients import Caller, read
from tests.runs.approval_violations import make_approval

FACTS = "f" * 64


@pytest.fixture
def wait(acme) -> Wait:
    run = factories.make_run(state=State.WAITING, tenant=acme)
    return factories.make_wait(run, kind="approval", name="delivery", facts="{}", facts_hash=FACTS)


@pytest.mark.parametrize(("verb", "answer"), [("approve", "true"), ("refuse", "false")])
def test_decision_wakes_the_run_and_is_in_the_audit(caller, wait, verb, answer):
    response = caller.post(f"/approvals/{wait.pk}/{verb}", {"facts_hash": FACTS, "reason": "looked at it"})
    assert response.status_code == 200
    wait.refresh_from_db()
    wait.run.refresh_from_db()
    assert (wait.state, wait.run.state) == ("answered", State.QUEUED)
    assert f'"approved":{answer}' in (wait.answer or "")
    assert AuditEntry.objects.get(target_kind="run").verb == verb


def test_second_decision_is_refused_and_names_the_first(caller, wait):
    caller.post(f"/approvals/{wait.pk}/approve", {"facts_hash": FACTS})
    response = caller.post(f"/approvals/{wait.pk}/refuse", {"facts_hash": FACTS, "reason": "no"})
    assert response.status_code == 409
    assert caller.issued.token.name in read(response)["detail"]
    verbs = AuditEntry.objects.filter(target_kind="run").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["approve", "refuse (refused)"]


def test_decision_about_other_facts_is_refused(caller, wait):
    response = caller.post(f"/approvals/{wait.pk}/approve", {"facts_hash": "e" * 64})
    assert response.status_code == 409
    wait.refresh_from_db()
    assert wait.state == "open"


def test_decision_after_the_expiry_is_refused(caller, wait):
    Wait.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert caller.post(f"/approvals/{wait.pk}/approve", {"facts_hash": FACTS}).status_code == 409


@pytest.mark.parametrize(
    ("verb", "body", "path"),
    [
        ("approve", {}, "/facts_hash"),
        ("approve", {"facts_hash": ""}, "/facts_hash"),
        ("refuse", {"facts_hash": FACTS}, "/reason"),
        ("refuse", {"facts_hash": FACTS, "reason": ""}, "/reason"),
    ],
)
def test_decision_wants_the_facts_and_a_refusal_wants_a_reason(caller, wait, verb, body, path):
    response = caller.post(f"/approvals/{wait.pk}/{verb}", body)
    assert (response.status_code, read(response)["path"]) == (400, path)


@pytest.mark.parametrize("wait_id", [0, 999_999_999, 2**63, 10**30, "x", "-1", "9" * 5000])
def test_approval_that_is_not_there_is_a_404(caller, wait_id):
    assert caller.post(f"/approvals/{wait_id}/approve", {"facts_hash": FACTS}).status_code == 404


def test_wait_that_is_no_approval_cannot_be_decided(caller, acme):
    wait = factories.make_wait(factories.make_run(state=State.WAITING, tenant=acme), name="paid")
    assert caller.post(f"/approvals/{wait.pk}/approve", {"facts_hash": FACTS}).status_code == 404


@pytest.fixture
def form(wait) -> Approval:
    terms = asking.terms(choices=[Choice("pay"), Choice("half")], form={"amount": int})
    return make_approval(run=wait.run, wait=wait, choices=terms.choices, fields=terms.fields)


def test_question_is_read_with_its_facts_choices_form_and_who_may_decide(caller, form):
    found = read(caller.get(f"/approvals/{form.pk}"))
    assert [one["name"] for one in found["choices"]] == ["pay", "half", "refuse"]
    assert [(one["name"], one["kind"], one["required"]) for one in found["form"]] == [("amount", "integer", True)]
    assert (found["facts"], found["facts_hash"], found["roles"], found["why_not"]) == ({}, FACTS, ["reviewer"], "")


def test_facts_are_for_tokens_that_see_payloads(acme, form):
    found = read(Caller(acme, ["runs:read"]).get(f"/approvals/{form.pk}"))
    assert (found["facts"], found["why_not"]) == (None, "a reviewer of acme")


def test_yes_says_which_and_fills_in_the_form(caller, form):
    body = {"facts_hash": FACTS, "choice": "half", "values": {"amount": 3}}
    for wrong in ({"choice": ""}, {"choice": "refuse"}, {"values": None}, {"values": {"amount": "3"}}):
        assert caller.post(f"/approvals/{form.pk}/approve", body | wrong).status_code == 400
    assert caller.post(f"/approvals/{form.pk}/approve", body).status_code == 200
    found = read(caller.get(f"/approvals/{form.pk}"))
    assert (found["state"], found["choice"], found["decided_by"]) == (
        "answered",
        "half",
        f"token {caller.issued.token.name} ({caller.issued.token.prefix})",
    )


def test_token_decides_nothing_that_is_for_admins(caller, form):
    Approval.objects.update(roles=["admin"])
    body = {"facts_hash": FACTS, "choice": "pay", "values": {"amount": 3}}
    response = caller.post(f"/approvals/{form.pk}/approve", body)
    assert (response.status_code, read(response)["needs"]) == (403, "an admin of acme")


def test_open_questions_are_listed_in_pages_and_notes_are_read_with_them(caller, acme, form):
    for n in range(3):
        factories.make_wait(factories.make_run(state=State.WAITING, tenant=acme), kind="approval", name=f"q{n}")
    seen, after = [], 0
    while after is not None:
        page = read(caller.get(f"/approvals?limit=2&after={after}"))
        seen += [one["name"] for one in page["approvals"]]
        after = page["next"]
    assert seen == ["delivery", "q0", "q1", "q2"]
    assert caller.post(f"/approvals/{form.pk}/comment", {"reason": "asked them"}).status_code == 200
    assert [one["text"] for one in read(caller.get(f"/approvals/{form.pk}"))["comments"]] == ["asked them"]
    assert caller.get("/approvals?stat=open").status_code == 400
