"""Workers say which machine they run on, so that an observer there knows for certain when they have gone."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0003_api_token")]

    operations = [
        migrations.AddField(
            "worker", "machine", models.CharField(blank=True, default="", db_default="", max_length=100)
        ),
    ]
