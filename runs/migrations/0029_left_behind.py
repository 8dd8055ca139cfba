"""Effects that a migration left behind are told from those that a step may ask for again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0028_state_bytes"),
    ]

    operations = [
        migrations.AddField(
            model_name="idempotencyrecord",
            name="left_behind",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
