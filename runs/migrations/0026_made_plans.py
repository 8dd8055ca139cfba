"""Plans that runs make for themselves."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

GUARDS = """
CREATE TRIGGER runs_made_plan_immutable BEFORE UPDATE OR DELETE ON runs_made_plan FOR EACH ROW
    EXECUTE FUNCTION runs_refuse_change();"""
UNGUARD = "DROP TRIGGER runs_made_plan_immutable ON runs_made_plan;"


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0025_budgets"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="own_plan",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name="MadePlan",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.SmallIntegerField()),
                ("lineage", models.SmallIntegerField()),
                ("seq", models.IntegerField()),
                ("step_id", models.CharField(blank=True, max_length=100)),
                ("steps", models.JSONField()),
                ("plan", models.JSONField()),
                ("plan_hash", models.CharField(max_length=64)),
                ("why", models.TextField(blank=True)),
                ("actor", models.CharField(blank=True, max_length=200)),
                ("fence", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="made_plans",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "db_table": "runs_made_plan",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("lineage__gte", 1), ("number__gte", 1), ("seq__gte", 0)),
                        name="made_plan_sane",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(models.Q(("step_id", ""), _negated=True), ("actor", "")),
                            models.Q(("step_id", ""), models.Q(("actor", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="made_plan_by_one",
                    ),
                    models.UniqueConstraint(fields=("run", "seq"), name="made_plan_once_per_checkpoint"),
                ],
            },
        ),
        migrations.RunSQL(GUARDS, UNGUARD),
    ]
