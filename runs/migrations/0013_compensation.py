"""What is owed for which effect, who ordered that it be undone, and moves that only go where the table says."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

MOVES = {
    "owed": "proposed approved done waived",
    "proposed": "approved running done owed waived",
    "approved": "running proposed done owed waived",
    "running": "done failed proposed owed waived",
    "failed": "approved proposed done owed waived",
}
_LEGAL = ", ".join(f"('{source}', '{target}')" for source, targets in MOVES.items() for target in targets.split())
GUARDS = f"""
CREATE FUNCTION runs_refuse_compensation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'compensation % may not go from % to %.', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER compensation_moves_are_legal BEFORE UPDATE OF state ON runs_compensation FOR EACH ROW
    WHEN (NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN ({_LEGAL}))
    EXECUTE FUNCTION runs_refuse_compensation();
CREATE TRIGGER compensation_end_is_final BEFORE UPDATE OR DELETE ON runs_compensation FOR EACH ROW
    WHEN (OLD.state IN ('done', 'waived') AND current_setting('durableops.retention', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION runs_refuse_compensation();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0012_prompt"),
    ]

    operations = [
        migrations.CreateModel(
            name="CompensationOrder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("choice", models.CharField(max_length=10)),
                ("actor", models.CharField(max_length=200)),
                ("reason", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("applied_at", models.DateTimeField(null=True)),
                (
                    "linked_run",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.run",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="compensation_orders",
                        to="runs.run",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
                    ),
                ),
            ],
            options={
                "db_table": "runs_compensation_order",
            },
        ),
        migrations.CreateModel(
            name="Compensation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="owed", max_length=8)),
                ("state_since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("how", models.CharField(max_length=6)),
                ("tool", models.CharField(blank=True, default="", max_length=100)),
                ("instructions", models.TextField(blank=True, default="")),
                ("four_eyes", models.BooleanField(default=False)),
                ("because", models.TextField(blank=True, default="")),
                ("owed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("spent_slots", models.SmallIntegerField(default=0)),
                ("error", models.TextField(blank=True, default="")),
                ("proposed_by", models.CharField(blank=True, default="", max_length=200)),
                ("approved_by", models.CharField(blank=True, default="", max_length=200)),
                ("claimed_by", models.CharField(blank=True, default="", max_length=200)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("settled_by", models.CharField(blank=True, default="", max_length=200)),
                ("settled_at", models.DateTimeField(null=True)),
                ("evidence", models.TextField(blank=True, default="")),
                ("downstream_id", models.CharField(blank=True, default="", max_length=255)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "effect",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="compensation",
                        to="runs.idempotencyrecord",
                    ),
                ),
                (
                    "linked_run",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="undoes",
                        to="runs.run",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="compensations",
                        to="runs.run",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
                    ),
                ),
                (
                    "undo_effect",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.idempotencyrecord",
                    ),
                ),
                (
                    "order",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="items",
                        to="runs.compensationorder",
                    ),
                ),
            ],
            options={
                "db_table": "runs_compensation",
            },
        ),
        migrations.AddIndex(
            model_name="compensationorder",
            index=models.Index(fields=["run", "id"], name="compensation_order_of_run"),
        ),
        migrations.AddIndex(
            model_name="compensationorder",
            index=models.Index(condition=models.Q(("applied_at", None)), fields=["id"], name="compensation_order_open"),
        ),
        migrations.AddConstraint(
            model_name="compensationorder",
            constraint=models.CheckConstraint(
                condition=models.Q(("choice__in", ["compensate", "later"])), name="compensation_order_choice_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="compensationorder",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("linked_run", None),
                    models.Q(("choice", "compensate"), ("applied_at__isnull", False)),
                    _connector="OR",
                ),
                name="compensation_order_run_iff_applied",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensationorder",
            constraint=models.UniqueConstraint(
                condition=models.Q(("applied_at", None)), fields=("run",), name="compensation_order_one_at_a_time"
            ),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(fields=["run", "id"], name="compensation_of_run"),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                condition=models.Q(("state__in", ("done", "waived")), _negated=True),
                fields=["tenant", "owed_at", "id"],
                name="compensation_open",
            ),
        ),
        migrations.AddIndex(
            model_name="compensation",
            index=models.Index(
                models.F("linked_run"),
                models.OrderBy(models.F("effect"), descending=True),
                condition=models.Q(("linked_run__isnull", False)),
                name="compensation_to_undo",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["approved", "done", "failed", "owed", "proposed", "running", "waived"])
                ),
                name="compensation_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("how", "tool"), models.Q(("tool", ""), _negated=True)),
                    models.Q(("how", "person"), models.Q(("instructions", ""), _negated=True)),
                    _connector="OR",
                ),
                name="compensation_says_how",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("settled_at__isnull", False),
                        ("state__in", ("done", "waived")),
                        models.Q(("settled_by", ""), _negated=True),
                    ),
                    models.Q(
                        models.Q(("state__in", ("done", "waived")), _negated=True),
                        ("settled_at", None),
                        ("settled_by", ""),
                    ),
                    _connector="OR",
                ),
                name="compensation_settled_iff_final",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "done"), _negated=True),
                    ("undo_effect__isnull", False),
                    models.Q(("evidence", ""), _negated=True),
                    _connector="OR",
                ),
                name="compensation_done_is_proved",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "waived"), _negated=True),
                    models.Q(("reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="compensation_waived_says_why",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("four_eyes", False),
                    ("approved_by", ""),
                    models.Q(("approved_by", models.F("proposed_by")), _negated=True),
                    _connector="OR",
                ),
                name="compensation_four_eyes_are_two_people",
            ),
        ),
        migrations.AddConstraint(
            model_name="compensation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        models.Q(("state", "running"), _negated=True), ("linked_run__isnull", False), _connector="OR"
                    ),
                    models.Q(models.Q(("state", "owed"), _negated=True), ("linked_run", None), _connector="OR"),
                ),
                name="compensation_running_has_its_run",
            ),
        ),
        migrations.RunSQL(GUARDS, "DROP FUNCTION runs_refuse_compensation() CASCADE"),
    ]
