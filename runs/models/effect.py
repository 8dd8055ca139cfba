"""What runs do to the world: idempotency records of effects, and decisions of models kept for reuse."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

SAFETY = ("read", "local", "keyed", "outbox", "legacy")
EFFECT_STATES = ("queued", "intended", "succeeded", "refused", "withdrawn", "in_doubt", "given_up")
UNSETTLED = ("queued", "intended", "in_doubt")
"""States without an outcome: not sent yet, on the wire, and maybe done."""


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
    """queued: has no turn yet. intended: on the wire, or about to be. withdrawn: certainly not done, and nobody is
    about to do it. given_up: a person gave up finding out."""
    system = models.CharField(max_length=100, default="", db_default="", blank=True)
    """Whose queue a `legacy` call stands in; "" for every other class."""
    queue_order = models.BigIntegerField(null=True)
    """Place in that queue; the lowest goes first."""
    holds_system = models.BooleanField(default=False, db_default=False)
    """Whether nothing else may go to that system: from dispatch until there is an outcome, or a person releases it."""
    left_behind = models.BooleanField(default=False, db_default=False)
    """Whether a migration left it behind: it happened, and nothing asks for it under its names any more."""
    attempts = models.IntegerField(default=1)
    """How often it was, or may have been, sent. Each above one has an `effect_repeated` event that says why."""
    reused = models.IntegerField(default=0)
    fence = models.BigIntegerField()
    intended_at = models.DateTimeField(db_default=Now())
    send_before = models.DateTimeField(null=True)
    """No sender may put it on the wire after this."""
    quiet_after = models.DateTimeField(null=True)
    """After this no sender can be at it any more, and a person may say that it did not happen."""
    window_ends_at = models.DateTimeField(null=True)
    """Until when the downstream promises to remember the key."""
    completed_at = models.DateTimeField(null=True)
    result = models.TextField(null=True)
    """JSON text of the recorded result; NULL while there is none."""
    downstream_id = models.CharField(max_length=255, default="", blank=True)
    response_summary = models.JSONField(null=True)
    """What a `legacy` system answered: status and beginning, masked."""
    error_class = models.CharField(max_length=200, default="", blank=True)
    error_message = models.TextField(default="", blank=True)
    remind_seconds = models.FloatField(null=True)
    escalate_seconds = models.FloatField(null=True)
    """How long it may be in doubt before somebody is reminded and before it is escalated; empty is the setting."""

    class Meta:
        db_table = "runs_effect"
        constraints = [
            models.UniqueConstraint(fields=["slot"], name="effect_slot_unique"),
            models.CheckConstraint(condition=Q(state__in=sorted(EFFECT_STATES)), name="effect_state_known"),
            models.CheckConstraint(condition=Q(safety__in=sorted(SAFETY)), name="effect_safety_known"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(UNSETTLED), completed_at=None)
                | (~Q(state__in=sorted(UNSETTLED)) & Q(completed_at__isnull=False)),
                name="effect_completed_at_iff_known",
            ),
            models.CheckConstraint(condition=~Q(resource="") | Q(safety="read"), name="effect_resource_named"),
            models.CheckConstraint(
                condition=(Q(safety="legacy", queue_order__isnull=False) & ~Q(system=""))
                | (~Q(safety="legacy") & Q(system="", queue_order=None)),
                name="effect_legacy_has_its_place",
            ),
            models.CheckConstraint(
                condition=~Q(state="queued") | Q(safety__in=["legacy", "outbox"]), name="effect_queued_has_a_queue"
            ),
            # On the wire it holds its system, in doubt until it is released, otherwise never.
            models.CheckConstraint(
                condition=Q(safety="legacy", state="intended", holds_system=True)
                | Q(safety="legacy", state="in_doubt")
                | (~Q(safety="legacy", state__in=["in_doubt", "intended"]) & Q(holds_system=False)),
                name="effect_holds_its_system_while_unknown",
            ),
            # engine.turns: the next one goes when the former has an outcome.
            models.UniqueConstraint(
                fields=["system"], name="effect_one_dispatched_per_system", condition=Q(holds_system=True)
            ),
        ]
        indexes = [
            # engine: what the current page or step has done so far. console: a run's effects.
            models.Index(fields=["run", "id"], name="effect_of_run"),
            # engine.leaving: what a run that ends leaves open. invariants: the few whose outcome is unknown.
            # Not what waits in an outbox: that goes on without its run, and may be much.
            models.Index(
                fields=["run", "id"],
                name="effect_left_of_run",
                condition=Q(state__in=sorted(UNSETTLED)) & ~Q(safety="outbox"),
            ),
            # engine.turns and the Systems page: who is next.
            models.Index(
                fields=["system", "queue_order"],
                name="effect_queue_of_system",
                condition=Q(state="queued", safety="legacy"),
            ),
            # Effects page: newest first by tool, and by system; those that came to nothing; the one with this key.
            models.Index(fields=["tenant", "tool", "id"], name="effect_of_tool"),
            models.Index(fields=["system", "tenant", "id"], name="effect_at_system", condition=Q(safety="legacy")),
            models.Index(
                fields=["tenant", "id"],
                name="effect_came_to_nothing",
                condition=Q(state__in=["given_up", "refused", "withdrawn"]),
            ),
            models.Index(fields=["key"], name="effect_by_key"),
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
