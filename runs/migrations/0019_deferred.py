"""Queued runs that are due later stand apart from those that could be claimed now."""

from __future__ import annotations

from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    RemoveIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0018_branches")]

    operations = [
        migrations.AddField("run", "deferred", models.BooleanField(default=False, db_default=False)),
        AddConstraintNotValid(
            "run",
            models.CheckConstraint(
                condition=Q(("state", "queued"), ("deferred", False), _connector="OR"),
                name="run_deferred_only_while_queued",
            ),
        ),
        ValidateConstraint("run", "run_deferred_only_while_queued"),
        AddIndexConcurrently(
            "run",
            models.Index(fields=["due_at"], name="run_deferred", condition=Q(deferred=True, state="queued")),
        ),
        AddIndexConcurrently(
            "run",
            models.Index(
                fields=["tenant", "due_at"], name="run_deferred_in_turn", condition=Q(deferred=True, state="queued")
            ),
        ),
        AddIndexConcurrently(
            "wait",
            models.Index(
                fields=["tenant", "due_at"], name="wait_due_in_turn", condition=Q(due_at__isnull=False, state="open")
            ),
        ),
        AddIndexConcurrently(
            "run",
            models.Index(
                F("isolated"),
                F("resource"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable_now",
                condition=Q(deferred=False, paused=False, state="queued"),
            ),
        ),
        RemoveIndexConcurrently("run", "run_claimable"),
    ]
