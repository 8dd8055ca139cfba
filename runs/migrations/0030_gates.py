"""What held queued runs back, and for how long."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0029_left_behind"),
    ]

    operations = [
        migrations.CreateModel(
            name="Gate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gate", models.CharField(max_length=20)),
                ("subject", models.CharField(max_length=250)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("held", models.IntegerField()),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="runs.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "runs_gate",
                "indexes": [
                    models.Index(fields=["subject", "seen_at"], name="gate_of_subject"),
                    models.Index(fields=["seen_at"], name="gate_seen"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "gate__in",
                                [
                                    "quota.resource",
                                    "quota.tenant",
                                    "switch.all",
                                    "switch.tenant",
                                    "switch.workflow",
                                    "workers.none",
                                    "workers.version",
                                ],
                            )
                        ),
                        name="gate_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("held__gte", 1), ("seen_at__gte", models.F("since"))),
                        name="gate_stretch_sane",
                    ),
                ],
            },
        ),
    ]
