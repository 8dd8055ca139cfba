"""Budgets on the page of a run: what is spent, reserved and left, and more of it with a reason."""

from __future__ import annotations

import uuid
from decimal import Decimal

from django.urls import reverse

from durableops.engine import budgeting, quotas
from durableops.engine.quotas import Owner
from runs.models import AuditEntry, Reservation, RunBudget
from tests.factories import make_run, make_tenant


def with_budget(**over):
    run = make_run(**over)
    most = {"granted": Decimal(100), "most": Decimal(100), "spent": Decimal(40)}
    budget = RunBudget.objects.create(run=run, unit="tokens", **most)
    Reservation.objects.create(budget=budget, run=run, fence=1, token=uuid.uuid4(), amount=Decimal(25))
    return run


def test_run_shows_its_budget_and_its_tenants(signed_in):
    run = with_budget()
    limits = {"budgets": {"month": {"money": "2.50"}}}
    quotas.set_quota(Owner(tenant=make_tenant()), limits, actor="ada", reason="the plan")
    budgeting.add_tenant_budget(
        make_tenant(), actor="ada", reason="more", period="month", amounts={"money": Decimal("0.5")}
    )
    page = " ".join(signed_in("viewer").get(reverse("console:run", args=[run.pk])).content.decode().split())
    assert "40 <small>of 100 tokens · 25 reserved</small>" in page
    assert "0 <small>of 3 money EUR this month</small>" in page
    # A run that has ended well spends nothing more.
    ended = make_run(state="succeeded")
    assert "this month" not in signed_in("viewer").get(reverse("console:run", args=[ended.pk])).content.decode()


def test_operator_adds_to_it_with_a_reason(signed_in):
    run = with_budget(state="exhausted")
    address = reverse("console:run_verb", args=[run.pk, "add_budget"])
    operator = signed_in("operator")
    assert "40 of 100 spent" in operator.get(address).content.decode()
    given = {"unit": "tokens", "amount": "50", "reason": "worth it"}
    for wrong, status in (({"amount": "many"}, 422), ({"reason": ""}, 422), ({"amount": "-1"}, 422),
                          ({"unit": "money"}, 409)):  # fmt: skip
        assert operator.post(address, given | wrong).status_code == status, wrong
    assert operator.post(address, given).status_code == 302
    assert RunBudget.objects.get().most == 150
    assert AuditEntry.objects.get(verb="add_budget").reason == "worth it"


def test_run_without_a_budget_offers_no_more_of_it(signed_in):
    page = signed_in("operator").get(reverse("console:run", args=[make_run().pk])).content.decode()
    assert "Add budget" not in page


def test_page_of_quotas_tells_what_open_runs_have_spent_of_their_own_budgets(signed_in):
    with_budget()
    with_budget(state="succeeded")
    page = " ".join(signed_in("viewer").get(reverse("console:quotas")).content.decode().split())
    assert '<span class="nowrap">40 tokens</span> <span class="soft">by open runs</span>' in page
