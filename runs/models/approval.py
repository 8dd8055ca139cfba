"""What a person is asked, in detail: the choices, who may decide, its clocks, and the decision. One for each wait."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Least


class Approval(models.Model):
    """The terms of a wait for a person, and what was decided. The question, the facts and the state are the wait's."""

    wait = models.OneToOneField("Wait", on_delete=models.PROTECT, primary_key=True, related_name="approval")
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="approvals", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    round = models.SmallIntegerField(default=1)
    """The how manieth time this run asks under this name; each round has a key of its own."""
    choices = models.JSONField(default=list)
    """name, label, approves of each; empty for a plain yes or no."""
    fields = models.JSONField(default=list)
    """What is to be filled in with a yes, as `authoring.forms` describes it."""
    roles = models.JSONField(default=list)
    """Who may decide: operator, reviewer, admin."""
    four_eyes = models.BooleanField(default=False)
    """Whether whoever started the run may not decide."""

    # Its clocks remind and escalate; the expiry is the wait's.
    remind_seconds = models.FloatField(null=True)
    remind_at = models.DateTimeField(null=True)
    reminders = models.SmallIntegerField(default=0, db_default=0)
    escalate_seconds = models.FloatField(null=True)
    escalate_at = models.DateTimeField(null=True)
    escalate_to = models.CharField(max_length=20, default="admin", db_default="admin")
    escalated_at = models.DateTimeField(null=True)
    escalated_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    """A person, or `upkeep` for its clock."""

    # Who is at it.
    claimed_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    claimed_at = models.DateTimeField(null=True)
    delegated_to = models.CharField(max_length=200, default="", db_default="", blank=True)
    """Who was asked by name; then only they and admins decide."""
    delegated_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    delegated_at = models.DateTimeField(null=True)

    # The decision. Final.
    choice = models.CharField(max_length=50, default="", db_default="", blank=True)
    decided_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    decided_at = models.DateTimeField(null=True)
    seen_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    """Hash of what was shown to whoever decided."""

    class Meta:
        db_table = "runs_approval"
        constraints = [
            models.CheckConstraint(
                condition=Q(decided_at=None, choice="", decided_by="")
                | (Q(decided_at__isnull=False) & ~Q(choice="") & ~Q(decided_by="")),
                name="approval_decided_by_somebody",
            ),
            models.CheckConstraint(
                condition=Q(claimed_at=None, claimed_by="") | (Q(claimed_at__isnull=False) & ~Q(claimed_by="")),
                name="approval_claimed_at_iff_claimed",
            ),
            models.CheckConstraint(
                condition=Q(delegated_at=None, delegated_to="", delegated_by="")
                | (Q(delegated_at__isnull=False) & ~Q(delegated_to="") & ~Q(delegated_by="")),
                name="approval_delegated_by_somebody",
            ),
        ]
        indexes = [
            # Run page: what was asked here. The round of a new one.
            models.Index(fields=["run", "wait"], name="approval_of_run"),
            # upkeep.approvals: whose reminder or escalation is due.
            models.Index(
                Least(F("remind_at"), F("escalate_at")),
                name="approval_clock",
                condition=Q(decided_at=None) & (Q(remind_at__isnull=False) | Q(escalate_at__isnull=False)),
            ),
        ]
