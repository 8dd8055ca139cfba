"""The month-end against a real ledger: what goes right, what is lost, and who says what became of it."""

from __future__ import annotations

import pytest

from durableops.testing import run_workflow
from examples.bookkeeping.workflows import MonthEnd
from examples.ledger import ADDRESS_VARIABLE
from tests.examples.desks import LedgerClient

pytestmark = pytest.mark.django_db(transaction=True)

MONTH = {"month": "2026-10", "invoices": {"R-1": 11900, "R-2": 23800, "R-3": 5950}}


@pytest.fixture(autouse=True)
def _address(ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS_VARIABLE, ledger.url)


def texts(ledger: LedgerClient) -> list[str]:
    return [entry["text"] for entry in ledger.entries()]


def test_every_invoice_becomes_one_entry(ledger: LedgerClient):
    month = run_workflow(MonthEnd, MONTH)

    assert month.state == "succeeded"
    assert month.result == {
        "month": "2026-10",
        "booked": {"R-1": "E-1", "R-2": "E-2", "R-3": "E-3"},
        "sum": 41650,
        "given_up": [],
    }
    assert texts(ledger) == ["invoice R-1 of 2026-10", "invoice R-2 of 2026-10", "invoice R-3 of 2026-10"]
    assert ledger.stats()["balances"] == {"4400": 41650}


def test_an_entry_that_the_ledger_refuses_fails_the_month_and_is_no_doubt(ledger: LedgerClient):
    ledger.fault("refuse", title="invoice R-2 *")

    month = run_workflow(MonthEnd, MONTH)

    assert month.state == "failed"
    assert "asking again changes nothing" in month.error
    assert texts(ledger) == ["invoice R-1 of 2026-10"]


def test_a_lost_answer_is_a_doubt_and_nothing_is_sent_after_it(ledger: LedgerClient):
    ledger.fault("drop", title="invoice R-2 *")

    month = run_workflow(MonthEnd, MONTH)

    assert month.state == "in_doubt"
    assert texts(ledger) == ["invoice R-1 of 2026-10", "invoice R-2 of 2026-10"]
    [doubt] = month.run.doubts.all()
    assert (doubt.settled_at, doubt.effect.tool, doubt.effect.holds_system) == (None, "ledger.post", True)


def test_the_next_month_waits_behind_the_doubt_of_this_one(ledger: LedgerClient):
    ledger.fault("drop", title="invoice R-2 *")
    run_workflow(MonthEnd, MONTH)

    following = run_workflow(MonthEnd, {"month": "2026-11", "invoices": {"R-4": 100}})

    assert (following.state, following.waits_for) == ("waiting", ["ledger"])
    assert len(texts(ledger)) == 2
