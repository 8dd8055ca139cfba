"""Settling doubts: which workers are certainly gone, and what a tenant did at a system."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0015_lineages")]

    operations = [
        migrations.AddField("worker", "gone", models.BooleanField(default=False, db_default=False)),
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(fields=["system", "tenant", "id"], name="effect_at_system", condition=Q(safety="legacy")),
        ),
        RemoveIndexConcurrently("idempotencyrecord", "effect_of_system"),
    ]
