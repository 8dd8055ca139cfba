"""Triggers behind bulk actions: their states go forward and the outcome for a run is written once, whoever writes."""

from __future__ import annotations

import pytest
from django.db import IntegrityError

from runs.ids import uuid7
from runs.models import Bulk, BulkItem
from tests.factories import now
from tests.runs.bulk_violations import make_bulk, make_item

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

STARTED = {"started_at": now(), "reason": "so"}
MOVES = {("preview", "running"), ("running", "paused"), ("running", "aborted"), ("running", "done"),
         ("paused", "running"), ("paused", "aborted")}  # fmt: skip
STATES = ("preview", "running", "paused", "aborted", "done")


def in_state(state: str) -> dict[str, object]:
    final = state in ("aborted", "done")
    given = {"started_at": None, "reason": ""} if state == "preview" else STARTED
    return {"state": state, "finished_at": now() if final else None, **given}


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_state_goes_forward_only(source, target):
    bulk = make_bulk(**in_state(source))
    move = Bulk.objects.filter(pk=bulk.pk)
    if source == target or (source, target) in MOVES:
        assert move.update(**in_state(target)) == 1
        return
    with pytest.raises(IntegrityError) as refused:
        move.update(**in_state(target))
    assert refused.value.__cause__.diag.constraint_name == "bulk_state_goes_forward"  # type: ignore[union-attr]


@pytest.mark.parametrize("change", [{"state": "pending", "at": None}, {"message": "other"}, {"state": "failed"}])
def test_outcome_for_a_run_is_written_once(change):
    item = make_item(make_bulk(), state="done", at=now())
    with pytest.raises(IntegrityError) as refused:
        BulkItem.objects.filter(pk=item.pk).update(**change)
    assert refused.value.__cause__.diag.constraint_name == "bulk_item_outcome_is_final"  # type: ignore[union-attr]


def test_line_never_comes_to_mean_another_run():
    item = make_item(make_bulk())
    with pytest.raises(IntegrityError):
        BulkItem.objects.filter(pk=item.pk).update(run_id=uuid7())
