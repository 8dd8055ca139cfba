"""A worker that holds many runs: which runs want a process of their own, the claim in turns, the worker's numbers."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0004_worker_machine")]

    operations = [
        migrations.AddField("run", "isolated", models.BooleanField(default=False, db_default=False)),
        migrations.AddField("worker", "concurrency", models.IntegerField(default=1, db_default=1)),
        migrations.AddField("worker", "isolated", models.BooleanField(default=False, db_default=False)),
        migrations.AddField("worker", "in_hand", models.IntegerField(default=0, db_default=0)),
        migrations.AddField("worker", "loop_lag_seconds", models.FloatField(default=0.0, db_default=0.0)),
        migrations.AddField("worker", "forced_stops", models.IntegerField(default=0, db_default=0)),
        migrations.AddField("worker", "memory_bytes", models.BigIntegerField(default=0, db_default=0)),
        migrations.AddField("worker", "connections", models.IntegerField(default=0, db_default=0)),
        AddIndexConcurrently(
            "run",
            models.Index(
                F("isolated"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable_in_turn",
                condition=Q(state="queued", paused=False),
            ),
        ),
        RemoveIndexConcurrently("run", "run_claimable"),
    ]
