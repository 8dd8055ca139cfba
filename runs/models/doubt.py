"""What nobody knows yet: effects that may or may not have happened; and the legacy systems whose queues they hold."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

SETTLED_AS = ("happened", "did_not", "give_up", "compensate", "sent_again")
"""sent_again: its key was still remembered, so sending it once more with the same key answered the question."""


class Doubt(models.Model):
    """One time an effect's outcome was unknown: why, since when, and how it was settled. Outlives its run's end."""

    effect = models.ForeignKey("IdempotencyRecord", on_delete=models.PROTECT, related_name="doubts", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="doubts", db_index=False)
    cause = models.CharField(max_length=40)
    """What left it unknown: call_timeout, call_failed, worker_lost, window_closed, left_open, run_ended."""
    why = models.TextField()
    since = models.DateTimeField(db_default=Now())

    # Its own clock: it reminds and escalates, and never guesses.
    reminded_at = models.DateTimeField(null=True)
    escalated_at = models.DateTimeField(null=True)

    # The tool's probe, where it has one.
    probe_at = models.DateTimeField(null=True)
    """When it is asked next; empty when there is none, or when only people can tell."""
    probe_attempts = models.IntegerField(default=0, db_default=0)
    probe_said = models.TextField(default="", db_default="", blank=True)

    # Who is at it.
    claimed_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    claimed_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    """Who let the system's queue go on although this is open."""

    # How it was settled. Final.
    settled_at = models.DateTimeField(null=True)
    settled_as = models.CharField(max_length=10, default="", db_default="", blank=True)
    settled_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    """A person, or `probe` or `engine`."""
    downstream_id = models.CharField(max_length=255, default="", db_default="", blank=True)
    evidence = models.TextField(default="", db_default="", blank=True)

    class Meta:
        db_table = "runs_doubt"
        constraints = [
            models.UniqueConstraint(fields=["effect"], name="doubt_one_open_per_effect", condition=Q(settled_at=None)),
            models.CheckConstraint(
                condition=Q(settled_at=None, settled_as="", settled_by="")
                | (Q(settled_at__isnull=False, settled_as__in=sorted(SETTLED_AS)) & ~Q(settled_by="")),
                name="doubt_settled_at_iff_settled",
            ),
            models.CheckConstraint(
                condition=Q(claimed_at=None, claimed_by="") | (Q(claimed_at__isnull=False) & ~Q(claimed_by="")),
                name="doubt_claimed_at_iff_claimed",
            ),
        ]
        indexes = [
            # inbox: a tenant's open doubts, oldest first. upkeep.doubts: all that are open.
            models.Index(fields=["tenant", "since", "id"], name="doubt_open", condition=Q(settled_at=None)),
            # Run page, effect page: what was in doubt here.
            models.Index(fields=["run", "id"], name="doubt_of_run"),
            models.Index(fields=["effect", "id"], name="doubt_of_effect"),
        ]


class System(models.Model):
    """A system without deduplication, shared by all tenants. Made by the first call; its row orders who dispatches."""

    name = models.CharField(max_length=100, primary_key=True)
    first_used_at = models.DateTimeField(db_default=Now())
    paused = models.BooleanField(default=False, db_default=False)
    paused_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    paused_reason = models.TextField(default="", db_default="", blank=True)
    paused_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_system"
        constraints = [
            models.CheckConstraint(
                condition=Q(paused=False, paused_by="", paused_at=None)
                | (Q(paused=True, paused_at__isnull=False) & ~Q(paused_by="")),
                name="system_paused_by_somebody",
            ),
        ]
