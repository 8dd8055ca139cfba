"""A run that goes back to an earlier checkpoint begins a line of positions of a kind of its own."""

from __future__ import annotations

from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q

LINES = ("migrate", "edit", "move", "revert", "branch")
KINDS = ("start", "step", "page", "finish", *LINES)


class Migration(migrations.Migration):
    # A check over all checkpoints is made beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0017_webhook_secrets")]

    operations = [
        migrations.AlterField("checkpoint", "kind", models.CharField(choices=[(k, k) for k in KINDS], max_length=8)),
        migrations.RemoveConstraint("checkpoint", "checkpoint_kind_known"),
        AddConstraintNotValid(
            "checkpoint",
            models.CheckConstraint(condition=Q(kind__in=sorted(KINDS)), name="checkpoint_kind_known"),
        ),
        ValidateConstraint("checkpoint", "checkpoint_kind_known"),
        migrations.RemoveConstraint("lineage", "lineage_kind_known"),
        migrations.AddConstraint(
            "lineage", models.CheckConstraint(condition=Q(kind__in=sorted(LINES)), name="lineage_kind_known")
        ),
    ]
