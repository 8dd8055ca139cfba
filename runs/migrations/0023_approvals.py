"""Approvals as records: what is asked for, who may decide, its clocks, and a decision that is final."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.comparison
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# What was decided stays decided, in the record of the question and in the answer its step reads. Retention may only
# empty the answer.
GUARDS = """
CREATE FUNCTION runs_refuse_other_decision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% was decided already: what was decided is final.', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER approval_decision_is_final BEFORE UPDATE ON runs_approval FOR EACH ROW
    WHEN (OLD.decided_at IS NOT NULL) EXECUTE FUNCTION runs_refuse_other_decision();
CREATE TRIGGER wait_approval_is_final BEFORE UPDATE ON runs_wait FOR EACH ROW
    WHEN (OLD.kind = 'approval' AND OLD.state = 'answered' AND (NEW.state <> OLD.state
          OR NEW.answered_by <> OLD.answered_by OR NEW.answered_at <> OLD.answered_at
          OR NEW.facts_hash <> OLD.facts_hash OR coalesce(NEW.answer <> coalesce(OLD.answer, ''), false)))
    EXECUTE FUNCTION runs_refuse_other_decision();
"""
UNGUARD = "DROP FUNCTION runs_refuse_other_decision() CASCADE"


class Migration(migrations.Migration):
    # The index is built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [
        ("runs", "0022_clocks"),
    ]

    operations = [
        migrations.CreateModel(
            name="Approval",
            fields=[
                (
                    "wait",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="approval",
                        serialize=False,
                        to="runs.wait",
                    ),
                ),
                ("round", models.SmallIntegerField(default=1)),
                ("choices", models.JSONField(default=list)),
                ("fields", models.JSONField(default=list)),
                ("roles", models.JSONField(default=list)),
                ("four_eyes", models.BooleanField(default=False)),
                ("remind_seconds", models.FloatField(null=True)),
                ("remind_at", models.DateTimeField(null=True)),
                ("reminders", models.SmallIntegerField(db_default=0, default=0)),
                ("escalate_seconds", models.FloatField(null=True)),
                ("escalate_at", models.DateTimeField(null=True)),
                ("escalate_to", models.CharField(db_default="admin", default="admin", max_length=20)),
                ("escalated_at", models.DateTimeField(null=True)),
                ("escalated_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("claimed_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("delegated_to", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("delegated_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("delegated_at", models.DateTimeField(null=True)),
                ("choice", models.CharField(blank=True, db_default="", default="", max_length=50)),
                ("decided_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("decided_at", models.DateTimeField(null=True)),
                ("seen_hash", models.CharField(blank=True, db_default="", default="", max_length=64)),
            ],
            options={
                "db_table": "runs_approval",
            },
        ),
        AddIndexConcurrently(
            "wait",
            models.Index(
                fields=["tenant", "kind", "id"],
                name="wait_open_for_people",
                condition=models.Q(("kind__in", ["approval", "file"]), ("state", "open")),
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="approvals", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(fields=["run", "wait"], name="approval_of_run"),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                django.db.models.functions.comparison.Least(models.F("remind_at"), models.F("escalate_at")),
                condition=models.Q(
                    ("decided_at", None),
                    models.Q(("remind_at__isnull", False), ("escalate_at__isnull", False), _connector="OR"),
                ),
                name="approval_clock",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("choice", ""), ("decided_at", None), ("decided_by", "")),
                    models.Q(
                        ("decided_at__isnull", False),
                        models.Q(("choice", ""), _negated=True),
                        models.Q(("decided_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="approval_decided_by_somebody",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("claimed_at", None), ("claimed_by", "")),
                    models.Q(("claimed_at__isnull", False), models.Q(("claimed_by", ""), _negated=True)),
                    _connector="OR",
                ),
                name="approval_claimed_at_iff_claimed",
            ),
        ),
        migrations.AddConstraint(
            model_name="approval",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("delegated_at", None), ("delegated_by", ""), ("delegated_to", "")),
                    models.Q(
                        ("delegated_at__isnull", False),
                        models.Q(("delegated_to", ""), _negated=True),
                        models.Q(("delegated_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="approval_delegated_by_somebody",
            ),
        ),
        migrations.RunSQL(GUARDS, UNGUARD),
    ]
