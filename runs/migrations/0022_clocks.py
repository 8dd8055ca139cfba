"""What happens when a clock comes, the clock of the queue, and the clocks that fired as a list."""

from __future__ import annotations

from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q

_WAIT = Q(("on_timeout__in", ["ask", "asked", "cancel", "continue", "extend", "fail", "raise"]))
_QUEUE = Q(("state", "queued"), ("queue_expires_at", None), _connector="OR")
_POLICIES = Q(
    ("deadline_policy__in", ["ask", "asked", "cancel", "extend", "fail"]),
    ("queue_policy__in", ["ask", "cancel", "continue", "extend", "fail"]),
)


class Migration(migrations.Migration):
    # Indexes are built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0021_rates")]

    operations = [
        migrations.AddField(
            "run", "deadline_policy", models.CharField(default="fail", db_default="fail", max_length=6)
        ),
        migrations.AddField("run", "queue_seconds", models.FloatField(null=True)),
        migrations.AddField("run", "queue_policy", models.CharField(default="fail", db_default="fail", max_length=8)),
        migrations.AddField("run", "queue_expires_at", models.DateTimeField(null=True)),
        migrations.AddField("wait", "clock", models.CharField(default="", db_default="", max_length=12, blank=True)),
        AddConstraintNotValid(
            "run", models.CheckConstraint(condition=_QUEUE, name="run_queue_clock_only_while_queued")
        ),
        ValidateConstraint("run", "run_queue_clock_only_while_queued"),
        AddConstraintNotValid("run", models.CheckConstraint(condition=_POLICIES, name="run_clock_policies_known")),
        ValidateConstraint("run", "run_clock_policies_known"),
        migrations.RemoveConstraint("wait", "wait_on_timeout_known"),
        AddConstraintNotValid("wait", models.CheckConstraint(condition=_WAIT, name="wait_on_timeout_known")),
        ValidateConstraint("wait", "wait_on_timeout_known"),
        AddIndexConcurrently(
            "run",
            models.Index(
                fields=["queue_expires_at"],
                name="run_queue_clock",
                condition=Q(queue_expires_at__isnull=False, state="queued"),
            ),
        ),
        AddIndexConcurrently(
            "runevent",
            models.Index(fields=["at", "id"], name="event_clock_fired", condition=Q(data__has_key="phase")),
        ),
    ]
