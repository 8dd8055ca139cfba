"""What each named constraint of questions to people refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

from typing import Any

from runs.models import Approval
from tests.factories import make_run, make_wait, now


def make_approval(**over: Any) -> Approval:
    """An open question for reviewers."""
    run = over.pop("run", None) or make_run(state="waiting")
    wait = over.pop("wait", None) or make_wait(run, kind="approval", name="delivery", facts_hash="f" * 64)
    values: dict[str, Any] = {"tenant": run.tenant, "roles": ["reviewer"]}
    return Approval.objects.create(wait=wait, run=run, **(values | over))


VIOLATIONS = {
    "approval_decided_by_somebody": lambda: make_approval(decided_at=now(), choice="approve"),
    "approval_claimed_at_iff_claimed": lambda: make_approval(claimed_by="rita"),
    "approval_delegated_by_somebody": lambda: make_approval(delegated_to="rita", delegated_at=now()),
}
