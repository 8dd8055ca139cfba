"""What held queued runs back: stretches of time, one row each."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

GATES = (
    "quota.tenant",
    "quota.resource",
    "switch.all",
    "switch.tenant",
    "switch.workflow",
    "workers.none",
    "workers.version",
)


class Gate(models.Model):
    """A gate that was closed for a stretch while due runs stood before it, as upkeep saw it each second."""

    gate = models.CharField(max_length=20)
    subject = models.CharField(max_length=250)
    """Whom it concerns: `all`, `tenant:ID`, `resource:NAME`, `workflow:TENANT:NAME` (no tenant: all), `plan:ID`."""
    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    """Who may see it; None is everybody."""
    since = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    """When it was last seen closed; one that was seen a moment ago still is."""
    held = models.IntegerField()
    """How many runs stood before it then, counted up to a cap."""

    class Meta:
        db_table = "runs_gate"
        constraints = [
            models.CheckConstraint(condition=Q(gate__in=sorted(GATES)), name="gate_known"),
            models.CheckConstraint(condition=Q(seen_at__gte=F("since"), held__gte=1), name="gate_stretch_sane"),
        ]
        indexes = [
            # engine.claim: what held a run back that waited.
            models.Index(fields=["subject", "seen_at"], name="gate_of_subject"),
            # The Overview, and upkeep.gates, which removes old ones.
            models.Index(fields=["seen_at"], name="gate_seen"),
        ]

    def __str__(self) -> str:
        return f"{self.gate} for {self.subject}"
