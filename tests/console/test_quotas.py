"""Quotas in the console: what is there, a preview that changes nothing, a change with its reason, whose right it is."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from durableops.engine import quotas
from durableops.engine.quotas import Owner
from runs.models import AuditEntry, QuotaPolicy
from tests.factories import make_run, make_tenant

ADDRESS = "/quotas/tenants/acme/"
USUAL = {"weight": "1", "priority_min": "-100", "priority_max": "100", "version": "0"}


def capped(cap: int | None, **more):
    return quotas.set_quota(Owner(tenant=make_tenant()), {"running_cap": cap, **more}, actor="ann", reason="at first")


def test_page_shows_what_runs_and_waits_under_each_cap_and_raises_an_alarm(signed_in):
    capped(2)
    for state in ("running", "running", "queued", "waiting"):
        make_run(state=state)
    make_run(tenant=make_tenant("other"))
    page = signed_in("viewer").get("/quotas/").content.decode()
    assert "at its cap; 1 wait" in page
    assert "quota-other" not in page
    assert ADDRESS not in page  # a viewer changes nothing


def test_preview_says_whom_it_touches_and_changes_nothing(signed_in):
    capped(None)
    for state in ("running", "running", "running", "queued"):
        make_run(state=state)
    admin = signed_in("admin")
    given = USUAL | {"running_cap": "2", "starts_per_minute": "60", "version": "1", "act": "preview"}
    page = admin.post(ADDRESS, given).content.decode()
    assert "3 run now. 1 of them are past the new cap and go on until they end" in page
    assert "limited to 60 a minute" in page
    assert QuotaPolicy.objects.get().running_cap is None
    page = admin.post(ADDRESS, given | {"running_cap": "4"}).content.decode()
    assert "1 of the 1 that wait may start at once" in page


def test_admin_changes_a_quota_with_a_reason_and_the_history_says_so(signed_in):
    capped(2)
    admin = signed_in("admin")
    given = USUAL | {"running_cap": "5", "call_rates": "tool:send 600\nsystem:crm 60", "version": "1", "act": "save"}
    assert admin.post(ADDRESS, given | {"reason": " "}).status_code == 422
    assert admin.post(ADDRESS, given | {"reason": "a new customer"}).status_code == 302
    policy = QuotaPolicy.objects.get()
    assert (policy.running_cap, policy.call_rates) == (5, {"tool:send": 600, "system:crm": 60})
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.reason, entry.before["running_cap"]) == ("admin", "a new customer", 2)
    # What was not changed is not part of it.
    assert set(entry.after) == {"running_cap", "call_rates", "version"}
    assert "a new customer" in admin.get(ADDRESS).content.decode()


def test_who_was_overtaken_is_told_and_changes_nothing(signed_in):
    capped(2)
    given = USUAL | {"running_cap": "5", "version": "0", "reason": "because", "act": "save"}
    answer = signed_in("admin").post(ADDRESS, given)
    assert (answer.status_code, "somebody was quicker" in answer.content.decode()) == (409, True)
    assert QuotaPolicy.objects.get().running_cap == 2


@pytest.mark.parametrize(
    "wrong",
    [{"running_cap": "-1"}, {"running_cap": "many"}, {"weight": ""}, {"weight": "0"}, {"priority_min": "101"},
     {"call_rates": "send 60"}, {"call_rates": "tool:send"}, {"call_rates": "tool:send x"}, {"running_cap": "9" * 9}],
)  # fmt: skip
def test_senseless_limit_is_refused_with_a_sentence_and_what_was_typed_stays(signed_in, wrong):
    given = USUAL | {"running_cap": "5", "reason": "because", "act": "save"} | wrong
    answer = signed_in("admin").post(ADDRESS, given)
    page = answer.content.decode()
    assert (answer.status_code, "Nothing was changed." in page, "because" in page) == (422, True, True)
    assert not QuotaPolicy.objects.exists()


@pytest.mark.parametrize(("name", "status"), [("viewer", 403), ("operator", 403), ("stranger", 404)])
def test_only_an_admin_of_the_tenant_changes_its_quota(signed_in, name, status):
    make_tenant()
    given = USUAL | {"running_cap": "5", "reason": "because", "act": "save"}
    assert signed_in(name).post(ADDRESS, given).status_code == status
    assert not QuotaPolicy.objects.exists()


def test_quota_of_a_shared_resource_is_a_superusers(signed_in):
    root = Client()
    root.force_login(get_user_model().objects.create_superuser("root"))
    given = {"running_cap": "3", "starts_per_minute": "", "version": "0", "reason": "the disk", "act": "save"}
    assert signed_in("admin").post("/quotas/resources/db-scan/", given).status_code == 403
    assert root.post("/quotas/resources/db-scan/", given).status_code == 302
    assert QuotaPolicy.objects.get(resource="db-scan").running_cap == 3
    assert "db-scan" in signed_in("viewer").get("/quotas/").content.decode()


def test_budgets_are_set_by_lines_shown_with_what_is_spent_and_raised_for_the_present_day(signed_in):
    admin = signed_in("admin")
    given = USUAL | {"budgets": "day tokens 100\nmonth money 2.50", "time_zone": "Europe/Lisbon", "act": "save"}
    assert admin.post(ADDRESS, given | {"reason": "the plan", "budget_policy": "ask"}).status_code == 302
    policy = QuotaPolicy.objects.get()
    assert (policy.budgets, policy.budget_policy, policy.time_zone) == (
        {"day": {"tokens": "100"}, "month": {"money": "2.5"}}, "ask", "Europe/Lisbon",
    )  # fmt: skip
    more = {"act": "add", "period": "day", "unit": "tokens", "amount": "20"}
    assert admin.post(ADDRESS, more | {"reason": " "}).status_code == 422
    assert admin.post(ADDRESS, more | {"reason": "a report", "amount": "many"}).status_code == 422
    assert admin.post(ADDRESS, more | {"reason": "a report", "unit": "calls"}).status_code == 422
    assert admin.post(ADDRESS, more | {"reason": "a report"}).status_code == 302
    assert "0 of 120 tokens a day" in admin.get("/quotas/").content.decode()
    page = admin.get(ADDRESS).content.decode()
    assert "a report" in page
    assert "day tokens 100\nmonth money 2.5" in page
    for wrong in ("day tokens", "week tokens 1", "day gold 1", "day tokens x"):
        answer = admin.post(ADDRESS, given | {"reason": "no", "budgets": wrong, "version": "1"})
        assert (answer.status_code, wrong in answer.content.decode()) == (422, True)
