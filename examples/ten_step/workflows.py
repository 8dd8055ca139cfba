"""One order through ten steps; small enough to predict to the last effect what any interruption may repeat."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durableops import Call, Retry, Run, State, step, tool, workflow
from examples.desk import post_ticket

APPROVAL = "go-ahead"
EVENT = "parts-arrived"
TITLE_THAT_TIMES_OUT = "reserve *"
"""For the desk's faults: titles of the one call that a drill lets time out before it succeeds."""
TICKETS = 4
"""Tickets that one run opens, whatever interrupts it."""
EFFECTS_AVOIDED_BY_WAITS = 2
"""Calls answered from the record in a run without accidents: `propose` and `order_parts` call, then wait, and a step
that waited is entered again from its top. A worker lost between steps adds none."""


@tool(
    safety="keyed",
    timeout=2,
    retry=Retry(max_attempts=6, first_delay=0.2, factor=2, max_delay=5),
    key_window=timedelta(hours=24),
    resource_id="id",
)
def open_order_ticket(call: Call, *, title: str) -> dict[str, Any]:
    """Open a ticket about one part of an order."""
    return {"id": post_ticket(call, title=title, details={})["id"]}


class OrderState(State):
    """What is known of the order."""

    order: str
    quantity: int = 1
    urgent: bool = False
    reservation: str = ""
    price: int = 0
    """In cents."""
    go_ahead: bool = False
    parts: int = 0
    shipment: str = ""
    steps_done: int = 0
    """Grows by one with each step; ten at the end, whatever happened in between."""


@workflow(name="ten-step", version=1, state=OrderState, deadline=timedelta(days=1), max_recoveries=20)
class TenStep:
    """Receive, reserve, price, check, propose, confirm, order parts, assemble, ship, close."""

    @step(timeout=60)
    def receive(run: Run) -> dict[str, Any]:
        """Decide how urgent the order is; the decision is recorded and never made again."""
        run.state.urgent = run.decide("urgency", {"quantity": run.state.quantity}, is_urgent)
        return done(run)

    @step(timeout=60)
    def reserve(run: Run) -> dict[str, Any]:
        """The call that a drill lets time out once."""
        run.state.reservation = ticket(run, "reserve")
        return done(run)

    @step(timeout=60)
    def price(run: Run) -> dict[str, Any]:
        """Work out the price."""
        run.state.price = run.state.quantity * (1500 if run.state.urgent else 1200)
        return done(run)

    @step(timeout=60)
    def check(run: Run) -> dict[str, Any]:
        """Nothing but a log line."""
        run.log("checked", order=run.state.order, price=run.state.price)
        return done(run)

    @step(timeout=60)
    def propose(run: Run) -> dict[str, Any]:
        """Tell the desk, then ask a person: the call is answered from the record when the answer has come."""
        ticket(run, "propose")
        run.approval(
            APPROVAL, question=f"Build order {run.state.order}?", timeout=timedelta(hours=1), on_timeout="cancel"
        )
        run.state.go_ahead = True
        return done(run)

    @step(timeout=60)
    def confirm(run: Run) -> dict[str, Any]:
        """Nothing may come here without the approval."""
        if not run.state.go_ahead:
            raise AssertionError("confirm was entered without a go-ahead")
        return done(run)

    @step(timeout=60)
    def order_parts(run: Run) -> dict[str, Any]:
        """Order, then wait for the event that says the parts are here; it may have come before we asked."""
        ticket(run, "order parts")
        arrived = run.wait_for(
            EVENT, correlation=run.state.order, timeout=timedelta(hours=1), look_back=timedelta(hours=1)
        )
        run.state.parts = arrived["parts"]
        return done(run)

    @step(timeout=60)
    def assemble(run: Run) -> dict[str, Any]:
        """Progress and nothing else."""
        run.progress(run.state.parts, run.state.parts, "assembled")
        return done(run)

    @step(timeout=60)
    def ship(run: Run) -> dict[str, Any]:
        """The last call."""
        run.state.shipment = ticket(run, "ship")
        return done(run)

    @step(timeout=60)
    def close(run: Run) -> dict[str, Any]:
        """The end; its output is the run's."""
        return {**done(run), "shipment": run.state.shipment, "price": run.state.price}


def is_urgent(quantity: int) -> bool:
    """Small orders are."""
    return quantity < 10


def ticket(run: Run, what: str) -> str:
    """Open the ticket of one step and return its number."""
    order = run.state.order
    opened: dict[str, Any] = run.call(open_order_ticket, resource=f"{order}/{what}", title=f"{what} {order}")
    return str(opened["id"])


def done(run: Run) -> dict[str, Any]:
    """Count the step; a step that is entered again counts from what was committed."""
    run.state.steps_done += 1
    return {"steps_done": run.state.steps_done}
