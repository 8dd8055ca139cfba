"""Bulk actions: one verb for many captured runs, and what came of each. Outcomes are written once, states go forward."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Now

FINAL = ("aborted", "done")
GUARDS = """
CREATE FUNCTION runs_refuse_bulk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %.', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER bulk_state_goes_forward BEFORE UPDATE OF state ON runs_bulk FOR EACH ROW
    WHEN (NEW.state <> OLD.state AND (OLD.state IN ('aborted', 'done') OR NEW.state = 'preview'
          OR (OLD.state = 'preview' AND NEW.state <> 'running') OR (OLD.state = 'paused' AND NEW.state = 'done')))
    EXECUTE FUNCTION runs_refuse_bulk('a bulk action goes from preview to running, may pause, and ends once');
CREATE TRIGGER bulk_item_outcome_is_final BEFORE UPDATE ON runs_bulk_item FOR EACH ROW
    WHEN (OLD.state <> 'pending' OR NEW.run_id <> OLD.run_id OR NEW.bulk_id <> OLD.bulk_id)
    EXECUTE FUNCTION runs_refuse_bulk('the outcome for a run is written once, for the run that was captured');
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_many_runs")]

    operations = [
        migrations.CreateModel(
            "Bulk",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("verb", models.CharField(max_length=40)),
                ("arguments", models.JSONField(default=dict)),
                ("selection", models.JSONField(default=dict)),
                ("runs", models.IntegerField()),
                ("state", models.CharField(default="preview", max_length=8)),
                ("actor", models.CharField(max_length=200)),
                ("reason", models.TextField(blank=True, default="")),
                ("plan", models.JSONField(default=dict)),
                ("plan_hash", models.CharField(blank=True, default="", max_length=64)),
                ("held_by", models.CharField(blank=True, default="", max_length=200)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        "runs.Tenant", on_delete=django.db.models.deletion.PROTECT, related_name="+", db_index=False
                    ),
                ),
            ],
            options={
                "db_table": "runs_bulk",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(state__in=["aborted", "done", "paused", "preview", "running"]),
                        name="bulk_state_known",
                    ),
                    models.CheckConstraint(condition=Q(runs__gte=1), name="bulk_has_runs"),
                    models.CheckConstraint(
                        condition=Q(state="preview", started_at=None, reason="")
                        | (~Q(state="preview") & Q(started_at__isnull=False) & ~Q(reason="")),
                        name="bulk_started_with_a_reason",
                    ),
                    models.CheckConstraint(
                        condition=Q(state__in=FINAL, finished_at__isnull=False)
                        | (~Q(state__in=FINAL) & Q(finished_at=None)),
                        name="bulk_finished_at_iff_final",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["id"], name="bulk_running", condition=Q(state="running")),
                    models.Index(fields=["created_at"], name="bulk_previewed", condition=Q(state="preview")),
                    models.Index(F("tenant"), F("id").desc(), name="bulk_tenant_newest"),
                ],
            },
        ),
        migrations.CreateModel(
            "BulkItem",
            [
                ("pk", models.CompositePrimaryKey("bulk_id", "seq", blank=True, editable=False, serialize=False)),
                ("seq", models.IntegerField()),
                ("facts", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("state", models.CharField(db_default="pending", default="pending", max_length=7)),
                ("message", models.TextField(blank=True, db_default="", default="")),
                ("tries", models.SmallIntegerField(db_default=0, default=0)),
                ("due_at", models.DateTimeField(db_default=Now())),
                ("at", models.DateTimeField(null=True)),
                (
                    "bulk",
                    models.ForeignKey(
                        "runs.Bulk", on_delete=django.db.models.deletion.CASCADE, related_name="items", db_index=False
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        "runs.Run",
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        db_constraint=False,
                        db_index=False,
                    ),
                ),
            ],
            options={
                "db_table": "runs_bulk_item",
                "constraints": [
                    models.UniqueConstraint(fields=["bulk", "run"], name="bulk_item_run_once"),
                    models.CheckConstraint(
                        condition=Q(state__in=["done", "failed", "pending", "refused"]), name="bulk_item_state_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(state="pending", at=None) | (~Q(state="pending") & Q(at__isnull=False)),
                        name="bulk_item_at_iff_settled",
                    ),
                ],
                "indexes": [
                    models.Index(
                        fields=["bulk", "due_at", "seq"], name="bulk_item_pending", condition=Q(state="pending")
                    ),
                    models.Index(fields=["bulk", "state", "seq"], name="bulk_item_by_state"),
                ],
            },
        ),
        migrations.RunSQL(GUARDS, "DROP FUNCTION runs_refuse_bulk() CASCADE"),
    ]
