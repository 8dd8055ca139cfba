"""Lines of positions that begin anew, and what people decide about runs that do not fit."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models

# An effect keeps its key and its outcome for ever. Its slot follows the step and tool it belongs to, where a new line of
# positions calls them something else: the writer of lines says so inside its own transaction, as retention does.
GUARDS = """
DROP TRIGGER effect_outcome_is_final ON runs_effect;
CREATE TRIGGER effect_outcome_is_final BEFORE UPDATE ON runs_effect FOR EACH ROW
    WHEN ((NEW.slot <> OLD.slot AND coalesce(current_setting('durableops.lineage', true), '') <> 'on')
          OR NEW.key <> OLD.key OR NEW.request_hash <> OLD.request_hash
          OR (OLD.state IN ('succeeded', 'refused', 'given_up') AND NEW.state <> OLD.state))
    EXECUTE FUNCTION runs_refuse_outcome();
CREATE TRIGGER runs_lineage_immutable BEFORE UPDATE OR DELETE ON runs_lineage FOR EACH ROW
    EXECUTE FUNCTION runs_refuse_change();
CREATE FUNCTION runs_refuse_second_decision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'review % was closed as % by % already: what was decided is final.', OLD.id, OLD.closed_as,
        OLD.closed_by USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER review_decision_is_final BEFORE UPDATE ON runs_review FOR EACH ROW
    WHEN (OLD.closed_at IS NOT NULL) EXECUTE FUNCTION runs_refuse_second_decision();
"""
UNGUARD = """
DROP FUNCTION runs_refuse_second_decision() CASCADE;
DROP TRIGGER runs_lineage_immutable ON runs_lineage;
DROP TRIGGER effect_outcome_is_final ON runs_effect;
CREATE TRIGGER effect_outcome_is_final BEFORE UPDATE ON runs_effect FOR EACH ROW
    WHEN (NEW.slot <> OLD.slot OR NEW.key <> OLD.key OR NEW.request_hash <> OLD.request_hash
          OR (OLD.state IN ('succeeded', 'refused', 'given_up') AND NEW.state <> OLD.state))
    EXECUTE FUNCTION runs_refuse_outcome();
"""


class Migration(migrations.Migration):
    # A check over all checkpoints is made beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [
        ("runs", "0014_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="Lineage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="lineages",
                        to="runs.run",
                    ),
                ),
                ("number", models.SmallIntegerField()),
                ("kind", models.CharField(max_length=8)),
                ("from_seq", models.IntegerField()),
                ("seq", models.IntegerField()),
                ("functions", models.JSONField(default=list)),
                ("moved", models.JSONField(default=dict)),
                ("reverts", models.SmallIntegerField(null=True)),
                ("actor", models.CharField(max_length=200)),
                ("reason", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "runs_lineage",
            },
        ),
        migrations.CreateModel(
            name="Review",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workflow", models.CharField(max_length=100)),
                ("code", models.CharField(max_length=20)),
                ("fingerprint", models.CharField(max_length=32)),
                ("reason", models.TextField()),
                ("differences", models.JSONField(default=list)),
                ("seq", models.IntegerField()),
                ("found_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("claimed_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("second_asked_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("second_asked_at", models.DateTimeField(null=True)),
                ("second_why", models.TextField(blank=True, db_default="", default="")),
                ("closed_at", models.DateTimeField(null=True)),
                ("closed_as", models.CharField(blank=True, db_default="", default="", max_length=10)),
                ("closed_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("closed_why", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "db_table": "runs_review",
            },
        ),
        migrations.RemoveConstraint(
            model_name="checkpoint",
            name="checkpoint_kind_known",
        ),
        migrations.AlterField(
            model_name="checkpoint",
            name="kind",
            field=models.CharField(
                choices=[
                    ("start", "start"),
                    ("step", "step"),
                    ("page", "page"),
                    ("finish", "finish"),
                    ("migrate", "migrate"),
                    ("edit", "edit"),
                    ("move", "move"),
                    ("revert", "revert"),
                ],
                max_length=8,
            ),
        ),
        AddConstraintNotValid(
            "checkpoint",
            models.CheckConstraint(
                condition=models.Q(kind__in=["edit", "finish", "migrate", "move", "page", "revert", "start", "step"]),
                name="checkpoint_kind_known",
            ),
        ),
        ValidateConstraint("checkpoint", "checkpoint_kind_known"),
        migrations.AddField(
            model_name="lineage",
            name="from_plan",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.workflowplan",
            ),
        ),
        migrations.AddField(
            model_name="lineage",
            name="plan",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.workflowplan",
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="plan",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.workflowplan",
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="reviews", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="superseded_by",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.review",
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="target",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.workflowplan",
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddConstraint(
            model_name="lineage",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["edit", "migrate", "move", "revert"])), name="lineage_kind_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="lineage",
            constraint=models.CheckConstraint(
                condition=models.Q(("from_seq__lt", models.F("seq")), ("number__gte", 2)), name="lineage_goes_on"
            ),
        ),
        migrations.AddConstraint(
            model_name="lineage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "revert"), ("reverts__isnull", False)),
                    models.Q(models.Q(("kind", "revert"), _negated=True), ("reverts", None)),
                    _connector="OR",
                ),
                name="lineage_reverts_iff_revert",
            ),
        ),
        migrations.AddConstraint(
            model_name="lineage",
            constraint=models.UniqueConstraint(
                condition=models.Q(("reverts__isnull", False)), fields=("run", "reverts"), name="lineage_reverted_once"
            ),
        ),
        migrations.AddIndex(
            model_name="review",
            index=models.Index(
                condition=models.Q(("closed_at", None)), fields=["tenant", "found_at", "id"], name="review_open_oldest"
            ),
        ),
        migrations.AddIndex(
            model_name="review",
            index=models.Index(
                condition=models.Q(("closed_at", None)),
                fields=["tenant", "fingerprint", "id"],
                name="review_open_group",
            ),
        ),
        migrations.AddIndex(
            model_name="review",
            index=models.Index(fields=["run", "id"], name="review_of_run"),
        ),
        migrations.AddConstraint(
            model_name="review",
            constraint=models.UniqueConstraint(
                condition=models.Q(("closed_at", None)), fields=("run",), name="review_open_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="review",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_as", ""), ("closed_at", None), ("closed_by", "")),
                    models.Q(
                        (
                            "closed_as__in",
                            [
                                "edited",
                                "ended",
                                "migrated",
                                "moved",
                                "pinned",
                                "rechecked",
                                "rejected",
                                "resolved",
                                "reverted",
                                "superseded",
                            ],
                        ),
                        ("closed_at__isnull", False),
                        models.Q(("closed_by", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="review_closed_as_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="review",
            constraint=models.CheckConstraint(
                condition=models.Q(("superseded_by", None), ("closed_as", "superseded"), _connector="OR"),
                name="review_superseded_by_iff_so",
            ),
        ),
        migrations.RunSQL(GUARDS, UNGUARD),
    ]
