"""Effects page: the few conflicts among all events."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    # The index is built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0023_approvals")]

    operations = [
        AddIndexConcurrently(
            "runevent", models.Index(fields=["id"], name="event_of_conflict", condition=Q(event="effect_conflict"))
        ),
    ]
