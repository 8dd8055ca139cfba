"""Secrets of webhook endpoints, encrypted; attempts that a person forgave a message."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0016_settling")]

    operations = [
        migrations.AddField("outboxmessage", "forgiven", models.IntegerField(default=0, db_default=0)),
        migrations.RemoveConstraint("webhookendpoint", "webhook_endpoint_salts_are_whole"),
        migrations.RemoveConstraint("webhookendpoint", "webhook_endpoint_former_secret_ends"),
        migrations.RemoveField("webhookendpoint", "salt"),
        migrations.RemoveField("webhookendpoint", "former_salt"),
        # Nothing made endpoints before this: there is no row to be filled.
        migrations.AddField("webhookendpoint", "secret", models.TextField(default=""), preserve_default=False),
        migrations.AddField("webhookendpoint", "former_secret", models.TextField(blank=True, default="")),
        migrations.AddField(
            "webhookendpoint", "sealed_with", models.CharField(default="", max_length=16), preserve_default=False
        ),
        migrations.AddConstraint(
            "webhookendpoint",
            models.CheckConstraint(
                condition=~Q(secret="") & ~Q(sealed_with=""), name="webhook_endpoint_secret_is_sealed"
            ),
        ),
        migrations.AddConstraint(
            "webhookendpoint",
            models.CheckConstraint(
                condition=Q(former_secret="", former_until=None)
                | (~Q(former_secret="") & Q(former_until__isnull=False)),
                name="webhook_endpoint_former_secret_ends",
            ),
        ),
    ]
