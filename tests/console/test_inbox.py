"""The Inbox: what waits for people, each queue for those who may do its work."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from durableops.console.inbox import frame
from durableops.console.inbox.doubts import Doubts
from runs.models import AuditEntry, Doubt
from tests.factories import events_of, make_doubt, make_effect, make_run, make_tenant, now

INBOX = reverse("console:inbox")


def doubted(**over):
    run = make_run(state="in_doubt", **over)
    effect = make_effect(run, state="in_doubt", tool="charge", resource="order 7", request_summary={"amount": 40})
    return make_doubt(effect, why="no answer came within 30 s")


def claim(browser, doubt, verb="claim", **more):
    return browser.post(reverse("console:inbox_claim", args=["doubt", doubt.pk, verb]), **more)


def test_doubt_is_listed_with_what_why_and_where(signed_in):
    doubt = doubted()
    page = signed_in("operator", sees_payloads=True).get(INBOX).content.decode()
    for told in ("charge · order 7", "no answer came within 30 s", "amount", str(doubt.run_id), "in doubt"):
        assert told in page


def test_doubt_of_a_run_that_ended_stays_listed(signed_in):
    run = make_run(state="cancelled")
    make_doubt(make_effect(run, state="in_doubt", tool="charge", resource="order 8"))
    assert "charge · order 8" in signed_in("operator").get(INBOX).content.decode()


def test_settled_doubt_is_not_listed(signed_in):
    doubt = doubted()
    Doubt.objects.update(settled_at=now(), settled_as="happened", settled_by="ann")
    page = signed_in("operator").get(INBOX).content.decode()
    assert doubt.effect.resource not in page
    assert "Nothing is open" in page


def test_requests_are_hidden_from_those_without_payload_sight(signed_in):
    doubted()
    assert "amount" not in signed_in("operator").get(INBOX).content.decode()


def test_queue_is_for_those_who_may_do_its_work(signed_in):
    doubted()
    viewer, stranger = (signed_in(name).get(INBOX).content.decode() for name in ("viewer", "stranger"))
    assert "Nothing here is for you" in viewer
    assert "Nothing is open" in stranger


def test_oldest_comes_first_and_pages_follow_each_other(signed_in, monkeypatch):
    monkeypatch.setattr("durableops.console.inbox.frame.PER_PAGE", 2)
    found = [doubted() for _ in range(5)]
    for age, doubt in enumerate(found):
        Doubt.objects.filter(pk=doubt.pk).update(since=now() - timedelta(hours=age))
    # Two that began at one instant are told apart by their numbers.
    Doubt.objects.filter(pk__in=[found[4].pk, found[3].pk]).update(since=now() - timedelta(hours=9))
    browser, seen, where = signed_in("operator"), [], "?queue=doubt"
    while where:
        answer = browser.get(INBOX + where)
        seen += [int(entry.key) for entry in answer.context["shown"].entries]
        where = answer.context["following"] and "?" + answer.context["following"]
    assert seen == [found[n].pk for n in (3, 4, 2, 1, 0)]


@pytest.mark.parametrize("cursor", ["x", "2026-01-01~", "~", "2026-13-01T00:00:00~4", "9" * 90])
def test_cursor_that_makes_no_sense_begins_at_the_beginning(signed_in, cursor):
    doubted()
    assert "order 7" in signed_in("operator").get(INBOX, {"queue": "doubt", "after": cursor}).content.decode()


def test_claim_says_who_is_on_it_and_release_frees_it_again(signed_in):
    doubt, browser = doubted(), signed_in("operator")
    assert claim(browser, doubt).status_code == 302
    assert "operator" in browser.get(INBOX + "?queue=doubt&mine=1").content.decode()
    doubt.refresh_from_db()
    assert (doubt.claimed_by, doubt.claimed_at is not None) == ("operator", True)
    claim(browser, doubt, "release")
    doubt.refresh_from_db()
    assert (doubt.claimed_by, doubt.claimed_at) == ("", None)
    assert events_of(doubt.run) == ["claim_doubt", "unclaim_doubt"]
    assert list(AuditEntry.objects.order_by("id").values_list("verb", "actor")) == [
        ("claim_doubt", "operator"), ("unclaim_doubt", "operator"),
    ]  # fmt: skip


def test_second_claim_hears_who_was_first_and_sees_the_queue_as_it_is(signed_in):
    doubt = doubted()
    claim(signed_in("operator"), doubt)
    answer = claim(signed_in("reviewer"), doubt, headers={"HX-Request": "true"})
    assert answer.status_code == 409
    assert "claimed by operator" in answer.content.decode()
    assert 'id="inbox-region"' in answer.content.decode()
    doubt.refresh_from_db()
    assert doubt.claimed_by == "operator"
    assert AuditEntry.objects.filter(verb="claim_doubt (refused)", actor="reviewer").exists()


def test_doubt_of_another_tenant_cannot_be_claimed(signed_in):
    doubt = doubted(tenant=make_tenant("other"))
    assert claim(signed_in("admin"), doubt).status_code == 404


def test_queue_is_registered_once():
    with pytest.raises(ValueError, match="registered twice"):
        frame.register(Doubts)
