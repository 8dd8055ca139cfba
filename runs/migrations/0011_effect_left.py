"""What waits in an outbox does not stand in the index of what a run leaves behind."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0010_quotas")]

    operations = [
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(
                fields=["run", "id"],
                name="effect_left_of_run",
                condition=Q(state__in=["in_doubt", "intended", "queued"]) & ~Q(safety="outbox"),
            ),
        ),
        RemoveIndexConcurrently("idempotencyrecord", "effect_unsettled_of_run"),
    ]
