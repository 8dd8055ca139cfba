"""A plan that a run makes for itself: which of its workflow's steps follow, in which order. Checked and hashed here.

It has the rules of a declared plan: described by the same function, hashed the same way, and compared with the code
that is about to run before any of it does. Each step stands in it at most once, and none that is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durableops.authoring.definitions import WorkflowDefinition
from durableops.authoring.plan import describe_plan, hash_of
from durableops.checkpoints import plan_differences
from durableops.checkpoints.compatibility import Continue, Park
from durableops.checkpoints.difference import Difference
from durableops.errors import PlanRefused


@dataclass(frozen=True, kw_only=True)
class MadePlan:
    """Steps that follow, with what gives them their meaning."""

    steps: tuple[str, ...]
    plan: Mapping[str, Any]
    """As `describe_plan` gives it."""
    plan_hash: str
    number: int = 0
    """Its version; 0 while it is not stored."""

    def after(self, step_id: str) -> str | None:
        """The step after this one; None at the end. A step that is not in the plan is the one that made it."""
        following = self.steps.index(step_id) + 1 if step_id in self.steps else 0
        return self.steps[following] if following < len(self.steps) else None


def made(definition: WorkflowDefinition, steps: Iterable[Any], *, at: str = "", done: Iterable[str] = ()) -> MadePlan:
    """The plan of these steps, made in step `at`, where those of `done` are committed. Raises PlanRefused."""
    if isinstance(steps, str | bytes | Mapping):
        raise PlanRefused(f"a plan is a list of step ids; {type(steps).__name__} is none.")
    ids = tuple(steps)
    known = [step.id for step in definition.steps]
    committed = set(done)
    for place, step_id in enumerate(ids, start=1):
        if not isinstance(step_id, str) or step_id not in known:
            why = (
                f"workflow {definition.name!r} version {definition.version} has no such step; it has {', '.join(known)}"
            )
        elif step_id in ids[: place - 1]:
            why = "it stands there twice, and a step is committed once"
        elif step_id == at or step_id in committed:
            why = "it is the present step" if step_id == at else "it is committed and never runs again"
        else:
            continue
        raise PlanRefused(f"step {str(step_id)[:100]!r} at place {place} of the plan is refused: {why}.")
    plan = describe_plan(definition.step(step_id) for step_id in ids)
    return MadePlan(steps=ids, plan=plan, plan_hash=hash_of(plan))


def compare(recorded: MadePlan, present: WorkflowDefinition, *, at_step: str) -> Continue | Park:
    """Whether a run whose declared plan still fits may go on with the plan it made."""
    if hash_of(recorded.plan) != recorded.plan_hash or [s["id"] for s in recorded.plan["steps"]] != [*recorded.steps]:
        return Park(
            reason_code="plan_unreadable",
            reason=f"plan {recorded.number} of the run is not what was recorded: its hash differs. Migrate or move it.",
        )
    known = {step.id for step in present.steps}
    now = describe_plan(present.step(step_id) for step_id in recorded.steps if step_id in known)
    found = plan_differences.between(recorded.plan, now)
    if at_step not in recorded.steps:
        found.append(Difference(kind="position", subject=at_step, recorded=at_step, present=""))
    if hash_of(now) == recorded.plan_hash and not found:
        return Continue()
    told = "; ".join(map(str, found)) or "it is described differently"
    return Park(
        reason_code="plan_changed",
        reason=f"plan {recorded.number} of the run does not fit the code ({told}). Restore it, or move the run.",
        differences=tuple(found),
    )


def carried(steps: Sequence[str], *, at: str) -> tuple[str, ...]:
    """What of a plan is still ahead, the step where the run stands first."""
    return tuple(steps[steps.index(at) :]) if at in steps else (at, *steps)
