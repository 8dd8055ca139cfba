"""Quotas: policies, the numbered slots of their caps, and on a run the slots it has while it runs."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    RemoveIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations, models
from django.db.models import F, Q

# The code of before knows no slots: one worker of it would start runs past every cap. Asked once for each start of a
# worker, never when runs move. The lock is the one that `quotas.set_policy` holds while it looks for such workers.
GUARD = """
CREATE FUNCTION runs_refuse_worker_without_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(3341, 1);
    IF EXISTS (SELECT 1 FROM runs_quota_policy WHERE running_cap IS NOT NULL) THEN
        RAISE EXCEPTION 'this worker is older than the caps that are set here and would run past them; start a newer one.'
            USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER worker_takes_slots BEFORE INSERT ON runs_worker FOR EACH ROW
    WHEN (NOT NEW.takes_slots) EXECUTE FUNCTION runs_refuse_worker_without_slots();
"""
UNGUARD = "DROP FUNCTION runs_refuse_worker_without_slots() CASCADE;"

UNIQUE = {
    "run_slot_unique": ("tenant_id, slot", "slot"),
    "run_resource_slot_unique": ("resource, resource_slot", "resource_slot"),
}
SLOTS_ONLY_WHILE_RUNNING = models.CheckConstraint(
    condition=Q(state="running") | Q(slot=None, resource_slot=None), name="run_slots_only_while_running"
)


def unique(name: str, fields: list[str]) -> migrations.SeparateDatabaseAndState:
    """A unique constraint whose index is built beside the running workers."""
    columns, slot = UNIQUE[name]
    return migrations.SeparateDatabaseAndState(
        database_operations=[
            migrations.RunSQL(
                f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON runs_run ({columns}) INCLUDE (id) WHERE {slot} IS NOT NULL",
                f"DROP INDEX CONCURRENTLY {name}",
            )
        ],
        state_operations=[
            migrations.AddConstraint(
                "run",
                models.UniqueConstraint(
                    fields=fields, name=name, condition=Q(**{f"{slot}__isnull": False}), include=["id"]
                ),
            )
        ],
    )


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0009_files")]

    operations = [
        migrations.CreateModel(
            name="QuotaPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("resource", models.CharField(blank=True, default="", max_length=100)),
                ("running_cap", models.SmallIntegerField(null=True)),
                ("weight", models.SmallIntegerField(db_default=1, default=1)),
                ("priority_min", models.SmallIntegerField(db_default=-100, default=-100)),
                ("priority_max", models.SmallIntegerField(db_default=100, default=100)),
                ("version", models.IntegerField(default=1)),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_by", models.CharField(max_length=200)),
                (
                    "tenant",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quota",
                        to="runs.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "runs_quota_policy",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(
                            Q(("resource", ""), ("tenant__isnull", False)),
                            Q(("tenant", None), Q(("resource", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="quota_policy_has_one_owner",
                    ),
                    models.UniqueConstraint(
                        condition=Q(tenant=None), fields=["resource"], name="quota_policy_resource_unique"
                    ),
                    models.CheckConstraint(
                        condition=Q(
                            ("running_cap", None),
                            Q(("running_cap__gte", 0), ("running_cap__lte", 10000)),
                            _connector="OR",
                        ),
                        name="quota_policy_cap_sane",
                    ),
                    models.CheckConstraint(
                        condition=Q(("weight__gte", 1), ("weight__lte", 100)), name="quota_policy_weight_sane"
                    ),
                    models.CheckConstraint(
                        condition=Q(
                            ("priority_max__lte", 100),
                            ("priority_min__gte", -100),
                            ("priority_min__lte", F("priority_max")),
                        ),
                        name="quota_policy_priorities_sane",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Slot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.SmallIntegerField()),
                ("taken", models.BigIntegerField(default=0)),
                (
                    "policy",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="slots",
                        to="runs.quotapolicy",
                    ),
                ),
            ],
            options={
                "db_table": "runs_slot",
                "constraints": [
                    models.UniqueConstraint(fields=["policy", "number"], name="slot_number_unique"),
                    models.CheckConstraint(
                        condition=Q(("number__gte", 1), ("number__lte", 10000)), name="slot_number_sane"
                    ),
                ],
            },
        ),
        migrations.AddField("run", "resource", models.CharField(blank=True, db_default="", default="", max_length=100)),
        migrations.AddField("run", "slot", models.SmallIntegerField(null=True)),
        migrations.AddField("run", "resource_slot", models.SmallIntegerField(null=True)),
        migrations.AddField("worker", "takes_slots", models.BooleanField(db_default=False, default=True)),
        AddConstraintNotValid("run", SLOTS_ONLY_WHILE_RUNNING),
        ValidateConstraint("run", "run_slots_only_while_running"),
        unique("run_slot_unique", ["tenant", "slot"]),
        unique("run_resource_slot_unique", ["resource", "resource_slot"]),
        AddIndexConcurrently(
            "run",
            models.Index(
                condition=Q(("state", "running"), Q(("resource", ""), _negated=True)),
                fields=["resource"],
                name="run_using",
            ),
        ),
        AddIndexConcurrently(
            "run",
            models.Index(
                F("isolated"),
                F("resource"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable",
                condition=Q(paused=False, state="queued"),
            ),
        ),
        RemoveIndexConcurrently("run", "run_claimable_in_turn"),
        migrations.RunSQL(GUARD, UNGUARD),
    ]
