"""Lines of positions: where a run's checkpoints go on from something else than the one before them, and why."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

LINEAGE_KINDS = ("migrate", "edit", "move", "revert", "branch")
"""What begins a line after a run's first. The checkpoint it begins with has the same word as its kind."""


class Lineage(models.Model):
    """How one line of a run's checkpoints began: from which position, by which functions, by whom. Immutable."""

    pk = models.CompositePrimaryKey("run_id", "number")
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="lineages", db_index=False)
    number = models.SmallIntegerField()
    """As on the checkpoints; the first line of a run, which begins with its start, has no row here."""
    kind = models.CharField(max_length=8)
    from_seq = models.IntegerField()
    """The checkpoint whose facts it begins from."""
    seq = models.IntegerField()
    """The checkpoint it begins with."""
    from_plan = models.ForeignKey(
        "WorkflowPlan", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    plan = models.ForeignKey(
        "WorkflowPlan", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    functions = models.JSONField(default=list)
    """The migrations that made its state: from and to which version, name, hash of their text."""
    moved = models.JSONField(default=dict)
    """What else took another place (waits, effects, decisions), with what it was called: so that it can be put back."""
    reverts = models.SmallIntegerField(null=True)
    """The line that this one takes back."""
    actor = models.CharField(max_length=200)
    reason = models.TextField(default="", blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_lineage"
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=sorted(LINEAGE_KINDS)), name="lineage_kind_known"),
            models.CheckConstraint(condition=Q(number__gte=2, from_seq__lt=models.F("seq")), name="lineage_goes_on"),
            models.CheckConstraint(
                condition=Q(kind="revert", reverts__isnull=False) | (~Q(kind="revert") & Q(reverts=None)),
                name="lineage_reverts_iff_revert",
            ),
            # A line is taken back once.
            models.UniqueConstraint(
                fields=["run", "reverts"], name="lineage_reverted_once", condition=Q(reverts__isnull=False)
            ),
        ]
