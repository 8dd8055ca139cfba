"""What each named constraint of bulk actions refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

from typing import Any

from runs.models import Bulk, BulkItem
from tests.factories import make_run, make_tenant, now


def make_bulk(**over: Any) -> Bulk:
    """A previewed bulk action that holds no line yet."""
    values: dict[str, Any] = {"tenant": make_tenant(), "verb": "cancel", "runs": 1, "actor": "ann"}
    return Bulk.objects.create(**(values | over))


def make_item(bulk: Bulk, **over: Any) -> BulkItem:
    values: dict[str, Any] = {"seq": bulk.items.count() + 1}
    if "run_id" not in over:
        values["run_id"] = make_run().pk
    return BulkItem.objects.create(bulk=bulk, **(values | over))


def same_run_twice() -> None:
    bulk, run = make_bulk(), make_run()
    for _ in range(2):
        make_item(bulk, run_id=run.pk)


VIOLATIONS = {
    "bulk_state_known": lambda: make_bulk(state="tired", started_at=now(), reason="so"),
    "bulk_has_runs": lambda: make_bulk(runs=0),
    "bulk_started_with_a_reason": lambda: make_bulk(state="running", started_at=now()),
    "bulk_finished_at_iff_final": lambda: make_bulk(state="done", started_at=now(), reason="so"),
    "bulk_item_run_once": same_run_twice,
    "bulk_item_state_known": lambda: make_item(make_bulk(), state="lost", at=now()),
    "bulk_item_at_iff_settled": lambda: make_item(make_bulk(), state="done"),
}
