"""The outbox: lanes, messages, bodies, destinations and webhook endpoints; workers that are relays."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from runs.ids import uuid7

GUARDS = """
CREATE FUNCTION runs_refuse_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'lane % may not go from claim % to %: claims only grow.', OLD.id, OLD.claim, NEW.claim
        USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_NAME;
END $$;

CREATE TRIGGER outbox_lane_claim_never_falls BEFORE UPDATE OF claim ON runs_outbox_lane FOR EACH ROW
    WHEN (NEW.claim < OLD.claim) EXECUTE FUNCTION runs_refuse_lane();
"""

# Lanes are rewritten twice for each message: room on each page, and the old versions go soon.
STORAGE = """
ALTER TABLE runs_outbox_lane SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE runs_outbox_message SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
DO $$ BEGIN
    IF (SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        ALTER TABLE runs_outbox_body ALTER COLUMN body SET COMPRESSION lz4;
    END IF;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_doubt"),
    ]

    operations = [
        migrations.CreateModel(
            name="OutboxBody",
            fields=[
                (
                    "effect",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="body",
                        serialize=False,
                        to="runs.idempotencyrecord",
                    ),
                ),
                ("event_type", models.CharField(blank=True, default="", max_length=100)),
                ("body", models.TextField(null=True)),
                ("open_messages", models.IntegerField()),
                ("delivered_messages", models.IntegerField(default=0)),
            ],
            options={
                "db_table": "runs_outbox_body",
            },
        ),
        migrations.CreateModel(
            name="OutboxDestination",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField()),
                ("failures", models.IntegerField(db_default=0, default=0)),
                ("failing_since", models.DateTimeField(null=True)),
                ("open_until", models.DateTimeField(null=True)),
                ("error_message", models.TextField(blank=True, db_default="", default="")),
                ("stopped_by", models.CharField(blank=True, db_default="", default="", max_length=200)),
                ("stopped_why", models.TextField(blank=True, db_default="", default="")),
                ("stopped_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_outbox_destination",
            },
        ),
        migrations.CreateModel(
            name="OutboxLane",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("destination", models.TextField()),
                ("depth", models.IntegerField()),
                ("held_by", models.BigIntegerField(null=True)),
                ("due_at", models.DateTimeField()),
                ("claim", models.BigIntegerField(db_default=0, default=0)),
                ("claimed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_outbox_lane",
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state", models.CharField(default="pending", max_length=9)),
                ("on_poison", models.CharField(max_length=4)),
                ("attempts", models.IntegerField(default=0)),
                ("sendings", models.IntegerField(default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("deliver_before", models.DateTimeField(null=True)),
                ("attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("error_class", models.CharField(blank=True, default="", max_length=200)),
                ("error_message", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "runs_outbox_message",
            },
        ),
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                ("id", models.UUIDField(default=uuid7, editable=False, primary_key=True, serialize=False)),
                ("url", models.TextField()),
                ("description", models.CharField(blank=True, default="", max_length=200)),
                ("event_types", models.JSONField(default=list)),
                ("enabled", models.BooleanField(default=True)),
                ("disabled_why", models.CharField(blank=True, default="", max_length=200)),
                ("salt", models.CharField(max_length=64)),
                ("former_salt", models.CharField(blank=True, default="", max_length=64)),
                ("former_until", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("created_by", models.CharField(max_length=200)),
                ("removed_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "runs_webhook_endpoint",
            },
        ),
        migrations.AddField(
            model_name="worker",
            name="destinations",
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name="worker",
            name="kind",
            field=models.CharField(db_default="worker", default="worker", max_length=6),
        ),
        migrations.AddConstraint(
            model_name="outboxbody",
            constraint=models.CheckConstraint(
                condition=models.Q(("delivered_messages__gte", 0), ("open_messages__gte", 0)),
                name="outbox_body_counts_messages",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxbody",
            constraint=models.CheckConstraint(
                condition=models.Q(("open_messages", 0), ("body__isnull", False), _connector="OR"),
                name="outbox_body_kept_while_needed",
            ),
        ),
        migrations.AddField(
            model_name="outboxdestination",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="outboxlane",
            name="relay",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="lanes",
                to="runs.worker",
            ),
        ),
        migrations.AddField(
            model_name="outboxlane",
            name="run",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="lanes", to="runs.run"
            ),
        ),
        migrations.AddField(
            model_name="outboxlane",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="outboxmessage",
            name="effect",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="messages",
                to="runs.idempotencyrecord",
            ),
        ),
        migrations.AddField(
            model_name="outboxmessage",
            name="lane",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="messages",
                to="runs.outboxlane",
            ),
        ),
        migrations.AddField(
            model_name="outboxmessage",
            name="tenant",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="webhookendpoint",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="webhook_endpoints", to="runs.tenant"
            ),
        ),
        migrations.AddField(
            model_name="outboxmessage",
            name="endpoint",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="messages",
                to="runs.webhookendpoint",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxdestination",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="outbox_destination_unique"),
        ),
        migrations.AddConstraint(
            model_name="outboxdestination",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("failing_since", None), ("failures", 0), ("open_until", None)),
                    models.Q(("failing_since__isnull", False), ("failures__gt", 0)),
                    _connector="OR",
                ),
                name="outbox_destination_failing_since_iff_failing",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxdestination",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("stopped_at", None), ("stopped_by", "")),
                    models.Q(models.Q(("stopped_by", ""), _negated=True), ("stopped_at__isnull", False)),
                    _connector="OR",
                ),
                name="outbox_destination_stopped_by_somebody",
            ),
        ),
        migrations.AddIndex(
            model_name="outboxlane",
            index=models.Index(
                condition=models.Q(("depth__gt", 0), ("held_by", None), ("relay", None)),
                fields=["tenant", "destination", "due_at", "id"],
                name="outbox_lane_ready",
            ),
        ),
        migrations.AddIndex(
            model_name="outboxlane",
            index=models.Index(
                condition=models.Q(("relay__isnull", False)), fields=["relay"], name="outbox_lane_claimed"
            ),
        ),
        migrations.AddIndex(
            model_name="outboxlane",
            index=models.Index(
                condition=models.Q(("held_by__isnull", False)), fields=["tenant", "id"], name="outbox_lane_held"
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxlane",
            constraint=models.UniqueConstraint(fields=("run", "destination"), name="outbox_lane_unique"),
        ),
        migrations.AddConstraint(
            model_name="outboxlane",
            constraint=models.CheckConstraint(
                condition=models.Q(("depth__gte", 0)), name="outbox_lane_depth_is_a_count"
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxlane",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("claimed_at", None), ("relay", None)),
                    models.Q(("claimed_at__isnull", False), ("depth__gt", 0), ("relay__isnull", False)),
                    _connector="OR",
                ),
                name="outbox_lane_claimed_at_iff_claimed",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxlane",
            constraint=models.CheckConstraint(
                condition=models.Q(("held_by", None), models.Q(("depth__gt", 0), ("relay", None)), _connector="OR"),
                name="outbox_lane_held_is_not_claimed",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(("salt__regex", "^[0-9a-f]{64}$"), ("former_salt__regex", "^([0-9a-f]{64})?$")),
                name="webhook_endpoint_salts_are_whole",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("former_salt", ""), ("former_until", None)),
                    models.Q(models.Q(("former_salt", ""), _negated=True), ("former_until__isnull", False)),
                    _connector="OR",
                ),
                name="webhook_endpoint_former_secret_ends",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("disabled_why", ""), ("enabled", True), ("removed_at", None)),
                    models.Q(("enabled", False), models.Q(("disabled_why", ""), _negated=True)),
                    _connector="OR",
                ),
                name="webhook_endpoint_disabled_for_a_reason",
            ),
        ),
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(
                condition=models.Q(("state", "pending")), fields=["lane", "id"], name="outbox_message_open"
            ),
        ),
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(
                condition=models.Q(("state", "poisoned")), fields=["tenant", "id"], name="outbox_message_poisoned"
            ),
        ),
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(
                condition=models.Q(("endpoint__isnull", False)),
                fields=["endpoint", "id"],
                name="outbox_message_of_endpoint",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["delivered", "pending", "poisoned", "skipped"])),
                name="outbox_message_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(("on_poison__in", ["hold", "skip"])), name="outbox_message_on_poison_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at", None), ("state", "pending")),
                    models.Q(models.Q(("state", "pending"), _negated=True), ("finished_at__isnull", False)),
                    _connector="OR",
                ),
                name="outbox_message_finished_at_iff_finished",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempts__gte", models.F("sendings")), ("sendings__gte", 0)),
                name="outbox_message_sent_at_most_as_often_as_tried",
            ),
        ),
        migrations.AddConstraint(
            model_name="outboxmessage",
            constraint=models.UniqueConstraint(fields=("effect", "lane"), name="outbox_message_once_in_a_lane"),
        ),
        migrations.RunSQL(GUARDS + STORAGE, "DROP FUNCTION runs_refuse_lane() CASCADE;"),
    ]
