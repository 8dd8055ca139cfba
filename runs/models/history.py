"""What happened to a run: transitions and clock firings, receipts of resumes, and the author's log lines."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class RunEvent(models.Model):
    """One thing that happened, written by the transaction that made it happen. Immutable; references, no payloads."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="events", db_index=False)
    at = models.DateTimeField(db_default=Now())
    event = models.CharField(max_length=40)
    from_state = models.CharField(max_length=12, default="", blank=True)
    to_state = models.CharField(max_length=12, default="", blank=True)
    step_id = models.CharField(max_length=100, default="", blank=True)
    attempt = models.SmallIntegerField(default=0)
    fence = models.BigIntegerField(default=0)
    worker = models.ForeignKey(
        "Worker", null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    actor = models.CharField(max_length=200, default="", blank=True)
    reason = models.TextField(default="", blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        db_table = "runs_event"
        indexes = [
            models.Index(fields=["run", "id"], name="event_of_run"),  # timeline: in order of writing
            # engine.firings: the clocks that fired, newest first; few among all events.
            models.Index(fields=["at", "id"], name="event_clock_fired", condition=Q(data__has_key="phase")),
            # Effects page: the conflicts, newest first; few among all events.
            models.Index(fields=["id"], name="event_of_conflict", condition=Q(event="effect_conflict")),
        ]


class Receipt(models.Model):
    """The record of one resume: why it stopped, when that was noticed, what was reused, what ran again."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="receipts", db_index=False)
    number = models.IntegerField()
    cause = models.CharField(max_length=40)
    detail = models.TextField(default="", blank=True)
    step_id = models.CharField(max_length=100)
    fence = models.BigIntegerField()
    worker = models.ForeignKey(
        "Worker", null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    lost_at = models.DateTimeField(null=True)
    noticed_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(db_default=Now())
    reused_effects = models.IntegerField(default=0)
    repeated_effects = models.IntegerField(default=0)
    """Calls without a recorded outcome that were sent again with their old key."""
    entered_again = models.BooleanField(default=True)
    """Whether a step (or page) that had begun was entered from its top again."""

    class Meta:
        db_table = "runs_receipt"
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="receipt_number_unique")]
        indexes = [
            # Overview: recovery time over the last day, by cause.
            models.Index(fields=["cause", "resumed_at"], name="receipt_by_cause"),
        ]

    @property
    def detection_seconds(self) -> float | None:
        """From the last sign of life to the notice."""
        if self.lost_at is None or self.noticed_at is None:
            return None
        return max(0.0, (self.noticed_at - self.lost_at).total_seconds())

    @property
    def recovery_seconds(self) -> float | None:
        """From the last sign of life to the run being in a worker's hand again."""
        if self.lost_at is None:
            return None
        return max(0.0, (self.resumed_at - self.lost_at).total_seconds())


class LogLine(models.Model):
    """One line a step logged. Written with the next commit of the run, or after a second of silence."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="log_lines", db_index=False)
    at = models.DateTimeField()
    step_id = models.CharField(max_length=100)
    attempt = models.SmallIntegerField(default=0)
    entry = models.IntegerField(default=0)
    level = models.CharField(max_length=10)
    message = models.TextField()
    fields = models.JSONField(default=dict)

    class Meta:
        db_table = "runs_log_line"
        indexes = [models.Index(fields=["run", "id"], name="log_line_of_run")]
