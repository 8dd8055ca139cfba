"""One doubt on its page: what is known of it, what each answer would do, and saying it once."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableops import Happened, tool
from durableops.authoring import registry
from runs.models import AuditEntry, Compensation, Doubt, Membership, Run, RunEvent
from tests.factories import (
    events_of,
    make_doubt,
    make_effect,
    make_person,
    make_run,
    make_tenant,
    make_worker,
    now,
)
from tests.fixtures.engine import Background, holding, until_blocked

HTMX = {"HX-Request": "true"}
PAST = timedelta(seconds=-1)


@pytest.fixture
def ledger(db):
    """A system that deduplicates nothing, with a tool that can be probed."""
    with registry.isolated():

        @tool(safety="legacy", system="ledger", name="post", timeout=3, resource_id="id", instructions="Write back.",
              probe=lambda call, **request: Happened({"id": "L-1"}))  # fmt: skip
        def post(call, *, amount: int): ...

        yield


def doubted(*, quiet: timedelta = PAST, state: str = "in_doubt", over: dict[str, Any] | None = None, **more: Any):
    run = make_run(state=state, fence=1)
    effect = make_effect(
        run, state="in_doubt", tool="post", resource="invoice 7", safety="legacy", request_summary={"amount": 40},
        quiet_after=now() + quiet, system="ledger", **{"holds_system": True, **(over or {})},
    )  # fmt: skip
    return make_doubt(effect, why="no answer came within 3 s", **more)


def text_of(browser: Any, doubt: Doubt) -> str:
    answer = browser.get(reverse("console:doubt", args=[doubt.pk]))
    assert answer.status_code == 200
    return str(answer.content.decode())


def at(doubt: Doubt, verb: str) -> str:
    return reverse("console:doubt_verb", args=[doubt.pk, verb])


def shown_hash(browser: Any, doubt: Doubt, verb: str) -> str:
    found = re.search(r'name="plan_hash" value="(\w+)"', browser.get(at(doubt, verb)).content.decode())
    assert found is not None
    return found[1]


def say(browser: Any, doubt: Doubt, verb: str, **given: Any) -> Any:
    """Open the dialog, as a person does, and send what it then holds."""
    headers = given.pop("headers", None)
    hash_ = given.pop("plan_hash", None) or shown_hash(browser, doubt, verb)
    return browser.post(at(doubt, verb), {"reason": "asked them", "plan_hash": hash_, **given}, headers=headers)


# What it shows.


def test_page_tells_what_was_sent_by_whom_and_how_long_nobody_knows(signed_in, ledger):
    doubt = doubted(probe_at=now() + timedelta(seconds=30), probe_attempts=2, probe_said="their search is down")
    worker = make_worker(host="box-3", pid=77)
    RunEvent.objects.create(run=doubt.run, event="claim", fence=1, worker_id=worker.pk)
    RunEvent.objects.create(run=doubt.run, event="effect_in_doubt", data={"effect": doubt.effect_id})
    text = text_of(signed_in("operator", sees_payloads=True), doubt)
    for told in (
        "no answer came within 3 s", "invoice 7", "&quot;amount&quot;: 40", f"worker {worker.number}", "box-3:77",
        "3.0 s", doubt.effect.key, "holds the queue of ledger", "their search is down", "effect in doubt", "asked 2×",
        "Write back.",
    ):  # fmt: skip
        assert told in text, told


def test_requests_and_responses_are_hidden_from_those_without_payload_sight(signed_in, ledger):
    doubt = doubted(over={"response_summary": {"status": 500, "body": "Miller"}})
    text = text_of(signed_in("operator"), doubt)
    assert ("Miller" in text, "amount" in text, "you have no payload sight here" in text) == (False, False, True)
    assert "Miller" in text_of(signed_in("admin", sees_payloads=True), doubt)


def test_page_says_what_each_answer_would_do_before_it_is_said(signed_in, ledger):
    text = text_of(signed_in("operator"), doubted(probe_at=now()))
    assert set(re.findall(r'id="offer-([a-z-]+)"', text)) == {
        "happened", "did-not", "compensate", "give-up", "release", "probe",
    }  # fmt: skip
    assert "it takes a new place at the end of the queue of ledger" in text
    assert "The queue of ledger goes on: 0 calls wait." in text
    assert "It may have happened, and is never sent again." in text


def test_sending_again_is_not_offered_while_a_sender_may_live_and_says_from_when_on(signed_in, ledger):
    doubt, operator = doubted(quiet=timedelta(hours=1)), signed_in("operator")
    text = text_of(operator, doubt)
    offer = text.split('id="offer-did-not"')[1].split("</li>")[0]
    assert 'aria-disabled="true"' in offer
    assert "may send it or wait for its answer for another" in offer
    assert f'datetime="{doubt.effect.quiet_after.isoformat()}"' in offer
    refused = say(operator, doubt, "did-not")
    assert (refused.status_code, Doubt.objects.filter(settled_at=None).count()) == (409, 1)


def test_sending_again_is_offered_at_once_when_the_process_is_known_to_be_gone(signed_in, ledger):
    doubt, operator = doubted(quiet=timedelta(hours=1)), signed_in("operator")
    worker = make_worker(gone=True)
    RunEvent.objects.create(run=doubt.run, event="claim", fence=1, worker_id=worker.pk)
    text = text_of(operator, doubt)
    assert ("gone for certain" in text, 'id="do-did-not" href' in text) == (True, True)
    assert say(operator, doubt, "did-not").status_code == 302


def test_viewer_reads_it_and_is_told_who_may_settle_it(signed_in, ledger):
    text = text_of(signed_in("viewer"), doubted())
    assert "It needs an operator, a reviewer or an admin of acme." in text
    assert 'href="/doubts/' not in text.split('id="offer-happened"')[1]


def test_doubt_of_another_tenant_is_not_there(signed_in, ledger):
    doubt = doubted()
    answers = [signed_in("stranger").get(reverse("console:doubt", args=[pk])) for pk in (doubt.pk, 10**15)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert signed_in("stranger").post(at(doubt, "happened"), {"reason": "r"}).status_code == 404


def test_page_asks_little_and_the_same_for_a_long_run(signed_in, ledger):
    free = {"holds_system": False}
    short, long, operator = doubted(over=free), doubted(over=free), signed_in("operator")
    for _ in range(30):
        RunEvent.objects.create(run=long.run, event="claim", data={"effect": long.effect_id})
        make_doubt(make_effect(long.run, state="in_doubt", resource="x"))
    counts = []
    for doubt in (short, long):
        with CaptureQueriesContext(connection) as captured:
            text_of(operator, doubt)
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 12


# Saying it.


def test_it_happened_is_said_with_their_id_and_evidence_and_shown(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    answer = say(operator, doubt, "happened", downstream_id=" L-7 ", evidence="statement 3")
    assert (answer.status_code, answer["Location"]) == (302, reverse("console:doubt", args=[doubt.pk]))
    doubt.effect.refresh_from_db()
    assert (doubt.effect.state, doubt.effect.downstream_id, doubt.effect.result) == ("succeeded", "L-7", '{"id":"L-7"}')
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.reason) == ("settle", "operator", "asked them")
    text = text_of(operator, doubt)
    for told in ("Settled by <b>operator</b>", "it happened", "L-7", "statement 3", "It happened: settled"):
        assert told in text, told
    assert 'data-live="' not in text
    assert Run.objects.get(pk=doubt.run_id).state == "queued"


def test_result_is_given_as_json_and_what_is_no_json_loses_nothing_that_was_typed(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    broken = say(operator, doubt, "happened", result="{no", evidence="statement 3", downstream_id="L-7")
    assert broken.status_code == 422
    for kept in ("{no", "statement 3", "L-7", "asked them"):
        assert kept in broken.content.decode()
    assert say(operator, doubt, "happened", result='{"id": "L-7", "fee": 2}').status_code == 302
    doubt.effect.refresh_from_db()
    assert doubt.effect.result == '{"id":"L-7","fee":2}'


@pytest.mark.parametrize(
    ("verb", "settled_as", "state"),
    [("did-not", "did_not", "withdrawn"), ("compensate", "compensate", "given_up"), ("give-up", "give_up", "given_up")],
)
def test_other_answers_do_what_they_say(signed_in, ledger, verb, settled_as, state):
    doubt = doubted()
    assert say(signed_in("reviewer"), doubt, verb).status_code == 302
    doubt.refresh_from_db()
    assert (doubt.settled_as, doubt.settled_by, doubt.effect.state) == (settled_as, "reviewer", state)
    assert Compensation.objects.count() == (verb == "compensate")


def test_sending_again_says_what_goes_out_and_is_not_done_by_whoever_saw_no_plan(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    assert "1 call of <b>post</b> (legacy)" in operator.get(at(doubt, "did-not")).content.decode()
    answer = operator.post(at(doubt, "did-not"), {"reason": "asked them"})
    assert (answer.status_code, "was not looked at" in answer.content.decode()) == (409, True)
    assert Doubt.objects.filter(settled_at=None).count() == 1


def test_reason_is_asked_for(signed_in, ledger):
    doubt = doubted()
    answer = say(signed_in("operator"), doubt, "give-up", reason=" ")
    assert (answer.status_code, Doubt.objects.filter(settled_at=None).count()) == (422, 1)
    assert "Say why" in answer.content.decode()


def test_queue_is_released_and_the_doubt_stays_open(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    assert operator.post(at(doubt, "release"), {"reason": "they restarted it"}).status_code == 302
    doubt.refresh_from_db()
    assert (doubt.settled_at, doubt.released_by, doubt.effect.holds_system) == (None, "operator", False)
    text = text_of(operator, doubt)
    assert "<b>operator</b> let the queue of ledger go on" in text
    assert 'id="offer-release"' not in text
    assert operator.post(at(doubt, "release"), {"reason": "again"}).status_code == 409


def test_probe_is_asked_now_and_only_while_its_run_is_in_doubt(signed_in, ledger):
    doubt, operator = doubted(probe_at=now() + timedelta(hours=1)), signed_in("operator")
    assert operator.post(at(doubt, "probe"), {}).status_code == 302
    assert Run.objects.get(pk=doubt.run_id).state == "queued"
    text = text_of(operator, doubt)
    assert "Its run is queued: a probe is asked by the step of a run in doubt." in text
    assert operator.post(at(doubt, "probe"), {}).status_code == 409


def test_doubt_without_a_probe_offers_none(signed_in):
    text = text_of(signed_in("operator"), doubted())
    assert 'id="offer-probe"' not in text


def test_claim_and_release_tell_who_is_on_it(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    assert operator.post(at(doubt, "claim")).status_code == 302
    assert "on it: <b" in text_of(operator, doubt)
    second = signed_in("reviewer").post(at(doubt, "claim"), headers=HTMX)
    assert (second.status_code, "is claimed by operator" in second.content.decode()) == (409, True)
    assert "operator is on it since" in signed_in("reviewer").get(at(doubt, "give-up")).content.decode()
    assert signed_in("reviewer").post(at(doubt, "unclaim")).status_code == 302
    assert operator.get(at(doubt, "claim")).status_code == 405


# Two at once.


def test_second_person_is_told_who_was_first_and_what_they_said(signed_in, ledger):  # C046
    doubt, operator, reviewer = doubted(), signed_in("operator"), signed_in("reviewer")
    stale = shown_hash(reviewer, doubt, "give-up")
    assert say(operator, doubt, "happened", downstream_id="L-7").status_code == 302
    answer = say(reviewer, doubt, "give-up", plan_hash=stale, headers=HTMX)
    assert (answer.status_code, answer["HX-Trigger"]) == (409, "verb-done")
    assert "was settled as happened by operator" in answer.content.decode()
    assert 'id="doubt-region"' in answer.content.decode()
    dialog = reviewer.get(at(doubt, "give-up")).content.decode()
    assert "operator settled it" in dialog
    assert "disabled>Give up finding out" in dialog


def test_double_click_settles_once(signed_in, ledger):  # C046
    doubt, operator = doubted(), signed_in("operator")
    hash_ = shown_hash(operator, doubt, "happened")
    answers = [say(operator, doubt, "happened", plan_hash=hash_).status_code for _ in range(2)]
    assert (answers, AuditEntry.objects.filter(verb="settle").count()) == ([302, 409], 1)


def test_stale_tab_is_refused_and_shown_the_plan_anew(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    stale = shown_hash(operator, doubt, "did-not")
    Run.objects.filter(pk=doubt.run_id).update(state="cancelled", finished_at=now())
    answer = say(operator, doubt, "did-not", plan_hash=stale, evidence="not on their list", headers=HTMX)
    text = answer.content.decode()
    assert (answer.status_code, answer["HX-Retarget"]) == (409, "#dialog")
    for told in ("has changed since it was shown", "Nothing is sent: its run has ended.", "not on their list"):
        assert told in text, told
    assert Doubt.objects.filter(settled_at=None).count() == 1
    fresh = re.search(r'name="plan_hash" value="(\w+)"', text)
    assert fresh is not None
    assert say(operator, doubt, "did-not", plan_hash=fresh[1]).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_press_at_once_one_wins_and_the_other_sees_what_happened(
    signed_in, ledger, clean_queue, second
):  # C046
    doubt = doubted()
    people = {name: signed_in(name) for name in ("operator", "reviewer")}
    verbs = {"operator": "happened", "reviewer": "give-up"}
    hashes = {name: shown_hash(people[name], doubt, verbs[name]) for name in people}

    def press(name: str) -> Any:
        try:
            return say(people[name], doubt, verbs[name], plan_hash=hashes[name])
        finally:
            connections.close_all()

    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [doubt.run_id]):
        pressed = []
        for count, name in enumerate(people, start=1):
            pressed.append(Background(lambda name=name: press(name)))  # type: ignore[misc]
            until_blocked(count=count)
    answers = [one.result() for one in pressed]
    assert sorted(answer.status_code for answer in answers) == [302, 409]
    doubt.refresh_from_db()
    loser = next(answer for answer in answers if answer.status_code == 409)
    assert f"by {doubt.settled_by} at" in loser.content.decode()
    assert events_of(doubt.run_id).count("settle") == 2  # what was said, and the move


# Where it is found.


def test_run_page_leads_to_every_open_doubt_also_of_a_run_that_ended(signed_in, ledger):
    for doubt in (doubted(), doubted(state="cancelled", over={"holds_system": False})):
        page = signed_in("viewer").get(reverse("console:run", args=[doubt.run_id]), {"tab": "effects"}).content.decode()
        assert f'<a href="{reverse("console:doubt", args=[doubt.pk])}"' in page
        assert "<dt>In doubt</dt><dd>1 " in page


def test_effect_page_and_inbox_lead_to_the_doubt(signed_in, ledger):
    doubt, operator = doubted(), signed_in("operator")
    place = reverse("console:doubt", args=[doubt.pk])
    for address in (reverse("console:effect", args=[doubt.run_id, doubt.effect_id]), reverse("console:inbox")):
        assert place in operator.get(address).content.decode()


def test_member_of_several_tenants_settles_each_with_the_role_they_have_there(signed_in, ledger):
    doubt = doubted()
    Membership.objects.create(user=make_person("viewer"), tenant=make_tenant("other"), role="admin")
    assert signed_in("viewer").post(at(doubt, "happened"), {"reason": "r"}).status_code == 403
