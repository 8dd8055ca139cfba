"""What each named constraint of lines and reviews refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

from typing import Any

from runs.models import Lineage, MadePlan, Review
from tests.factories import make_run, now


def make_review(**over: Any) -> Review:
    """An open finding about a run."""
    run = over.pop("run", None) or make_run(state="in_review")
    values: dict[str, Any] = {
        "tenant": run.tenant,
        "workflow": run.workflow,
        "plan": run.plan,
        "code": "plan_changed",
        "fingerprint": "f" * 32,
        "reason": "step b became c",
        "seq": run.head_seq,
    }
    return Review.objects.create(run=run, **(values | over))


def make_lineage(**over: Any) -> Lineage:
    """A line that a migration began."""
    run = over.pop("run", None) or make_run()
    values: dict[str, Any] = {
        "number": 2,
        "kind": "migrate",
        "from_seq": 0,
        "seq": 1,
        "from_plan": run.plan,
        "plan": run.plan,
        "actor": "rita",
    }
    return Lineage.objects.create(run=run, **(values | over))


def two_open() -> None:
    run = make_run(state="in_review")
    for _ in range(2):
        make_review(run=run)


def superseded_and_open() -> None:
    make_review(superseded_by=make_review())


def reverted_twice() -> None:
    run = make_run()
    for number in (3, 4):
        make_lineage(run=run, number=number, kind="revert", reverts=2)


def make_made_plan(**over: Any) -> MadePlan:
    """A plan that a step made for what follows it."""
    run = over.pop("run", None) or make_run()
    values: dict[str, Any] = {
        "number": 1, "lineage": 1, "seq": 1, "step_id": "a", "steps": ["b"], "plan": {}, "plan_hash": "f" * 64,
        "fence": 1,
    }  # fmt: skip
    return MadePlan.objects.create(run=run, **(values | over))


def made_twice_at_once() -> None:
    run = make_run()
    for number in (1, 2):
        make_made_plan(run=run, number=number)


VIOLATIONS = {
    "made_plan_sane": lambda: make_made_plan(number=0),
    "made_plan_by_one": lambda: make_made_plan(actor="rita"),
    "made_plan_once_per_checkpoint": made_twice_at_once,
    "review_open_once": two_open,
    "review_closed_as_known": lambda: make_review(closed_at=now(), closed_as="forgotten", closed_by="rita"),
    "review_superseded_by_iff_so": superseded_and_open,
    "lineage_kind_known": lambda: make_lineage(kind="whim"),
    "lineage_goes_on": lambda: make_lineage(number=1),
    "lineage_reverts_iff_revert": lambda: make_lineage(kind="revert"),
    "lineage_reverted_once": reverted_twice,
}
