"""What nobody knows yet: doubts and how they were settled, the queues of legacy systems, waits for a turn."""

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
from django.db.models import Q

UNSETTLED = ["in_doubt", "intended", "queued"]
EFFECT_CHECKS = (
    models.CheckConstraint(
        condition=Q(state__in=["given_up", "in_doubt", "intended", "queued", "refused", "succeeded", "withdrawn"]),
        name="effect_state_known",
    ),
    models.CheckConstraint(
        condition=Q(state__in=UNSETTLED, completed_at=None) | (~Q(state__in=UNSETTLED) & Q(completed_at__isnull=False)),
        name="effect_completed_at_iff_known",
    ),
    models.CheckConstraint(
        condition=(Q(safety="legacy", queue_order__isnull=False) & ~Q(system=""))
        | (~Q(safety="legacy") & Q(system="", queue_order=None)),
        name="effect_legacy_has_its_place",
    ),
    models.CheckConstraint(
        condition=~Q(state="queued") | Q(safety__in=["legacy", "outbox"]), name="effect_queued_has_a_queue"
    ),
    models.CheckConstraint(
        condition=Q(safety="legacy", state="intended", holds_system=True)
        | Q(safety="legacy", state="in_doubt")
        | (~Q(safety="legacy", state__in=["in_doubt", "intended"]) & Q(holds_system=False)),
        name="effect_holds_its_system_while_unknown",
    ),
)
WAIT_CHECK = models.CheckConstraint(
    condition=Q(kind__in=["approval", "children", "event", "file", "poll", "time", "turn"]), name="wait_kind_known"
)
ONE_DISPATCHED = models.UniqueConstraint(
    fields=["system"], name="effect_one_dispatched_per_system", condition=Q(holds_system=True)
)

# Places in the queues. Handed out before their intents commit, so they may have gaps and come late: whoever looks for
# the next one asks for the lowest that is there.
ORDERS = "CREATE SEQUENCE runs_queue_order AS bigint OWNED BY runs_effect.queue_order;"

GUARDS = """
DROP TRIGGER effect_outcome_is_final ON runs_effect;
CREATE TRIGGER effect_outcome_is_final BEFORE UPDATE ON runs_effect FOR EACH ROW
    WHEN (NEW.slot <> OLD.slot OR NEW.key <> OLD.key OR NEW.request_hash <> OLD.request_hash
          OR (OLD.state IN ('succeeded', 'refused', 'given_up') AND NEW.state <> OLD.state))
    EXECUTE FUNCTION runs_refuse_outcome();
CREATE FUNCTION runs_refuse_settlement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'doubt % was settled as % by % already: a settlement is final.', OLD.id, OLD.settled_as,
        OLD.settled_by USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER doubt_settlement_is_final BEFORE UPDATE ON runs_doubt FOR EACH ROW
    WHEN (OLD.settled_at IS NOT NULL) EXECUTE FUNCTION runs_refuse_settlement();
"""
UNGUARD = """
DROP FUNCTION runs_refuse_settlement() CASCADE;
DROP TRIGGER effect_outcome_is_final ON runs_effect;
CREATE TRIGGER effect_outcome_is_final BEFORE UPDATE ON runs_effect FOR EACH ROW
    WHEN (NEW.slot <> OLD.slot OR NEW.key <> OLD.key OR NEW.request_hash <> OLD.request_hash
          OR (OLD.state IN ('succeeded', 'refused') AND NEW.state <> OLD.state))
    EXECUTE FUNCTION runs_refuse_outcome();
"""


def _checks_anew() -> list[migrations.operations.base.Operation]:
    made: list[migrations.operations.base.Operation] = []
    for model, known, checks in (
        ("idempotencyrecord", ("effect_state_known", "effect_completed_at_iff_known"), EFFECT_CHECKS),
        ("wait", ("wait_kind_known",), (WAIT_CHECK,)),
    ):
        made += [migrations.RemoveConstraint(model, name) for name in known]
        made += [AddConstraintNotValid(model, check) for check in checks]
        made += [ValidateConstraint(model, check.name) for check in checks]
    return made


class Migration(migrations.Migration):
    # Indexes are built, and checks validated, beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0006_bulk_actions")]

    operations = [
        migrations.AddField(
            "idempotencyrecord", "system", models.CharField(blank=True, db_default="", default="", max_length=100)
        ),
        migrations.AddField("idempotencyrecord", "queue_order", models.BigIntegerField(null=True)),
        migrations.AddField("idempotencyrecord", "holds_system", models.BooleanField(db_default=False, default=False)),
        migrations.AddField("idempotencyrecord", "quiet_after", models.DateTimeField(null=True)),
        migrations.AddField("idempotencyrecord", "response_summary", models.JSONField(null=True)),
        migrations.AddField("idempotencyrecord", "remind_seconds", models.FloatField(null=True)),
        migrations.AddField("idempotencyrecord", "escalate_seconds", models.FloatField(null=True)),
        migrations.RunSQL(ORDERS, "DROP SEQUENCE runs_queue_order;"),
        *_checks_anew(),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY effect_one_dispatched_per_system ON runs_effect (system)"
                    " WHERE holds_system",
                    "DROP INDEX CONCURRENTLY effect_one_dispatched_per_system",
                )
            ],
            state_operations=[migrations.AddConstraint("idempotencyrecord", ONE_DISPATCHED)],
        ),
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(fields=["run", "id"], name="effect_unsettled_of_run", condition=Q(state__in=UNSETTLED)),
        ),
        RemoveIndexConcurrently("idempotencyrecord", "effect_unsettled"),
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(
                fields=["system", "queue_order"],
                name="effect_queue_of_system",
                condition=Q(state="queued", safety="legacy"),
            ),
        ),
        AddIndexConcurrently("idempotencyrecord", models.Index(fields=["tenant", "tool", "id"], name="effect_of_tool")),
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(fields=["system", "id"], name="effect_of_system", condition=Q(safety="legacy")),
        ),
        AddIndexConcurrently(
            "idempotencyrecord",
            models.Index(
                fields=["tenant", "id"],
                name="effect_came_to_nothing",
                condition=Q(state__in=["given_up", "refused", "withdrawn"]),
            ),
        ),
        AddIndexConcurrently("idempotencyrecord", models.Index(fields=["key"], name="effect_by_key")),
        AddIndexConcurrently(
            "wait",
            models.Index(fields=["name", "correlation"], name="wait_open_turn", condition=Q(kind="turn", state="open")),
        ),
        migrations.CreateModel(
            name="Doubt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "effect",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="doubts",
                        to="runs.idempotencyrecord",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="doubts",
                        to="runs.run",
                    ),
                ),
                ("cause", models.CharField(max_length=40)),
                ("why", models.TextField()),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("reminded_at", models.DateTimeField(null=True)),
                ("escalated_at", models.DateTimeField(null=True)),
                ("probe_at", models.DateTimeField(null=True)),
                ("probe_attempts", models.IntegerField(db_default=0, default=0)),
                ("probe_said", models.TextField(blank=True, db_default="", default="")),
                ("claimed_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("released_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("settled_at", models.DateTimeField(null=True)),
                ("settled_as", models.CharField(blank=True, db_default="", default="", max_length=10)),
                ("settled_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("downstream_id", models.CharField(blank=True, db_default="", default="", max_length=255)),
                ("evidence", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "db_table": "runs_doubt",
                "constraints": [
                    models.UniqueConstraint(
                        fields=["effect"], name="doubt_one_open_per_effect", condition=Q(settled_at=None)
                    ),
                    models.CheckConstraint(
                        condition=Q(settled_at=None, settled_as="", settled_by="")
                        | (
                            Q(
                                settled_at__isnull=False,
                                settled_as__in=["compensate", "did_not", "give_up", "happened", "sent_again"],
                            )
                            & ~Q(settled_by="")
                        ),
                        name="doubt_settled_at_iff_settled",
                    ),
                    models.CheckConstraint(
                        condition=Q(claimed_at=None, claimed_by="") | (Q(claimed_at__isnull=False) & ~Q(claimed_by="")),
                        name="doubt_claimed_at_iff_claimed",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["tenant", "since", "id"], name="doubt_open", condition=Q(settled_at=None)),
                    models.Index(fields=["run", "id"], name="doubt_of_run"),
                    models.Index(fields=["effect", "id"], name="doubt_of_effect"),
                ],
            },
        ),
        migrations.CreateModel(
            name="System",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("first_used_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("paused", models.BooleanField(db_default=False, default=False)),
                ("paused_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("paused_reason", models.TextField(blank=True, db_default="", default="")),
                ("paused_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_system",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(paused=False, paused_by="", paused_at=None)
                        | (Q(paused=True, paused_at__isnull=False) & ~Q(paused_by="")),
                        name="system_paused_by_somebody",
                    ),
                ],
            },
        ),
        migrations.RunSQL(GUARDS, UNGUARD),
    ]
