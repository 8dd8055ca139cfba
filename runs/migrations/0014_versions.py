"""Which plans a worker can run, what is kept of a plan to compare it with later code, and runs pinned to theirs."""

from __future__ import annotations

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import F, Q, Value
from django.db.models.functions import Now

OPEN = ["in_doubt", "in_review", "queued", "running", "waiting"]


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0013_compensation")]

    operations = [
        migrations.AddField(
            "workflowplan",
            "schema",
            models.JSONField(default=dict, db_default=Value({}, output_field=models.JSONField())),
        ),
        migrations.AddField(
            "workflowplan",
            "waits",
            models.JSONField(default=dict, db_default=Value({}, output_field=models.JSONField())),
        ),
        migrations.AddField(
            "workflowplan", "waits_hash", models.CharField(max_length=64, default="", db_default="", blank=True)
        ),
        migrations.RemoveConstraint("workflowplan", "plan_meaning_unique"),
        migrations.AddConstraint(
            "workflowplan",
            models.UniqueConstraint(
                fields=["workflow", "version", "schema_version", "schema_hash", "plan_hash", "waits_hash"],
                name="plan_meaning_unique",
            ),
        ),
        migrations.CreateModel(
            name="PlanSource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.CharField(max_length=64)),
                ("first_seen_at", models.DateTimeField(db_default=Now())),
                ("last_seen_at", models.DateTimeField(db_default=Now())),
                (
                    "plan",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sources",
                        to="runs.workflowplan",
                    ),
                ),
            ],
            options={
                "db_table": "runs_plan_source",
                "constraints": [models.UniqueConstraint(fields=["plan", "fingerprint"], name="plan_source_unique")],
            },
        ),
        migrations.AddField("worker", "plans", models.JSONField(null=True)),
        migrations.AddField("run", "pinned", models.BooleanField(default=False, db_default=False)),
        AddIndexConcurrently(
            "worker", models.Index(fields=["ended_at"], name="worker_gone", condition=Q(ended_at__isnull=False))
        ),
        AddIndexConcurrently(
            "run",
            models.Index(
                F("plan"),
                F("isolated"),
                F("resource"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable_of_plan",
                condition=Q(state="queued", paused=False),
            ),
        ),
        AddIndexConcurrently(
            "run", models.Index(fields=["plan", "id"], name="run_open_of_plan", condition=Q(state__in=OPEN))
        ),
    ]
