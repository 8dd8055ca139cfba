"""What a run's timeline and effects look like to another system."""

from __future__ import annotations

import pytest
from django.db import connection

from runs.models import RunEvent
from runs.transitions import record_event
from tests import factories
from tests.api.clients import Caller, read

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(acme):
    return factories.make_run(tenant=acme, state="running")


def happen(run, event: str, **more) -> None:
    with connection.cursor() as cursor:
        record_event(cursor, run.pk, event, **more)


def test_timeline_is_in_order_and_comes_in_pages(caller, run):
    for number in range(5):
        happen(run, "call_timeout", reason=f"the {number}th")

    first = read(caller.get(f"/runs/{run.pk}/timeline?limit=3"))
    second = read(caller.get(f"/runs/{run.pk}/timeline?limit=3&after={first['next']}"))

    told = first["happenings"] + second["happenings"]
    assert [one["reason"] for one in told] == [f"the {number}th" for number in range(5)]
    assert (len(first["happenings"]), second["next"]) == (3, None)


def test_a_page_that_is_just_full_has_no_next(caller, run):
    happen(run, "call_timeout")

    assert read(caller.get(f"/runs/{run.pk}/timeline?limit=1"))["next"] is None


def test_errors_and_tracebacks_are_for_those_who_see_payloads(acme, order, run):
    data = {"effects": [7], "error": {"message": "card 4111"}, "traceback": "card = 4111", "api_key": "s3cret-enough"}
    happen(run, "retry_later", reason="password=hunter22", data=data)

    def seen(*scopes: str):
        [one] = read(Caller(acme, scopes).get(f"/runs/{run.pk}/timeline"))["happenings"]
        return one

    assert seen("runs:read")["data"] == {"effects": [7], "api_key": "••••••"}
    assert "hunter22" not in seen("runs:read")["reason"]
    everything = seen("runs:read", "payloads:read")["data"]
    assert (everything["traceback"], everything["api_key"]) == ("card = 4111", "••••••")


def test_effects_say_what_is_known_of_each_outcome(caller, run):
    done = factories.make_effect(run, state="succeeded", downstream_id="T-7", attempts=2, reused=3)
    refused = factories.make_effect(run, state="refused", error_class="Refused", error_message="token=abcdefgh says no")
    open_one = factories.make_effect(run)

    told = read(caller.get(f"/runs/{run.pk}/effects"))["effects"]

    assert [one["id"] for one in told] == [done.pk, refused.pk, open_one.pk]
    assert (told[0]["state"], told[0]["downstream_id"], told[0]["sent"], told[0]["reused"]) == (
        "succeeded",
        "T-7",
        2,
        3,
    )
    assert told[0]["downstream_key"] == done.key
    assert told[1]["error"]["kind"] == "Refused"
    assert "abcdefgh" not in told[1]["error"]["message"]
    assert (told[2]["state"], told[2]["completed_at"], told[2]["error"]) == ("intended", None, None)


def test_rows_of_other_runs_are_not_among_them(caller, acme, run):
    other = factories.make_run(tenant=acme)
    happen(other, "call_timeout")
    factories.make_effect(other)

    assert read(caller.get(f"/runs/{run.pk}/timeline"))["happenings"] == []
    assert read(caller.get(f"/runs/{run.pk}/effects"))["effects"] == []
    assert RunEvent.objects.exists()


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=501", "since=3", f"after={2**63}"])
@pytest.mark.parametrize("address", ["timeline", "effects"])
def test_a_page_that_cannot_be_is_refused(caller, run, address: str, query: str):
    assert caller.get(f"/runs/{run.pk}/{address}?{query}").status_code == 400
