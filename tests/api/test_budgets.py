"""Budgets over the API: what a run may spend and has spent, more of it, and what an exhausted run brought so far."""

from __future__ import annotations

from decimal import Decimal

from runs.models import RunBudget
from tests import factories
from tests.api.clients import read


def with_budget(acme, **over):
    run = factories.make_run(tenant=acme, **over)
    RunBudget.objects.create(run=run, unit="tokens", granted=Decimal(100), most=Decimal(100), spent=Decimal(100))
    return run


def test_run_shows_its_budgets(caller, acme):
    run = with_budget(acme)
    assert read(caller.get(f"/runs/{run.pk}"))["budgets"] == [
        {"unit": "tokens", "currency": "", "limit": "100", "spent": "100", "reserved": "0", "policy": "exhaust"}
    ]


def test_more_budget_is_given_with_a_reason_and_what_is_senseless_is_refused(caller, stranger, acme):
    run = with_budget(acme)
    body = {"reason": "worth it", "budget": {"tokens": 50}}
    assert stranger.post(f"/runs/{run.pk}/budget", body).status_code == 404
    assert caller.post(f"/runs/{run.pk}/budget", body).status_code == 200
    assert read(caller.get(f"/runs/{run.pk}"))["budgets"][0]["limit"] == "150"
    assert caller.post(f"/runs/{run.pk}/budget", body | {"budget": {"money": 1}}).status_code == 409
    for wrong in ({}, {"tokens": 0}, {"tokens": -5}, {"gold": 1}, {"tokens": 1e13}):
        assert caller.post(f"/runs/{run.pk}/budget", body | {"budget": wrong}).status_code == 400


def test_exhausted_run_shows_what_it_brought_and_is_retried_with_more(caller, acme):
    run = with_budget(acme, state="exhausted")
    factories.make_checkpoint(run, seq=1, state_seq=0, output='{"found":3}')
    shown = read(caller.get(f"/runs/{run.pk}"))
    assert (shown["result"], shown["partial"]["value"]) == (None, {"found": 3})
    refused = caller.post(f"/runs/{run.pk}/retry", {"reason": "go on"})
    assert (refused.status_code, "add tokens" in read(refused)["detail"]) == (409, True)
    assert caller.post(f"/runs/{run.pk}/retry", {"reason": "go on", "budget": {"tokens": 10}}).status_code == 200
