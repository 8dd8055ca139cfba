"""One workflow that does nothing."""

from __future__ import annotations

from durableops.authoring.decorators import step, workflow
from durableops.authoring.state import State


class Order(State):
    customer: str


@workflow(name="order", version=1, state=Order)
class OrderWorkflow:
    @step
    def take(run):
        return None
