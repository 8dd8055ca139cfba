"""Plans that a run made for itself: which of its workflow's steps follow, and in which order."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class MadePlan(models.Model):
    """One version of such a plan, in force from its checkpoint until the next one's. Immutable.

    A line of positions that begins before its checkpoint leaves it behind.
    """

    pk = models.CompositePrimaryKey("run_id", "number")
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="made_plans", db_index=False)
    number = models.SmallIntegerField()
    """Its version: 1 for the first plan of a run."""
    lineage = models.SmallIntegerField()
    seq = models.IntegerField()
    """The checkpoint it was committed with."""
    step_id = models.CharField(max_length=100, blank=True)
    """The step that made it; empty where a migration, a person or a fork brought it along."""
    steps = models.JSONField()
    """Ids of the steps that follow, in order."""
    plan = models.JSONField()
    """Those steps as `WorkflowDefinition.plan` describes them: what its hash is of."""
    plan_hash = models.CharField(max_length=64)
    why = models.TextField(blank=True)
    actor = models.CharField(max_length=200, blank=True)
    """Who brought it along; empty for the run itself."""
    fence = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_made_plan"
        constraints = [
            models.CheckConstraint(condition=Q(number__gte=1, lineage__gte=1, seq__gte=0), name="made_plan_sane"),
            models.CheckConstraint(
                condition=(~Q(step_id="") & Q(actor="")) | (Q(step_id="") & ~Q(actor="")), name="made_plan_by_one"
            ),
            # A checkpoint brings at most one. engine.made_plans: the newest one that is still in force.
            models.UniqueConstraint(fields=["run", "seq"], name="made_plan_once_per_checkpoint"),
        ]

    def __str__(self) -> str:
        return f"plan {self.number} of {self.run_id}"
