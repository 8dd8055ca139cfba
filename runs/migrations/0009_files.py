"""Files: who may read them, whether they are encrypted, and those in the storage that no artifact names (yet, or any more)."""

from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_outbox")]

    operations = [
        migrations.CreateModel(
            name="LooseFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.CharField(max_length=500, unique=True)),
                ("run_id", models.UUIDField(null=True)),
                ("worker_id", models.UUIDField(null=True)),
                ("abandon_after", models.DateTimeField(null=True)),
                ("doomed", models.BooleanField(db_default=False, default=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "runs_loose_file",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(doomed=True) | Q(worker_id__isnull=False) | Q(abandon_after__isnull=False),
                        name="loose_file_has_an_end",
                    )
                ],
            },
        ),
        migrations.AddField("membership", "reads_prompts", models.BooleanField(db_default=False, default=False)),
        migrations.AddField(
            "artifact", "readable_by", models.CharField(db_default="payloads", default="payloads", max_length=8)
        ),
        migrations.AddField(
            "artifact", "sealed_with", models.CharField(blank=True, db_default="", default="", max_length=16)
        ),
        AddConstraintNotValid(
            "artifact",
            models.CheckConstraint(
                condition=Q(readable_by__in=["members", "payloads", "prompts"]), name="artifact_readers_known"
            ),
        ),
        ValidateConstraint("artifact", "artifact_readers_known"),
        # Files of these classes that were stored before are as they are; new ones are held to it.
        AddConstraintNotValid(
            "artifact",
            models.CheckConstraint(
                condition=~Q(data_class__in=["raw_prompt", "temp_file"])
                | (Q(readable_by="prompts") & ~Q(sealed_with="")),
                name="artifact_private_is_sealed",
            ),
        ),
    ]
