"""Runs that a person has to decide about, since today's code cannot safely go on with them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

CLOSED_AS = (
    "migrated", "edited", "moved", "pinned", "rejected", "rechecked", "reverted", "superseded", "resolved", "ended",
)  # fmt: skip
"""What was decided; `superseded` by a later finding, `resolved` by code that fits again, `ended` with the run."""


class Review(models.Model):
    """One finding about one run: what does not fit, since when, and what was decided. One is open for a run at most."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="reviews", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    workflow = models.CharField(max_length=100)
    plan = models.ForeignKey(
        "WorkflowPlan", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    """The plan it was recorded under."""
    target = models.ForeignKey(
        "WorkflowPlan", null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    """The plan of the code that would go on with it; none where no code is known."""
    code = models.CharField(max_length=20)
    """Class of the finding, as in `checkpoints.compatibility`."""
    fingerprint = models.CharField(max_length=32)
    """The same for every run with the same incompatibility: what the review desk groups by."""
    reason = models.TextField()
    differences = models.JSONField(default=list)
    seq = models.IntegerField()
    """The checkpoint it is about."""
    found_at = models.DateTimeField(db_default=Now())

    claimed_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    claimed_at = models.DateTimeField(null=True)

    # Two pairs of eyes: whoever asked for a second reviewer cannot be the one who decides.
    second_asked_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    second_asked_at = models.DateTimeField(null=True)
    second_why = models.TextField(default="", db_default="", blank=True)

    # What was decided. Final.
    closed_at = models.DateTimeField(null=True)
    closed_as = models.CharField(max_length=10, default="", db_default="", blank=True)
    closed_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    closed_why = models.TextField(default="", db_default="", blank=True)
    superseded_by = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)

    class Meta:
        db_table = "runs_review"
        constraints = [
            models.UniqueConstraint(fields=["run"], name="review_open_once", condition=Q(closed_at=None)),
            models.CheckConstraint(
                condition=Q(closed_at=None, closed_as="", closed_by="")
                | (Q(closed_at__isnull=False, closed_as__in=sorted(CLOSED_AS)) & ~Q(closed_by="")),
                name="review_closed_as_known",
            ),
            models.CheckConstraint(
                condition=Q(superseded_by=None) | Q(closed_as="superseded"), name="review_superseded_by_iff_so"
            ),
        ]
        indexes = [
            # inbox: open ones of a tenant, oldest first.
            models.Index(fields=["tenant", "found_at", "id"], name="review_open_oldest", condition=Q(closed_at=None)),
            # review desk: groups of one incompatibility, and the runs of a group.
            models.Index(fields=["tenant", "fingerprint", "id"], name="review_open_group", condition=Q(closed_at=None)),
            # The check when a row goes that another one names.
            models.Index(fields=["superseded_by"], name="review_superseding", condition=Q(superseded_by__isnull=False)),
            # run page: what was decided about this one.
            models.Index(fields=["run", "id"], name="review_of_run"),
        ]
