"""What tests of the engine share besides its fixtures."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Fatal, State, step, tool, workflow
from durableops.engine.compensation import undoing
from tests.engine.bank import THRICE, Bank


@pytest.fixture
def bank(engine) -> Bank:
    """A workflow that charges what its input says and then asks, with a tool that refunds."""
    undoing.install()
    made = Bank()

    @tool(safety="keyed", name="refund", resource_id="id", retry=THRICE)
    def refund(call, *, downstream_id: str):
        return made.refund(call, downstream_id=downstream_id)

    @tool(safety="keyed", name="charge", resource_id="id", compensate=refund)
    def charge(call, *, amount: int = 1):
        made.charged.append(call.resource)
        return {"id": f"charge-{call.resource}"}

    @tool(safety="keyed", name="post", resource_id="id", instructions="Reverse it in the ledger.")
    def post(call):
        return {"id": f"post-{call.resource}"}

    @tool(safety="keyed", name="big", compensate=refund, resource_id="id", four_eyes=True)
    def big(call):
        return {"id": f"big-{call.resource}"}

    @tool(safety="keyed", name="careful", instructions="Reverse it, and let somebody look.", four_eyes=True)
    def careful(call):
        return {"id": 1}

    @tool(safety="keyed", name="mail")
    def mail(call):
        return {}

    tools = {"charge": charge, "post": post, "big": big, "careful": careful, "mail": mail}

    class Script(State):
        do: list[str] = []
        ask: bool = True

    @workflow(name="shop", version=1, state=Script)
    class Shop:
        @step
        def act(run: Any):
            for word in run.state.do:
                name, _, resource = word.partition(":")
                run.call(tools[name], resource=resource)
            if run.state.ask:
                run.approval("go on")
            raise Fatal("it ends badly")

    return made
