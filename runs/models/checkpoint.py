"""Checkpoints: the minimal facts from which a run goes on. Immutable once written; each is also its step's event."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.lineage import LINEAGE_KINDS

KINDS = ("start", "step", "page", "finish", *LINEAGE_KINDS)


class Checkpoint(models.Model):
    """One committed position. `state` is the exact text that was committed; the next step decodes it from here."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="checkpoints", db_index=False)
    seq = models.IntegerField()
    lineage = models.SmallIntegerField()
    kind = models.CharField(max_length=8, choices=[(k, k) for k in KINDS])
    step_id = models.CharField(max_length=100)
    """The step that was committed; empty for the start, and for the branch with which a later lineage begins."""
    next_step = models.CharField(max_length=100, default="")
    """The step a resume enters; empty when the run has finished."""
    plan = models.ForeignKey(
        "WorkflowPlan", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    cursor = models.JSONField(null=True)
    state = models.TextField(null=True)
    """JSON text; NULL when it equals that of `state_seq`."""
    state_seq = models.IntegerField()
    output = models.TextField(null=True)
    """JSON text of what the step returned."""
    output_hash = models.CharField(max_length=64, default="")
    effects_through = models.BigIntegerField(default=0)
    """The newest effect record this position relies on; the completed keys are those up to it."""
    fence = models.BigIntegerField()
    worker = models.ForeignKey(
        "Worker", null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    entry = models.IntegerField(default=0)
    attempt = models.SmallIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    """When the step (or page) was entered, on the database's clock."""
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_checkpoint"
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=sorted(KINDS)), name="checkpoint_kind_known"),
            models.CheckConstraint(condition=Q(seq__gte=0, state_seq__lte=models.F("seq")), name="checkpoint_seq_sane"),
            # A position either holds the state or names an earlier one that does.
            models.CheckConstraint(
                condition=Q(state__isnull=False, state_seq=models.F("seq"))
                | Q(state=None, state_seq__lt=models.F("seq")),
                name="checkpoint_state_is_somewhere",
            ),
        ]
