"""The tenant's quota over the API, and the gate it is for a run."""

from __future__ import annotations

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
