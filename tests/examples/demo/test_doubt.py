"""What the demo leaves in the inbox: it can be settled as the ledger shows it, and the next demo clears it away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from durableops.engine import settling
from durableops.engine.settlements import Settlement
from durableops.testing import move_on, run_workflow
from examples.bookkeeping.workflows import MonthEnd
from examples.demo import doubt as scene
from examples.demo import record
from examples.ledger import ADDRESS_VARIABLE
from examples.ledger_desk.client import LedgerClient
from runs.models import Doubt, IdempotencyRecord, Run
from tests.examples import desks
from tests.factories import make_doubt, make_effect, make_run, make_wait, now

pytestmark = pytest.mark.django_db(transaction=True)


def the_open_one() -> Doubt:
    return Doubt.objects.select_related("effect", "tenant").get(settled_at=None)


def settle(how: str, **said: str) -> None:
    doubt = the_open_one()
    given = Settlement(how=how, **said)  # type: ignore[arg-type]  # texts alone
    settling.settle(doubt.pk, tenant=doubt.tenant, actor="ann", reason="looked into the ledger", settlement=given)


@pytest.fixture
def client(ledger: desks.LedgerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[LedgerClient]:
    monkeypatch.setenv(ADDRESS_VARIABLE, ledger.url)
    with closing(LedgerClient(ledger.url)) as made:
        yield made


def test_settled_as_the_ledger_shows_it_every_invoice_is_booked_once(ledger: desks.LedgerClient, client: LedgerClient):
    scene.set_faults(client)
    month = run_workflow(MonthEnd, {"month": scene.MONTH, "invoices": scene.INVOICES})
    assert (month.state, the_open_one().effect.resource) == ("in_doubt", scene.text_of(scene.ANSWER_LOST))
    [entry] = ledger.find(scene.text_of(scene.ANSWER_LOST))

    settle("happened", downstream_id=entry)
    month = move_on(month.run.pk)
    assert (month.state, the_open_one().effect.resource) == ("in_doubt", scene.text_of(scene.REQUEST_LOST))
    assert ledger.find(scene.text_of(scene.REQUEST_LOST)) == []

    IdempotencyRecord.objects.filter(state="in_doubt").update(quiet_after=now() - timedelta(seconds=1))
    settle("did_not", evidence="it is not there")
    assert move_on(month.run.pk).state == "succeeded"
    assert sorted(one.text for one in client.entries()) == sorted(map(scene.text_of, scene.INVOICES))
    assert scene.booked_twice(client) == 0


def test_next_demo_clears_away_what_is_left_and_nothing_else(clean_queue):
    tenant = record.tenant()
    left = make_run(tenant=tenant, state="in_doubt", labels=record.LABELS, workflow=scene.WORKFLOW)
    queued = make_run(tenant=tenant, state="waiting", labels=record.LABELS, workflow=scene.WORKFLOW)
    make_wait(queued, kind="turn", name="ledger")
    mine = make_doubt(make_effect(left, state="in_doubt"))
    others = make_doubt(make_effect(make_run(tenant=tenant, state="in_doubt"), state="in_doubt"))
    assert scene.clear_leftovers() == [mine.pk]
    mine.refresh_from_db()
    others.refresh_from_db()
    assert (mine.settled_as, others.settled_as) == ("give_up", "")
    assert set(Run.objects.filter(workflow=scene.WORKFLOW).values_list("state", flat=True)) == {"cancelled"}
    assert scene.clear_leftovers() == []
