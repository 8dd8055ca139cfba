"""What each named constraint of compensation refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

from typing import Any

from runs.models import Compensation, CompensationOrder, Run
from tests.factories import make_effect, make_run, now


def make_order(run: Run | None = None, **over: Any) -> CompensationOrder:
    """An order about all that a run had done."""
    run = run or make_run(state="cancelled")
    values: dict[str, Any] = {"run": run, "tenant": run.tenant, "choice": "compensate", "actor": "ann"}
    return CompensationOrder.objects.create(**(values | over))


def make_compensation(**over: Any) -> Compensation:
    """One owed compensation, with its run and effect."""
    effect = over.pop("effect", None) or make_effect(make_run(state="cancelled"), state="succeeded", result="{}")
    values: dict[str, Any] = {
        "effect": effect, "run": effect.run, "tenant": effect.tenant, "how": "tool", "tool": "refund",
    }  # fmt: skip
    return Compensation.objects.create(**(values | over))


def ordered_twice() -> None:
    run = make_run(state="cancelled")
    for _ in range(2):
        make_order(run)


SETTLED = {"settled_by": "ann", "settled_at": now()}
VIOLATIONS = {
    "compensation_order_choice_known": lambda: make_order(choice="maybe"),
    "compensation_order_run_iff_applied": lambda: make_order(linked_run=make_run()),
    "compensation_order_one_at_a_time": ordered_twice,
    "compensation_state_known": lambda: make_compensation(state="lost"),
    "compensation_says_how": lambda: make_compensation(tool=""),
    "compensation_settled_iff_final": lambda: make_compensation(state="waived", reason="so"),
    "compensation_done_is_proved": lambda: make_compensation(state="done", **SETTLED),
    "compensation_waived_says_why": lambda: make_compensation(state="waived", **SETTLED),
    "compensation_four_eyes_are_two_people": lambda: make_compensation(
        state="approved", four_eyes=True, proposed_by="ann", approved_by="ann"
    ),
    "compensation_running_has_its_run": lambda: make_compensation(state="running"),
}
