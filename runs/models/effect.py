"""What runs do to the world: idempotency records of effects, and decisions of models kept for reuse."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

SAFETY = ("read", "local", "keyed", "outbox", "legacy")
EFFECT_STATES = ("intended", "succeeded", "refused", "withdrawn", "in_doubt")


class IdempotencyRecord(models.Model):
    """One effect. Its slot is unique: the same thing asked for twice finds this row instead of being sent again."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="effects", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    slot = models.BinaryField(max_length=32)
    """SHA-256 of (run, step, tool, resource, author's key); with scope "tenant", of (tenant, tool, resource, key)."""
    key = models.CharField(max_length=64)
    """What the downstream deduplicates on: a hash of slot and canonical request."""
    request_hash = models.CharField(max_length=64)
    request_summary = models.JSONField(default=dict)
    step_id = models.CharField(max_length=100)
    tool = models.CharField(max_length=100)
    resource = models.CharField(max_length=255, default="", blank=True)
    author_key = models.CharField(max_length=255, default="", blank=True)
    safety = models.CharField(max_length=8)
    scope = models.CharField(max_length=6, default="run")
    state = models.CharField(max_length=10, default="intended")
    attempts = models.IntegerField(default=1)
    """How often it was, or may have been, sent. Each above one has an `effect_repeated` event that says why."""
    reused = models.IntegerField(default=0)
    fence = models.BigIntegerField()
    intended_at = models.DateTimeField(db_default=Now())
    send_before = models.DateTimeField(null=True)
    """No sender may put it on the wire after this; a person may settle it only later."""
    window_ends_at = models.DateTimeField(null=True)
    """Until when the downstream promises to remember the key."""
    completed_at = models.DateTimeField(null=True)
    result = models.TextField(null=True)
    """JSON text of the recorded result; NULL while there is none."""
    downstream_id = models.CharField(max_length=255, default="", blank=True)
    error_class = models.CharField(max_length=200, default="", blank=True)
    error_message = models.TextField(default="", blank=True)

    class Meta:
        db_table = "runs_effect"
        constraints = [
            models.UniqueConstraint(fields=["slot"], name="effect_slot_unique"),
            models.CheckConstraint(condition=Q(state__in=sorted(EFFECT_STATES)), name="effect_state_known"),
            models.CheckConstraint(condition=Q(safety__in=sorted(SAFETY)), name="effect_safety_known"),
            models.CheckConstraint(
                condition=Q(state__in=["intended", "in_doubt"], completed_at=None)
                | (~Q(state__in=["intended", "in_doubt"]) & Q(completed_at__isnull=False)),
                name="effect_completed_at_iff_known",
            ),
            models.CheckConstraint(condition=~Q(resource="") | Q(safety="read"), name="effect_resource_named"),
        ]
        indexes = [
            # engine: what the current page or step has done so far. console: a run's effects.
            models.Index(fields=["run", "id"], name="effect_of_run"),
            # invariants, in-doubt desk: the few whose outcome is unknown.
            models.Index(
                fields=["state", "id"], name="effect_unsettled", condition=Q(state__in=["intended", "in_doubt"])
            ),
        ]


class Decision(models.Model):
    """A structured result of a model, found again by the hash of its inputs."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="decisions", db_index=False)
    step_id = models.CharField(max_length=100)
    name = models.CharField(max_length=255)
    author_key = models.CharField(max_length=255, default="", blank=True)
    input_hash = models.CharField(max_length=64)
    result = models.TextField()
    fence = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_decision"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "step_id", "name", "author_key", "input_hash"], name="decision_inputs_unique"
            ),
        ]
