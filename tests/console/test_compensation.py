"""Compensation on the pages: what waits for whom, deciding once, and what a cancel asks first."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from durableops import tool
from durableops.authoring import registry
from durableops.engine.compensation import undoing
from runs.models import AuditEntry, Compensation, CompensationOrder, Run
from tests.factories import make_effect, make_run
from tests.runs.compensation_violations import make_compensation

HTMX = {"HX-Request": "true"}


@pytest.fixture
def bank(db):
    """A tool that can be undone by another one, and one that a person undoes."""
    with registry.isolated():
        undoing.install()

        @tool(safety="keyed", name="refund")
        def refund(call, *, downstream_id: str): ...

        @tool(safety="keyed", name="charge", compensate=refund)
        def charge(call): ...

        @tool(safety="keyed", name="letter", instructions="Write another one.")
        def letter(call): ...

        @tool(safety="keyed", name="mail")
        def mail(call): ...

        yield


def acted(state: str = "waiting") -> Run:
    run = make_run(state=state)
    for tool_name in ("charge", "charge", "letter", "mail"):
        make_effect(run, state="succeeded", tool=tool_name, result="{}")
    return run


def do(browser: Any, one: Compensation, verb: str, **given: str) -> Any:
    return browser.post(reverse("console:compensation_verb", args=[one.pk, verb]), {"reason": "because", **given})


def text_of(browser: Any, one: Compensation) -> str:
    return str(browser.get(reverse("console:compensation", args=[one.pk])).content.decode())


# Cancelling and compensating.


def test_cancel_asks_what_becomes_of_what_was_done(signed_in, bank):
    run = acted()
    text = signed_in("operator").get(reverse("console:run_verb", args=[run.pk, "cancel"])).content.decode()
    assert "2 calls of <b>charge</b> (keyed) can be undone by a tool." in text
    assert "1 call of <b>letter</b> (keyed) can be undone by a person" in text
    assert [f'name="done" value="{word}"' in text for word in ("later", "compensate", "keep")] == [True] * 3
    assert 'value="later" checked' in text


def test_cancel_of_a_run_that_did_nothing_to_undo_asks_nothing(signed_in, bank):
    run = make_run(state="waiting")
    make_effect(run, state="succeeded", tool="mail", result="{}")
    text = signed_in("operator").get(reverse("console:run_verb", args=[run.pk, "cancel"])).content.decode()
    assert 'name="done"' not in text


@pytest.mark.parametrize(("done", "owed", "begun"), [("later", 3, 0), ("compensate", 3, 1), ("keep", 0, 0), ("", 3, 0)])
def test_cancel_does_with_it_what_was_chosen(signed_in, bank, done, owed, begun):
    run = acted()
    answer = signed_in("operator").post(
        reverse("console:run_verb", args=[run.pk, "cancel"]), {"reason": "because", "done": done}
    )
    assert answer.status_code == 302
    assert Compensation.objects.filter(run=run).count() == owed
    assert CompensationOrder.objects.filter(linked_run__isnull=False).count() == begun


def test_finished_run_offers_to_compensate_what_it_did_and_shows_it_first(signed_in, bank):
    run, operator = acted("failed"), signed_in("operator")
    assert "do-compensate" in operator.get(reverse("console:run", args=[run.pk])).content.decode()
    address = reverse("console:run_verb", args=[run.pk, "compensate"])
    text = operator.get(address).content.decode()
    assert "newest first" in text
    assert "2 calls of <b>charge</b>" in text
    hash_ = text.split('name="plan_hash" value="')[1].split('"')[0]
    make_effect(run, state="succeeded", tool="charge", result="{}")
    stale = operator.post(address, {"reason": "because", "plan_hash": hash_})
    assert (stale.status_code, Compensation.objects.count()) == (409, 0)
    assert "3 calls of <b>charge</b>" in stale.content.decode()
    fresh = stale.content.decode().split('name="plan_hash" value="')[1].split('"')[0]
    assert operator.post(address, {"reason": "because", "plan_hash": fresh}).status_code == 302
    assert Compensation.objects.filter(run=run).count() == 4
    page = operator.get(reverse("console:run", args=[run.pk]) + "?tab=effects").content.decode()
    assert "<dt>Owed</dt><dd>4 " in page
    assert page.count('id="undo-') == 4
    assert "do-compensate" not in page


def test_run_that_did_nothing_offers_no_compensation(signed_in, bank):
    run = make_run(state="failed")
    page = signed_in("operator").get(reverse("console:run", args=[run.pk])).content.decode()
    assert ("do-compensate" in page, "<dt>Owed" in page) == (False, False)


# Deciding.


@pytest.mark.parametrize(
    ("over", "offered"),
    [
        ({"state": "owed"}, {"done", "waive"}),
        ({"state": "proposed", "proposed_by": "ann", "four_eyes": True}, {"approve", "waive"}),
        ({"state": "proposed", "proposed_by": "ann", "evidence": "R"}, {"approve", "send-back", "waive"}),
        ({"state": "approved"}, {"done", "waive"}),
        ({"state": "running", "how": "person", "instructions": "do"}, {"done", "waive"}),
        ({"state": "running"}, set()),
        ({"state": "failed"}, {"done", "retry", "waive"}),
        ({"state": "waived", "reason": "r", "settled_by": "ann"}, set()),
    ],
)
def test_page_offers_what_fits_the_state(signed_in, over, offered):
    linked = {} if over["state"] == "owed" else {"linked_run": make_run()}
    if "settled_by" in over:
        over = {**over, "settled_at": linked["linked_run"].created_at}
    one = make_compensation(**over, **linked)
    text = text_of(signed_in("operator"), one)
    assert {name for name in ("approve", "send-back", "done", "retry", "waive") if f'id="do-{name}"' in text} == offered


def test_decision_is_made_audited_and_shown(signed_in):
    one = make_compensation()
    operator = signed_in("operator")
    answer = do(operator, one, "done", evidence="receipt 7", downstream_id="R7")
    assert answer.status_code == 302
    one.refresh_from_db()
    assert (one.state, one.settled_by, one.evidence, one.downstream_id) == ("done", "operator", "receipt 7", "R7")
    text = text_of(operator, one)
    assert ("receipt 7" in text, "Undone by <b>operator</b>" in text, "compensation done by hand" in text) == (
        True,
    ) * 3
    assert AuditEntry.objects.get().verb == "compensation_done_by_hand"


def test_why_it_is_owed_is_told_where_it_was_said(signed_in):
    operator = signed_in("operator")
    assert "Owed because they paid twice" in text_of(operator, make_compensation(because="they paid twice"))
    assert "Owed because" not in text_of(operator, make_compensation(because=""))


def test_second_person_is_told_who_was_first_and_keeps_what_they_wrote(signed_in):  # C046
    one = make_compensation()
    assert do(signed_in("operator"), one, "waive").status_code == 302
    for verb in ("waive", "done"):
        answer = do(signed_in("reviewer"), one, verb, evidence="receipt 7")
        assert answer.status_code == 409
        assert "is waived (operator, " in answer.content.decode()
    assert AuditEntry.objects.filter(verb="waive_compensation").count() == 1


def test_what_is_missing_is_said_and_nothing_is_lost(signed_in):
    one = make_compensation()
    answer = do(signed_in("operator"), one, "done", evidence=" ", reason="because of this")
    assert answer.status_code == 422
    assert "say what proves it" in answer.content.decode()
    assert "because of this" in answer.content.decode()


def test_whoever_proposed_is_told_that_another_person_has_to_agree(signed_in):
    one = make_compensation(state="proposed", proposed_by="operator", four_eyes=True, linked_run=make_run())
    text = text_of(signed_in("operator"), one)
    assert "Agree needs another person: you proposed it" in text
    assert do(signed_in("operator"), one, "approve").status_code == 409
    assert do(signed_in("reviewer"), one, "approve").status_code == 302


@pytest.mark.parametrize("name", ["viewer", "stranger"])
def test_nobody_else_decides(signed_in, name):
    one = make_compensation()
    assert do(signed_in(name), one, "waive").status_code == (404 if name == "stranger" else 403)
    one.refresh_from_db()
    assert one.state == "owed"


# The Inbox.


def test_inbox_lists_what_waits_for_a_person_oldest_first(signed_in):
    work = make_run()
    shown = [
        make_compensation(),
        make_compensation(state="failed", linked_run=work),
        make_compensation(state="proposed", proposed_by="ann", linked_run=work),
        make_compensation(state="running", how="person", instructions="Write another one.", linked_run=work),
    ]
    hidden = [
        make_compensation(state="approved", linked_run=work),
        make_compensation(state="running", linked_run=work),
    ]
    page = signed_in("reviewer").get(reverse("console:inbox") + "?queue=compensation").content.decode()
    places = [page.find(f'id="compensation-{one.pk}"') for one in shown]
    assert places == sorted(places)
    assert places[0] > 0
    assert not any(f'id="compensation-{one.pk}"' in page for one in hidden)
    assert "<b>4</b> open" in page
    assert "Write another one." in page


def test_entry_of_the_inbox_is_claimed_and_released(signed_in):
    one = make_compensation()
    reviewer = signed_in("reviewer")
    address = reverse("console:inbox_claim", args=["compensation", one.pk, "claim"])
    assert reviewer.post(address, headers=HTMX).status_code == 200
    one.refresh_from_db()
    assert one.claimed_by == "reviewer"
    assert signed_in("operator").post(address, headers=HTMX).status_code == 409
    reviewer.post(reverse("console:inbox_claim", args=["compensation", one.pk, "release"]), headers=HTMX)
    one.refresh_from_db()
    assert one.claimed_by == ""


def test_inbox_of_another_tenant_shows_nothing_of_it(signed_in):
    make_compensation()
    page = signed_in("stranger").get(reverse("console:inbox") + "?queue=compensation").content.decode()
    assert "<b>0</b> open" in page
