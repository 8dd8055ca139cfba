"""Retention: messages by lane, which the database looks for whenever a lane is removed."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # The index is built beside the running workers, which no transaction allows.
    atomic = False

    dependencies = [("runs", "0030_gates")]

    operations = [AddIndexConcurrently("outboxmessage", models.Index(fields=["lane"], name="outbox_message_of_lane"))]
