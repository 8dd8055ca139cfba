"""Letting a run's time pass: on the clocks of this process, and in the record, whose instants are moved back."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db.models import F

from durableops import clock
from runs.models import Run, Wait


def let_it_come(run_id: UUID | str, seconds: float) -> None:
    """Let so many seconds pass for a run in hand, and its deadline come in the record."""
    clock.move(seconds)
    Run.objects.filter(pk=run_id, deadline_at__isnull=False).update(
        created_at=F("created_at") - timedelta(seconds=seconds),
        deadline_at=F("deadline_at") - timedelta(seconds=seconds),
    )


def let_all_come(run_id: UUID) -> None:
    """Let the clocks come of a run that nobody has in hand: its deadline, its stay in the queue, its waits."""
    back = timedelta(minutes=61)
    Run.objects.filter(pk=run_id).update(
        created_at=F("created_at") - back, deadline_at=F("deadline_at") - back,
        queue_expires_at=F("queue_expires_at") - back,
    )  # fmt: skip
    Wait.objects.filter(run_id=run_id, state="open", expires_at__isnull=False).update(
        opened_at=F("opened_at") - back, expires_at=F("expires_at") - back
    )
