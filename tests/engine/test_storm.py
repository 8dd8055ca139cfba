"""Many runs that go on at once: a paused tenant that is resumed reaches the other side at its rate, not all at once."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Retry, State, step, tool, workflow
from durableops.clock import monotonic
from durableops.engine import commands, quota_view, quotas
from durableops.engine.quotas import Owner
from runs.models import Run
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
RUNS = 24
A_SECOND = 15
BURST = 2


class Nothing(State):
    n: int


def test_resumed_tenant_goes_out_at_its_rate_and_can_be_cancelled_on_the_way(engine):  # C082
    sent: list[tuple[float, int]] = []

    @tool(safety="read", name="send", retry=Retry(max_attempts=1))
    def send(call: Any, *, n: int) -> int:
        sent.append((monotonic(), n))
        return n

    stepped = step(id="a")(lambda run: run.call(send, n=run.state.n))
    workflow(name="w", version=1, state=Nothing)(type("W", (), {"a": stepped}))
    owner = Owner(tenant=engine.tenant)
    quotas.set_quota(owner, {"call_rates": {"tool:send": 60 * A_SECOND}}, actor="ada", reason="what they take")
    switch = commands.set_switch("tenant", actor="ada", reason="they are down", tenant=engine.tenant)
    runs = [engine.start("w", {"n": n}) for n in range(RUNS)]
    engine.drain()
    assert (sent, quota_view.of(owner).waiting) == ([], RUNS)

    commands.lift_switch(switch, actor="ada", reason="they are back")
    commands.cancel(runs[-1].pk, tenant=engine.tenant, actor="ada", reason="not that one")

    def is_over() -> bool:
        engine.rounds()
        engine.drain()
        return not Run.objects.exclude(state__in=["succeeded", "cancelled"]).exists()

    eventually(is_over, hoping_for="the runs to go out", timeout=60)
    assert sorted(n for _, n in sent) == list(range(RUNS - 1))
    # Never faster than the rate, however slow this machine is.
    assert sent[-1][0] - sent[0][0] >= (len(sent) - 1 - BURST) / A_SECOND
    # People see on the page Quotas how far it is.
    assert quota_view.of(owner).waiting == 0
