"""What is owed over the API: listed oldest first, decided once, and nothing of other tenants."""

from __future__ import annotations

import pytest

from runs.models import AuditEntry, Compensation
from tests.api.clients import Caller, read
from tests.factories import make_compensation, make_effect, make_run

WHY = {"reason": "asked them"}


@pytest.fixture
def owed(acme) -> Compensation:
    run = make_run(state="cancelled", tenant=acme)
    return make_compensation(make_effect(run, state="succeeded", tool="post", resource="order 7"))


def test_what_is_owed_is_listed_in_pages_and_what_is_settled_with_its_run(caller, acme, owed):
    more = [make_compensation(make_effect(make_run(state="cancelled", tenant=acme), state="succeeded")) for _ in "abcd"]
    seen, query = [], "?limit=2"
    while query:
        page = read(caller.get(f"/compensations{query}"))
        seen += [one["id"] for one in page["compensations"]]
        query = f"?limit=2&cursor={page['next']}" if page["next"] else ""
    assert seen == [owed.pk, *(one.pk for one in more)]
    caller.post(f"/compensations/{owed.pk}/done", {"evidence": "receipt 7"})
    assert owed.pk not in [one["id"] for one in read(caller.get("/compensations"))["compensations"]]
    [settled] = read(caller.get(f"/compensations?run={owed.run_id}"))["compensations"]
    assert (settled["state"], settled["evidence"]) == ("done", "receipt 7")


def test_undone_by_hand_is_proved_once_and_audited(caller, owed):
    answer = caller.post(f"/compensations/{owed.pk}/done", {"evidence": "receipt 7", "downstream_id": "R-7"})
    assert (answer.status_code, read(answer)["state"]) == (200, "done")
    shown = read(caller.get(f"/compensations/{owed.pk}"))
    assert (shown["downstream_id"], shown["settled_by"].startswith("token")) == ("R-7", True)
    again = caller.post(f"/compensations/{owed.pk}/waive", WHY)
    assert (again.status_code, "is done" in read(again)["detail"]) == (409, True)
    assert [entry.verb for entry in AuditEntry.objects.filter(target_kind="run").order_by("id")] == [
        "compensation_done_by_hand", "waive_compensation (refused)",
    ]  # fmt: skip


def test_with_four_eyes_a_second_token_has_to_agree(caller, acme, owed):
    Compensation.objects.filter(pk=owed.pk).update(four_eyes=True)
    assert read(caller.post(f"/compensations/{owed.pk}/done", {"evidence": "receipt 7"}))["state"] == "proposed"
    assert caller.post(f"/compensations/{owed.pk}/approve", {}).status_code == 409
    second = Caller(acme, ["effects:settle"], name="second")
    assert second.post(f"/compensations/{owed.pk}/send-back", {}).status_code == 400
    assert read(second.post(f"/compensations/{owed.pk}/send-back", WHY))["state"] == "owed"
    caller.post(f"/compensations/{owed.pk}/done", {"evidence": "receipt 8"})
    assert read(second.post(f"/compensations/{owed.pk}/approve", {}))["state"] == "done"


def test_waiving_wants_a_reason_and_claiming_says_who_is_on_it(caller, owed):
    assert caller.post(f"/compensations/{owed.pk}/claim", {}).status_code == 200
    assert read(caller.get(f"/compensations/{owed.pk}"))["claimed_by"].startswith("token")
    assert caller.post(f"/compensations/{owed.pk}/waive", {"reason": ""}).status_code == 400
    assert read(caller.post(f"/compensations/{owed.pk}/waive", WHY))["state"] == "waived"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/compensations/99999999999999999999", 404),
        ("/compensations?run=x", 400),
        ("/compensations?cursor=made-up", 400),
        ("/compensations?state=owed", 400),
    ],
)
def test_what_is_not_there_is_refused(caller, path, status):
    assert caller.get(path).status_code == status


def test_other_tenants_owe_nothing_here(stranger, owed):  # C143
    assert read(stranger.get("/compensations"))["compensations"] == []
    assert read(stranger.get(f"/compensations?run={owed.run_id}"))["compensations"] == []
    assert stranger.get(f"/compensations/{owed.pk}").status_code == 404
    assert stranger.post(f"/compensations/{owed.pk}/waive", WHY).status_code == 404
