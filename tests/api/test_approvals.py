from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runs.models import AuditEntry, Wait
from runs.states import State
from tests import factories
from tests.api.clients import read

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
