"""What is kept how long, what must not go, what went and why; the final summaries; and the guards around them."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, ValidateConstraint
from django.db import migrations, models

GUARDS = """
CREATE TRIGGER runs_retention_rule_immutable BEFORE UPDATE OR DELETE ON runs_retention_rule FOR EACH ROW
    EXECUTE FUNCTION runs_refuse_change();
CREATE TRIGGER runs_cleanup_immutable BEFORE UPDATE OR DELETE ON runs_cleanup FOR EACH ROW
    EXECUTE FUNCTION runs_refuse_change();
CREATE TRIGGER runs_legal_hold_stays BEFORE DELETE ON runs_legal_hold FOR EACH ROW
    EXECUTE FUNCTION runs_refuse_change();
CREATE TRIGGER runs_legal_hold_immutable BEFORE UPDATE ON runs_legal_hold FOR EACH ROW
    WHEN (OLD.lifted_at IS NOT NULL OR NEW.lifted_at IS NULL OR NEW.scope <> OLD.scope
          OR NEW.tenant_id <> OLD.tenant_id OR NEW.run_id IS DISTINCT FROM OLD.run_id OR NEW.label <> OLD.label
          OR NEW.value <> OLD.value OR NEW.placed_by <> OLD.placed_by OR NEW.reason <> OLD.reason)
    EXECUTE FUNCTION runs_refuse_change();
CREATE TRIGGER runs_erasure_stays BEFORE DELETE ON runs_erasure FOR EACH ROW EXECUTE FUNCTION runs_refuse_change();
CREATE TRIGGER runs_erasure_immutable BEFORE UPDATE ON runs_erasure FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL OR NEW.tenant_id <> OLD.tenant_id OR NEW.label <> OLD.label
          OR NEW.value <> OLD.value OR NEW.requested_by <> OLD.requested_by OR NEW.requested_at <> OLD.requested_at)
    EXECUTE FUNCTION runs_refuse_change();
CREATE FUNCTION runs_reopen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM runs_summary s WHERE s.run_id = NEW.id AND s.closed_at IS NOT NULL) THEN
        RAISE EXCEPTION 'run % was cleaned: what it would need to go on has gone.', NEW.id
            USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
    END IF;
    NEW.retain_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER run_reopened_only_whole BEFORE UPDATE OF state ON runs_run FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND NEW.finished_at IS NULL) EXECUTE FUNCTION runs_reopen();
"""
UNGUARD = """
DROP FUNCTION runs_reopen() CASCADE;
DROP TRIGGER runs_erasure_immutable ON runs_erasure;
DROP TRIGGER runs_erasure_stays ON runs_erasure;
DROP TRIGGER runs_legal_hold_immutable ON runs_legal_hold;
DROP TRIGGER runs_legal_hold_stays ON runs_legal_hold;
DROP TRIGGER runs_cleanup_immutable ON runs_cleanup;
DROP TRIGGER runs_retention_rule_immutable ON runs_retention_rule;
"""


class Migration(migrations.Migration):
    # Indexes are built, and checks validated, beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [
        ("runs", "0019_deferred"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClassSize",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("data_class", models.CharField(max_length=14)),
                ("rows", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
            ],
            options={
                "db_table": "runs_class_size",
            },
        ),
        migrations.CreateModel(
            name="Cleanup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("data_class", models.CharField(max_length=14)),
                ("kind", models.CharField(max_length=40)),
                ("workflow", models.CharField(blank=True, default="", max_length=100)),
                ("rule", models.BigIntegerField()),
                ("seconds", models.BigIntegerField(null=True)),
                ("cutoff", models.DateTimeField()),
                ("reason", models.CharField(max_length=10)),
                ("runs", models.IntegerField()),
                ("rows", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
                ("sample", models.JSONField(default=list)),
                ("cleaner", models.CharField(max_length=200)),
            ],
            options={
                "db_table": "runs_cleanup",
            },
        ),
        migrations.CreateModel(
            name="Erasure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("label", models.CharField(blank=True, default="", max_length=255)),
                ("value", models.CharField(blank=True, default="", max_length=255)),
                ("requested_by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("requested_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("finished_at", models.DateTimeField(null=True)),
                ("erased", models.JSONField(default=dict)),
                ("stayed", models.JSONField(default=dict)),
            ],
            options={
                "db_table": "runs_erasure",
            },
        ),
        migrations.CreateModel(
            name="LegalHold",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("scope", models.CharField(max_length=6)),
                ("run_id", models.UUIDField(null=True)),
                ("label", models.CharField(blank=True, default="", max_length=255)),
                ("value", models.CharField(blank=True, default="", max_length=255)),
                ("placed_by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("placed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("lifted_at", models.DateTimeField(null=True)),
                ("lifted_by", models.CharField(blank=True, default="", max_length=200)),
                ("lift_reason", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "runs_legal_hold",
            },
        ),
        migrations.CreateModel(
            name="Relook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workflow", models.CharField(blank=True, default="", max_length=100)),
                ("run_id", models.UUIDField(null=True)),
                ("label", models.CharField(blank=True, default="", max_length=255)),
                ("value", models.CharField(blank=True, default="", max_length=255)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("after_at", models.DateTimeField(null=True)),
                ("after_id", models.UUIDField(null=True)),
                ("done_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_relook",
            },
        ),
        migrations.CreateModel(
            name="RetentionLane",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(db_default=0, default=0)),
                ("worked_at", models.DateTimeField(null=True)),
                ("rows", models.BigIntegerField(db_default=0, default=0)),
                ("bytes", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "runs_retention_lane",
            },
        ),
        migrations.CreateModel(
            name="RetentionPreview",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("made_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("made_by", models.CharField(max_length=200)),
                ("as_of", models.DateTimeField()),
                ("rule", models.BigIntegerField()),
                ("figures", models.JSONField()),
                ("ran_at", models.DateTimeField(null=True)),
                ("outcome", models.JSONField(null=True)),
            ],
            options={
                "db_table": "runs_retention_preview",
            },
        ),
        migrations.CreateModel(
            name="RetentionRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workflow", models.CharField(blank=True, default="", max_length=100)),
                ("subject", models.CharField(max_length=14)),
                ("keeps", models.CharField(max_length=9)),
                ("seconds", models.BigIntegerField(null=True)),
                ("actor", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "runs_retention_rule",
            },
        ),
        migrations.CreateModel(
            name="RunSummary",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="summary",
                        serialize=False,
                        to="runs.run",
                    ),
                ),
                ("finished_at", models.DateTimeField()),
                ("version", models.IntegerField()),
                ("checkpoints", models.IntegerField()),
                ("effects", models.JSONField(default=dict)),
                ("output_hash", models.CharField(blank=True, default="", max_length=64)),
                ("output_bytes", models.IntegerField(null=True)),
                ("deliverables", models.JSONField(default=list)),
                ("written_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("cleaned", models.JSONField(default=dict)),
                ("kept", models.JSONField(default=dict)),
                ("closed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_summary",
            },
        ),
        migrations.AddField(
            model_name="run",
            name="retain_at",
            field=models.DateTimeField(null=True),
        ),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False), ("retain_at", None)),
                fields=["finished_at", "id"],
                name="run_just_finished",
            ),
        ),
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                condition=models.Q(("retain_at__isnull", False)), fields=["retain_at", "id"], name="run_retained"
            ),
        ),
        AddConstraintNotValid(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("retain_at", None), ("finished_at__isnull", False), _connector="OR"),
                name="run_retain_at_only_when_finished",
            ),
        ),
        ValidateConstraint("run", "run_retain_at_only_when_finished"),
        migrations.AddIndex(
            model_name="classsize",
            index=models.Index(fields=["data_class", "at"], name="class_size_of_class"),
        ),
        migrations.AddConstraint(
            model_name="classsize",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "data_class__in",
                        [
                            "audit",
                            "checkpoint",
                            "decision",
                            "deliverable",
                            "effect_body",
                            "effect_key",
                            "effect_summary",
                            "event",
                            "input",
                            "raw_prompt",
                            "temp_file",
                        ],
                    )
                ),
                name="class_size_class_known",
            ),
        ),
        migrations.AddField(
            model_name="cleanup",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.tenant",
            ),
        ),
        migrations.AddField(
            model_name="erasure",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="cleanup",
            name="erasure",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="cleanups",
                to="runs.erasure",
            ),
        ),
        migrations.AddField(
            model_name="legalhold",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="relook",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.tenant",
            ),
        ),
        migrations.AddField(
            model_name="retentionpreview",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.tenant",
            ),
        ),
        migrations.AddField(
            model_name="retentionrule",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.tenant",
            ),
        ),
        migrations.AddField(
            model_name="runsummary",
            name="erasure",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.erasure",
            ),
        ),
        migrations.AddIndex(
            model_name="erasure",
            index=models.Index(fields=["tenant", "id"], name="erasure_of_tenant"),
        ),
        migrations.AddIndex(
            model_name="cleanup",
            index=models.Index(
                models.OrderBy(models.F("at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="cleanup_newest",
            ),
        ),
        migrations.AddIndex(
            model_name="cleanup",
            index=models.Index(
                condition=models.Q(("erasure__isnull", False)), fields=["erasure"], name="cleanup_of_erasure"
            ),
        ),
        migrations.AddConstraint(
            model_name="cleanup",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "data_class__in",
                        [
                            "audit",
                            "checkpoint",
                            "decision",
                            "deliverable",
                            "effect_body",
                            "effect_key",
                            "effect_summary",
                            "event",
                            "input",
                            "raw_prompt",
                            "temp_file",
                        ],
                    )
                ),
                name="cleanup_data_class_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="cleanup",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("erasure", None), ("reason", "policy")),
                    models.Q(("erasure__isnull", False), ("reason", "erasure")),
                    _connector="OR",
                ),
                name="cleanup_reason_known",
            ),
        ),
        migrations.AddIndex(
            model_name="legalhold",
            index=models.Index(
                condition=models.Q(("lifted_at", None)), fields=["tenant", "scope"], name="legal_hold_standing"
            ),
        ),
        migrations.AddConstraint(
            model_name="legalhold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("label", ""), ("run_id__isnull", False), ("scope", "run"), ("value", "")),
                    models.Q(("label", ""), ("run_id", None), ("scope", "tenant"), ("value", "")),
                    models.Q(("run_id", None), ("scope", "label"), models.Q(("label", ""), _negated=True)),
                    _connector="OR",
                ),
                name="legal_hold_scope_complete",
            ),
        ),
        migrations.AddConstraint(
            model_name="legalhold",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("lifted_at", None), ("lifted_by", "")),
                    models.Q(("lifted_at__isnull", False), models.Q(("lifted_by", ""), _negated=True)),
                    _connector="OR",
                ),
                name="legal_hold_lifted_by_iff_lifted",
            ),
        ),
        migrations.AddIndex(
            model_name="relook",
            index=models.Index(condition=models.Q(("done_at", None)), fields=["id"], name="relook_open"),
        ),
        migrations.AddIndex(
            model_name="retentionrule",
            index=models.Index(fields=["subject", "tenant", "workflow", "id"], name="retention_rule_of_place"),
        ),
        migrations.AddConstraint(
            model_name="retentionrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "subject__in",
                        [
                            "audit",
                            "checkpoint",
                            "decision",
                            "deliverable",
                            "effect_body",
                            "effect_key",
                            "effect_summary",
                            "event",
                            "input",
                            "raw_prompt",
                            "reopen",
                            "temp_file",
                        ],
                    )
                ),
                name="retention_rule_subject_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="retentionrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("keeps__in", ["for_ever", "inherited", "seconds"])),
                name="retention_rule_keeps_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="retentionrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("keeps", "seconds"), ("seconds__gte", 0)),
                    models.Q(models.Q(("keeps", "seconds"), _negated=True), ("seconds", None)),
                    _connector="OR",
                ),
                name="retention_rule_seconds_iff_meant",
            ),
        ),
        migrations.AddIndex(
            model_name="runsummary",
            index=models.Index(
                condition=models.Q(("erasure__isnull", False)), fields=["erasure"], name="summary_of_erasure"
            ),
        ),
        AddIndexConcurrently(
            model_name="compensationorder",
            index=models.Index(
                condition=models.Q(("linked_run__isnull", False)),
                fields=["linked_run"],
                name="compensation_order_linked",
            ),
        ),
        AddIndexConcurrently(
            model_name="review",
            index=models.Index(
                condition=models.Q(("superseded_by__isnull", False)),
                fields=["superseded_by"],
                name="review_superseding",
            ),
        ),
        migrations.RunSQL(GUARDS, UNGUARD),
    ]
