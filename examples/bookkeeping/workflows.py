"""The month-end: every invoice becomes one entry of a ledger that books whatever it is sent, each time.

Its tools are `legacy`: one call at a time over all runs, never sent again by the engine. An answer that is lost is a
doubt. `ledger.post` leaves it to people, who look into the ledger; `ledger.post_findable` has a probe that looks by
itself. Both are undone by booking the opposite.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import Field

from durableops import Call, DidNotHappen, EffectGivenUp, Happened, Retry, Run, State, Unknown, step, tool, workflow
from durableops.authoring.undoing import DoneEffect
from examples.ledger import book, find, take_back

REVENUE = "4400"
SYSTEM = "ledger"
ANSWERS_WITHIN_SECONDS = 3.0


@tool(safety="legacy", system=SYSTEM, name="ledger.reverse", timeout=ANSWERS_WITHIN_SECONDS, resource_id="id")
def reverse_entry(call: Call, *, entry: str, text: str) -> dict[str, Any]:
    """Book the opposite of an entry. Sent twice it would be booked twice: it stands in the same queue."""
    return {"id": take_back(call, entry=entry, text=text)["id"]}


def the_opposite(effect: DoneEffect) -> dict[str, Any]:
    """What `reverse_entry` is to be asked for."""
    return {"entry": effect.downstream_id, "text": f"reversal of {effect.downstream_id}: {effect.resource}"}


def look_for_entry(call: Call, *, amount: int, text: str) -> Happened | DidNotHappen | Unknown:
    """Ask the ledger itself. A text that is there twice tells nothing about which of them is ours."""
    found = [entry for entry in find(call, text=text) if entry["amount"] == amount]
    if not found:
        return DidNotHappen(f"the ledger has no entry {text!r}")
    if len(found) > 1:
        return Unknown(f"the ledger has {len(found)} entries {text!r}")
    return Happened({"id": found[0]["id"]})


@tool(
    safety="legacy", system=SYSTEM, name="ledger.post", timeout=ANSWERS_WITHIN_SECONDS, resource="text",
    resource_id="id", compensate=reverse_entry, undo_request=the_opposite,
    instructions="Open the ledger, find the entry by its number, and book the opposite by hand.",
)  # fmt: skip
def post_entry(call: Call, *, amount: int, text: str) -> dict[str, Any]:
    """Book one invoice. Whether it was booked when no answer came, only a look into the ledger tells."""
    return {"id": book(call, account=REVENUE, amount=amount, text=text)["id"]}


@tool(
    safety="legacy", system=SYSTEM, name="ledger.post_findable", timeout=ANSWERS_WITHIN_SECONDS, resource="text",
    resource_id="id", compensate=reverse_entry, undo_request=the_opposite, probe=look_for_entry,
)  # fmt: skip
def post_findable_entry(call: Call, *, amount: int, text: str) -> dict[str, Any]:
    """The same, where nobody else writes such texts, so that the engine may look by itself."""
    return {"id": book(call, account=REVENUE, amount=amount, text=text)["id"]}


class MonthState(State):
    """The month and what became of its invoices."""

    month: str
    invoices: dict[str, int] = Field(max_length=1000)
    """Number of the invoice to its amount in cents."""
    findable: bool = False
    """Whether the texts are ours alone, so that a lost answer can be looked up."""

    booked: dict[str, str] = {}
    """Number of the invoice to that of its entry."""
    given_up: list[str] = []
    """Invoices of which a person said that nobody will find out."""


@workflow(name="month-end", version=1, state=MonthState, deadline=timedelta(days=30))
class MonthEnd:
    """Check, book, report."""

    @step(timeout=60)
    def check(run: Run) -> int:
        """The sum that the ledger must show in the end."""
        expected: int = sum(run.state.invoices.values())
        run.log("checked", month=run.state.month, invoices=len(run.state.invoices), sum=expected)
        return expected

    @step(timeout=600, retry=Retry(max_attempts=20, first_delay=1, max_delay=60))
    def book(run: Run) -> int:
        """One entry for each invoice, one after the other: the ledger takes one call at a time."""
        post = post_findable_entry if run.state.findable else post_entry
        for done, (number, amount) in enumerate(sorted(run.state.invoices.items()), start=1):
            try:
                entry = run.call(post, amount=amount, text=f"invoice {number} of {run.state.month}")
            except EffectGivenUp:
                run.state.given_up.append(number)
            else:
                run.state.booked[number] = entry["id"]
            run.progress(done, len(run.state.invoices), f"invoice {number}")
        return len(run.state.booked)

    @step(timeout=60)
    def report(run: Run) -> dict[str, Any]:
        """What was booked, and what somebody has to look after."""
        state = run.state
        return {
            "month": state.month,
            "booked": state.booked,
            "sum": sum(state.invoices[number] for number in state.booked),
            "given_up": state.given_up,
        }
