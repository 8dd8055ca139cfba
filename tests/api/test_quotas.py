"""The tenant's quota over the API, and the gate it is for a run."""

from __future__ import annotations

from typing import Any

from durableops.engine import quotas
from durableops.engine.quotas import Owner
from tests import factories
from tests.api.clients import read


def test_tenant_reads_its_own_quota_and_a_run_at_the_cap_names_it_as_its_gate(caller, stranger, acme):
    quotas.set_quota(Owner(tenant=acme), {"running_cap": 1, "weight": 2}, actor="ann", reason="at first")
    factories.make_run(tenant=acme, state="running")
    queued = factories.make_run(tenant=acme)
    found = read(caller.get("/quota"))
    assert (found["running"], found["waiting"], found["running_cap"], found["weight"]) == (1, 1, 1, 2)
    assert "at its cap" in found["alarm"]
    assert read(stranger.get("/quota"))["running_cap"] is None
    gates = {gate["code"]: gate for gate in read(caller.get(f"/runs/{queued.pk}"))["why"]["gates"]}
    assert "1 of at most 1 runs" in gates["quota.tenant"]["detail"]
    assert gates["quota.tenant"]["since"] is not None


def change(**changes):
    return {"reason": "a new plan", "changes": changes}


def test_quota_is_changed_with_a_reason_and_its_history_says_who(caller, acme):
    answer = caller.post("/quota", change(running_cap=5, call_rates={"tool:send": 60}, time_zone="Europe/Lisbon"))
    assert answer.status_code == 200, answer.content
    found = read(answer)
    assert (found["running_cap"], found["call_rates"], found["time_zone"], found["version"]) == (
        5, {"tool:send": 60}, "Europe/Lisbon", 1,
    )  # fmt: skip
    # Null takes a limit away, and what is not named stays.
    found = read(caller.post("/quota", change(running_cap=None) | {"version": 1}))
    assert (found["running_cap"], found["call_rates"]) == (None, {"tool:send": 60})
    assert caller.post("/quota", change(weight=2) | {"version": 1}).status_code == 409
    [last, first] = read(caller.get("/quota/history"))["changes"]
    assert (first["after"]["running_cap"], last["before"]["running_cap"], last["reason"]) == (5, 5, "a new plan")
    assert last["actor"].startswith("token ")


def test_preview_says_whom_a_change_touches_and_changes_nothing(caller, acme):
    for state in ("running", "running", "queued"):
        factories.make_run(tenant=acme, state=state)
    asked = {"changes": {"running_cap": 1, "budgets": {"day": {"tokens": 500}}}}
    says = " ".join(read(caller.post("/quota/preview", asked))["says"])
    assert "1 of them are past the new cap" in says
    assert "At most 500 tokens a day" in says
    assert read(caller.get("/quota"))["version"] == 0


def test_senseless_quota_is_refused_and_nothing_is_changed(caller, acme):
    wrong: list[dict[str, Any]] = [
        {}, {"running_cap": -1}, {"running_cap": 10**6}, {"running_cap": "5"}, {"weight": 0}, {"weight": None},
        {"gold": 1}, {"call_rates": {"send": 1}}, {"time_zone": "Mars/Olympus"}, {"budget_policy": "hope"},
        {"budgets": {"week": {"tokens": 1}}}, {"budgets": {"day": {"tokens": -1}}},
        {"budgets": {"day": {"money": "NaN"}}}, {"priority_min": 5, "priority_max": 4},
    ]  # fmt: skip
    for changes in wrong:
        assert caller.post("/quota", change(**changes)).status_code == 400, changes
        if set(changes) != {"priority_min", "priority_max"}:
            assert caller.post("/quota/preview", {"changes": changes}).status_code == 400, changes
    assert caller.post("/quota", {"reason": "", "changes": {"weight": 2}}).status_code == 400
    assert read(caller.get("/quota"))["version"] == 0


def test_budget_of_the_tenant_is_read_and_raised_for_the_present_month(caller, stranger, acme):
    caller.post("/quota", change(budgets={"month": {"money": "0.10"}}))
    more = {"reason": "worth it", "period": "month", "budget": {"money": 0.05}}
    [period] = read(caller.post("/quota/budget", more))["periods"]
    assert (period["unit"], period["currency"], period["limit"], period["spent"]) == ("money", "EUR", "0.15", "0")
    assert stranger.post("/quota/budget", more).status_code == 400
    assert caller.post("/quota/budget", more | {"period": "day"}).status_code == 400
