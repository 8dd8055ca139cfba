"""What the states of a run's checkpoints take together. Runs that are under way begin to count now."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0027_tenant_budgets")]

    operations = [
        # A constant default: no row is rewritten.
        migrations.AddField("run", "state_bytes", models.BigIntegerField(default=0, db_default=0)),
    ]
