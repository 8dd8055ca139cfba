"""How many starts and calls a minute a quota allows."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0020_retention")]

    operations = [
        migrations.AddField("quotapolicy", "starts_per_minute", models.IntegerField(null=True)),
        migrations.AddField(
            "quotapolicy",
            "call_rates",
            models.JSONField(default=dict, db_default=models.Value({}, models.JSONField())),
        ),
        migrations.AddConstraint(
            "quotapolicy",
            models.CheckConstraint(
                condition=Q(("starts_per_minute", None), ("starts_per_minute__gte", 0), _connector="OR"),
                name="quota_policy_starts_sane",
            ),
        ),
    ]
