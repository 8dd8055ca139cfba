"""Triggers behind compensation: it moves only as the table says, and its end is final, whoever writes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError

from runs.models import Compensation
from runs.models.compensation import MOVES
from tests.factories import make_run, now
from tests.runs.compensation_violations import make_compensation

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def in_state(state: str) -> dict[str, Any]:
    final = state in ("done", "waived")
    return {
        "state": state, "reason": "so", "evidence": "R1", "linked_run": None if state == "owed" else make_run(),
        "settled_at": now() if final else None, "settled_by": "ann" if final else "",
    }  # fmt: skip


@pytest.mark.parametrize("source", MOVES)
@pytest.mark.parametrize("target", MOVES)
def test_compensation_moves_as_the_table_says(source, target):
    one = make_compensation(**in_state(source))
    move = Compensation.objects.filter(pk=one.pk)
    if target in MOVES[source] or (source == target and MOVES[source]):
        assert move.update(**in_state(target)) == 1
        return
    with pytest.raises(IntegrityError) as refused:
        move.update(**in_state(target))
    name = "compensation_moves_are_legal" if MOVES[source] else "compensation_end_is_final"
    assert refused.value.__cause__.diag.constraint_name == name  # type: ignore[union-attr]


@pytest.mark.parametrize("state", ["done", "waived"])
def test_what_was_settled_is_neither_changed_nor_deleted(state):
    one = make_compensation(**in_state(state))
    with pytest.raises(IntegrityError):
        Compensation.objects.filter(pk=one.pk).update(evidence="other")
    with pytest.raises(IntegrityError):
        one.delete()
