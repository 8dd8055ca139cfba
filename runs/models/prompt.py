"""Raw prompts: what was sent to a model, word by word. Encrypted, apart from decisions, and kept for less long."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Prompt(models.Model):
    """One text that a step gave to a model, or got from it. What was decided with it is a Decision, without it."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="prompts", db_index=False)
    step_id = models.CharField(max_length=100)
    name = models.CharField(max_length=255)
    author_key = models.CharField(max_length=255, default="", blank=True)
    content_hash = models.CharField(max_length=64)
    """SHA-256 of the masked text, keyed with this installation's secret: equal texts are found, none can be guessed."""
    size_bytes = models.IntegerField()
    sealed = models.TextField()
    sealed_with = models.CharField(max_length=16)
    fence = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_prompt"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "step_id", "name", "author_key", "content_hash"], name="prompt_content_unique"
            ),
            models.CheckConstraint(condition=~Q(sealed="") & ~Q(sealed_with=""), name="prompt_is_sealed"),
        ]
