"""Bulk actions: one verb for many runs, captured by id when it was previewed, with what came of each."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

BULK_STATES = ("preview", "running", "paused", "aborted", "done")
BULK_FINAL = ("aborted", "done")
ITEM_STATES = ("pending", "done", "refused", "failed")


class Bulk(models.Model):
    """One verb for many runs of one tenant. Its runs were captured once: no later page or filter can widen it."""

    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    verb = models.CharField(max_length=40)
    arguments = models.JSONField(default=dict)
    """What the verb is given besides run, actor and reason."""
    selection = models.JSONField(default=dict)
    """How its runs were chosen, in words and as the query string of the list, for people."""
    runs = models.IntegerField()
    """How many were captured."""
    state = models.CharField(max_length=8, default="preview")
    actor = models.CharField(max_length=200)
    """Who previewed it; from the start on, who started it."""
    reason = models.TextField(default="", blank=True)
    plan = models.JSONField(default=dict)
    """What a guarded verb would send again, as it was shown."""
    plan_hash = models.CharField(max_length=64, default="", blank=True)
    held_by = models.CharField(max_length=200, default="", blank=True)
    """Who paused or aborted it."""
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_bulk"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=sorted(BULK_STATES)), name="bulk_state_known"),
            models.CheckConstraint(condition=Q(runs__gte=1), name="bulk_has_runs"),
            models.CheckConstraint(
                condition=Q(state="preview", started_at=None, reason="")
                | (~Q(state="preview") & Q(started_at__isnull=False) & ~Q(reason="")),
                name="bulk_started_with_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(state__in=BULK_FINAL, finished_at__isnull=False)
                | (~Q(state__in=BULK_FINAL) & Q(finished_at=None)),
                name="bulk_finished_at_iff_final",
            ),
        ]
        indexes = [
            # upkeep.bulk: the few that are to be executed, among all that ever were.
            models.Index(fields=["id"], name="bulk_running", condition=Q(state="running")),
            # upkeep.bulk: previews nobody started.
            models.Index(fields=["created_at"], name="bulk_previewed", condition=Q(state="preview")),
            # console: newest first within a tenant.
            models.Index(F("tenant"), F("id").desc(), name="bulk_tenant_newest"),
        ]

    @property
    def is_final(self) -> bool:
        return self.state in BULK_FINAL


class BulkItem(models.Model):
    """One run of a bulk action. Its outcome is written by the transaction that did it, once."""

    pk = models.CompositePrimaryKey("bulk_id", "seq")
    bulk = models.ForeignKey(Bulk, on_delete=models.CASCADE, related_name="items", db_index=False)
    seq = models.IntegerField()
    # No constraint: what retention removes of a run leaves the line about it standing.
    run = models.ForeignKey("Run", on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    facts = models.CharField(max_length=64, default="", db_default="", blank=True)
    """Hash of what the preview told about this run; a guarded verb is refused once it is another."""
    state = models.CharField(max_length=7, default="pending", db_default="pending")
    message = models.TextField(default="", db_default="", blank=True)
    """What came of it, or why it was refused."""
    tries = models.SmallIntegerField(default=0, db_default=0)
    """How often it was put off because somebody else held the run's row."""
    due_at = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_bulk_item"
        constraints = [
            models.UniqueConstraint(fields=["bulk", "run"], name="bulk_item_run_once"),
            models.CheckConstraint(condition=Q(state__in=sorted(ITEM_STATES)), name="bulk_item_state_known"),
            models.CheckConstraint(
                condition=Q(state="pending", at=None) | (~Q(state="pending") & Q(at__isnull=False)),
                name="bulk_item_at_iff_settled",
            ),
        ]
        indexes = [
            # upkeep.bulk: the next one to do.
            models.Index(fields=["bulk", "due_at", "seq"], name="bulk_item_pending", condition=Q(state="pending")),
            # console and API: results by outcome, in order; their counts.
            models.Index(fields=["bulk", "state", "seq"], name="bulk_item_by_state"),
        ]
