"""Legacy systems on the pages: what waits and in which order, what holds them, who may pause, resume and reorder."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableops.console import systems
from runs.models import AuditEntry, IdempotencyRecord, Membership, Run, System, Tenant
from tests.factories import make_doubt, make_effect, make_person, make_run, make_tenant, now

HTMX = {"HX-Request": "true"}
LIST = reverse("console:systems")
ONE = reverse("console:system", args=["ledger"])


@pytest.fixture
def ledger(db) -> System:
    return System.objects.create(name="ledger")


def called(state: str = "queued", *, run: Run | None = None, tenant: Tenant | None = None, **over: Any):
    run = run or make_run(tenant=tenant or make_tenant())
    values = {"safety": "legacy", "system": "ledger", "tool": "post", **over}
    return make_effect(run, state=state, **values)


def text_of(browser: Any, address: str) -> str:
    answer = browser.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def at(verb: str) -> str:
    return reverse("console:system_verb", args=["ledger", verb])


def order(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="call-(\d+)"', page)]


# What they show.


def test_list_without_systems_says_what_would_be_here(signed_in):
    assert "No call was ever queued for a legacy system" in text_of(signed_in("viewer"), LIST)


def test_list_counts_what_waits_of_all_and_of_ones_own_tenants(signed_in, ledger):
    own = [called() for _ in range(2)]
    called(tenant=make_tenant("other"))
    page = text_of(signed_in("viewer"), LIST)
    assert re.search(r'calls wait</span>\s*</td><td class="num">3</td><td class="num">2</td>', page)
    own[0].refresh_from_db()
    assert own[0].intended_at.isoformat() in page


@pytest.mark.parametrize(
    ("state", "paused", "word"),
    [("queued", False, "calls wait"), ("intended", False, "on the wire"), ("in_doubt", False, "held by a doubt"),
     ("succeeded", False, "free"), ("queued", True, "paused")],
)  # fmt: skip
def test_system_says_how_it_is(signed_in, ledger, state, paused, word):
    over: dict[str, Any] = {"holds_system": True} if state == "in_doubt" else {}
    effect = called(state, **over)
    if state == "in_doubt":
        make_doubt(effect)
    if paused:
        System.objects.update(paused=True, paused_by="ann", paused_at=now(), paused_reason="month-end")
    for address in (LIST, ONE):
        page = text_of(signed_in("viewer"), address)
        assert word in page
        assert ("month-end" in page, "ann" in page) == (paused, paused)


def test_doubt_that_holds_it_leads_to_its_page(signed_in, ledger):
    doubt = make_doubt(called("in_doubt", holds_system=True, resource="invoice 7"), why="no answer came")
    page = text_of(signed_in("viewer"), ONE)
    assert page.count(reverse("console:doubt", args=[doubt.pk])) == 2  # the sentence and the list
    assert ("invoice 7" in page, "holds the queue" in page) == (True, True)


def test_call_of_another_tenant_holds_it_without_a_name(signed_in, ledger):
    called()
    make_doubt(called("in_doubt", tenant=make_tenant("other"), holds_system=True, resource="secret order"))
    for address in (LIST, ONE):
        page = text_of(signed_in("viewer"), address)
        assert "secret order" not in page
        assert "call of another tenant" in page


def test_queue_is_shown_in_order_with_places_among_all_tenants(signed_in, ledger):
    first, _, third = called(), called(tenant=make_tenant("other")), called()
    page = text_of(signed_in("viewer"), ONE)
    assert order(page) == [first.pk, third.pk]
    assert re.findall(r'id="call-\d+"><td class="num">(\d+)</td>', page) == ["1", "3"]


def test_latency_and_timeouts_of_each_tool_leave_out_what_people_took(signed_in, ledger):
    began = now() - timedelta(hours=1)
    for seconds in (1, 2, 3):
        called("succeeded", intended_at=began, completed_at=began + timedelta(seconds=seconds))
    slow = called("succeeded", intended_at=began, completed_at=now())
    make_doubt(slow, settled_at=now(), settled_as="happened", settled_by="ann")
    called("refused", tool="reverse", intended_at=began, completed_at=began + timedelta(seconds=9))
    called("succeeded", tenant=make_tenant("other"), tool="theirs")
    found = systems.calls("ledger", [make_tenant().pk])
    assert [(one.tool, one.sent, one.refused, one.timed_out, one.p50, one.slowest) for one in found] == [
        ("post", 4, 0, 1, 2.0, 3.0), ("reverse", 1, 1, 0, 9.0, 9.0),
    ]  # fmt: skip
    page = text_of(signed_in("viewer"), ONE)
    assert ("2.0 s" in page, "theirs" in page) == (True, False)


def test_system_that_ones_tenant_never_used_is_not_there(signed_in, ledger):
    called()
    stranger = signed_in("stranger")
    assert "No call was ever queued" in text_of(stranger, LIST)
    assert stranger.get(ONE).status_code == 404


@pytest.mark.parametrize("address", [LIST, ONE])
def test_pages_ask_little_and_the_same_for_a_long_queue(signed_in, ledger, address):
    viewer, counts = signed_in("viewer"), []
    for times in (1, 10):
        for _ in range(times):
            called()
            make_doubt(called("in_doubt", holds_system=False))
            called("succeeded")
        with CaptureQueriesContext(connection) as captured:
            text_of(viewer, address)
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 12


@pytest.mark.parametrize("address", [LIST, ONE])
def test_pages_never_read_the_whole_table(signed_in, ledger, address):
    make_doubt(called("in_doubt", holds_system=False))
    viewer = signed_in("viewer")
    with CaptureQueriesContext(connection) as captured:
        text_of(viewer, address)
    statements = [query["sql"] for query in captured if "runs_effect" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in statements:
            cursor.execute("EXPLAIN " + sql)
            assert "Seq Scan on runs_effect" not in "\n".join(row[0] for row in cursor.fetchall()), sql
    assert statements


# Pausing and resuming.


def test_pause_is_shown_first_then_done_audited_and_told(signed_in, ledger):
    called()
    admin = signed_in("admin")
    dialog = text_of(admin, at("pause"))
    assert "<b>whichever tenant</b>: 1 call waits, 1 of your tenants" in dialog
    assert admin.post(at("pause"), {"reason": " "}).status_code == 422
    assert admin.post(at("pause"), {"reason": "month-end"}).status_code == 302
    ledger.refresh_from_db()
    assert (ledger.paused, ledger.paused_by, ledger.paused_reason) == (True, "admin", "month-end")
    assert "do-resume" in text_of(admin, ONE)
    assert admin.post(at("resume"), {}).status_code == 302
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True)) == ["pause_system", "resume_system"]


def test_second_admin_is_told_who_paused_it_already(signed_in, ledger):
    called()
    signed_in("admin").post(at("pause"), {"reason": "month-end"})
    Membership.objects.create(user=make_person("stranger"), tenant=make_tenant(), role="admin")
    answer = signed_in("stranger").post(at("pause"), {"reason": "me too"}, headers=HTMX)
    assert (answer.status_code, answer["HX-Trigger"]) == (409, "verb-done")
    assert "admin paused it already" in answer.content.decode()


def test_stale_tab_does_not_end_a_later_pause_and_reads_whose_it_is(signed_in, ledger):
    called()
    admin = signed_in("admin")
    admin.post(at("pause"), {"reason": "month-end"})
    dialog = text_of(admin, at("resume"))
    assert "month-end" in dialog
    shown = re.findall(r'name="pause" value="([^"]+)"', dialog)[0]
    assert admin.post(at("resume"), {"pause": shown}).status_code == 302
    again = admin.post(at("resume"), {"pause": shown}, headers=HTMX)
    assert (again.status_code, "admin let it go on at" in again.content.decode()) == (409, True)
    admin.post(at("pause"), {"reason": "they are down"})
    stale = admin.post(at("resume"), {"pause": shown}, headers=HTMX)
    assert (stale.status_code, "paused it anew: they are down" in stale.content.decode()) == (409, True)
    ledger.refresh_from_db()
    assert ledger.paused


@pytest.mark.parametrize("who", ["viewer", "operator", "reviewer"])
def test_pausing_is_for_admins_and_others_read_so(signed_in, ledger, who):
    called()
    browser = signed_in(who)
    assert "Pause needs an admin of a tenant that uses it" in text_of(browser, ONE)
    assert browser.post(at("pause"), {"reason": "r"}).status_code == 403


def test_admin_of_a_tenant_that_never_used_it_cannot_pause_it_through_another_membership(signed_in, ledger):
    called()
    Membership.objects.create(user=make_person("stranger"), tenant=make_tenant(), role="viewer")
    assert signed_in("stranger").post(at("pause"), {"reason": "r"}).status_code == 403
    ledger.refresh_from_db()
    assert not ledger.paused


# Reordering.


def test_call_is_moved_within_its_tenants_places(signed_in, ledger):
    first, theirs, third, last = called(), called(tenant=make_tenant("other")), called(), called()
    operator = signed_in("operator")
    address = reverse("console:move_call", args=[last.pk])
    assert "number <b>3 of 3</b>" in text_of(operator, address)
    assert operator.post(address, {"to": "first", "reason": "a customer waits"}).status_code == 302
    assert order(text_of(operator, ONE)) == [last.pk, first.pk, third.pk]
    places = dict(IdempotencyRecord.objects.values_list("pk", "queue_order"))
    assert places[last.pk] == first.queue_order
    assert places[theirs.pk] == theirs.queue_order
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.reason, entry.actor) == ("move_call", "a customer waits", "operator")


def test_call_that_went_meanwhile_is_not_moved_and_the_queue_is_shown_as_it_is(signed_in, ledger):
    gone = called("intended")
    called()
    operator, address = signed_in("operator"), reverse("console:move_call", args=[gone.pk])
    assert "It does not wait any more: it is intended." in text_of(operator, address)
    answer = operator.post(address, {"to": "first", "reason": "r"}, headers=HTMX)
    assert answer.status_code == 409
    assert 'id="system-region"' in answer.content.decode()
    assert operator.post(address, {"to": "sideways", "reason": "r"}).status_code == 422


def test_calls_of_other_tenants_are_not_moved(signed_in, ledger):
    called()
    theirs = called(tenant=make_tenant("other"))
    assert signed_in("operator").post(
        reverse("console:move_call", args=[theirs.pk]), {"to": "last", "reason": "r"}
    ).status_code == 404  # fmt: skip
