"""Undoing effects: what is owed for which effect, how it is to be undone, how far that is, and who ordered it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

MOVES: dict[str, frozenset[str]] = {
    # What was ordered begins as proposed (a second person has to agree) or approved; what nobody ordered stays owed.
    "owed": frozenset({"proposed", "approved", "done", "waived"}),
    "proposed": frozenset({"approved", "running", "done", "owed", "waived"}),
    "approved": frozenset({"running", "proposed", "done", "owed", "waived"}),
    "running": frozenset({"done", "failed", "proposed", "owed", "waived"}),
    "failed": frozenset({"approved", "proposed", "done", "owed", "waived"}),
    "done": frozenset(),
    "waived": frozenset(),
}
"""The legal moves of a compensation. Back to `owed` leads whatever its linked run left when it ended."""
COMPENSATION_STATES = tuple(MOVES)
COMPENSATION_FINAL = ("done", "waived")
BEGUN = ("proposed", "approved", "running", "failed", "done")
"""States in which undoing has begun: its run is not reopened any more."""
HOW = ("tool", "person")
CHOICES = ("compensate", "later")


class CompensationOrder(models.Model):
    """What somebody decided about all that a run had done. Applied once the run, and all below it, has ended."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="compensation_orders", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    choice = models.CharField(max_length=10)
    """`compensate` now, or `later`: it is listed as owed."""
    actor = models.CharField(max_length=200)
    reason = models.TextField(default="", blank=True)
    at = models.DateTimeField(db_default=Now())
    applied_at = models.DateTimeField(null=True)
    linked_run = models.ForeignKey("Run", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    """The run that works through it, newest effect first."""

    class Meta:
        db_table = "runs_compensation_order"
        constraints = [
            models.CheckConstraint(condition=Q(choice__in=sorted(CHOICES)), name="compensation_order_choice_known"),
            models.CheckConstraint(
                condition=Q(linked_run=None) | (Q(choice="compensate") & Q(applied_at__isnull=False)),
                name="compensation_order_run_iff_applied",
            ),
            models.UniqueConstraint(
                fields=["run"], name="compensation_order_one_at_a_time", condition=Q(applied_at=None)
            ),
        ]
        indexes = [
            # Run page, engine.compensation: what was ordered for a run.
            models.Index(fields=["run", "id"], name="compensation_order_of_run"),
            # runs_retention_verdicts, and the check when a run's row goes: did it undo something?
            models.Index(
                fields=["linked_run"], name="compensation_order_linked", condition=Q(linked_run__isnull=False)
            ),
            # upkeep.compensation: the few whose run has not ended when they were given.
            models.Index(fields=["id"], name="compensation_order_open", condition=Q(applied_at=None)),
        ]


class Compensation(models.Model):
    """One effect that is to be undone. It outlives its run; at most one for each effect."""

    effect = models.OneToOneField("IdempotencyRecord", on_delete=models.PROTECT, related_name="compensation")
    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="compensations", db_index=False)
    """The run that did the effect."""
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.CharField(max_length=8, default="owed")
    state_since = models.DateTimeField(db_default=Now())
    how = models.CharField(max_length=6)
    """By a `tool`, or by a `person` who follows the instructions."""
    tool = models.CharField(max_length=100, default="", blank=True)
    instructions = models.TextField(default="", blank=True)
    four_eyes = models.BooleanField(default=False)
    """Whether a second person has to agree."""
    because = models.TextField(default="", blank=True)
    """Why it is owed."""
    owed_at = models.DateTimeField(db_default=Now())
    order = models.ForeignKey(CompensationOrder, null=True, on_delete=models.PROTECT, related_name="items")
    linked_run = models.ForeignKey("Run", null=True, on_delete=models.PROTECT, related_name="undoes", db_index=False)
    """The run that undoes it; none while nobody works on it."""
    undo_effect = models.ForeignKey(
        "IdempotencyRecord", null=True, on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    """The call that undid it."""
    spent_slots = models.SmallIntegerField(default=0)
    """How many calls ended without undoing it (refused, given up): the next try is a call of its own."""
    error = models.TextField(default="", blank=True)
    """Why it failed, as long as it has."""
    proposed_by = models.CharField(max_length=200, default="", blank=True)
    approved_by = models.CharField(max_length=200, default="", blank=True)
    claimed_by = models.CharField(max_length=200, default="", blank=True)
    claimed_at = models.DateTimeField(null=True)
    settled_by = models.CharField(max_length=200, default="", blank=True)
    settled_at = models.DateTimeField(null=True)
    evidence = models.TextField(default="", blank=True)
    """What a person says that proves it: a receipt's number, a link."""
    downstream_id = models.CharField(max_length=255, default="", blank=True)
    reason = models.TextField(default="", blank=True)
    """Why it was waived, or done by hand."""

    class Meta:
        db_table = "runs_compensation"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=sorted(COMPENSATION_STATES)), name="compensation_state_known"),
            models.CheckConstraint(
                condition=Q(how="tool") & ~Q(tool="") | Q(how="person") & ~Q(instructions=""),
                name="compensation_says_how",
            ),
            models.CheckConstraint(
                condition=(Q(state__in=COMPENSATION_FINAL, settled_at__isnull=False) & ~Q(settled_by=""))
                | (~Q(state__in=COMPENSATION_FINAL) & Q(settled_at=None, settled_by="")),
                name="compensation_settled_iff_final",
            ),
            models.CheckConstraint(
                condition=~Q(state="done") | Q(undo_effect__isnull=False) | ~Q(evidence=""),
                name="compensation_done_is_proved",
            ),
            models.CheckConstraint(condition=~Q(state="waived") | ~Q(reason=""), name="compensation_waived_says_why"),
            models.CheckConstraint(
                condition=Q(four_eyes=False) | Q(approved_by="") | ~Q(approved_by=F("proposed_by")),
                name="compensation_four_eyes_are_two_people",
            ),
            models.CheckConstraint(
                condition=(~Q(state="running") | Q(linked_run__isnull=False)) & (~Q(state="owed") | Q(linked_run=None)),
                name="compensation_running_has_its_run",
            ),
        ]
        indexes = [
            # Run page; guard: has undoing begun?
            models.Index(fields=["run", "id"], name="compensation_of_run"),
            # Inbox, overview: what is not settled, oldest first.
            models.Index(
                fields=["tenant", "owed_at", "id"],
                name="compensation_open",
                condition=~Q(state__in=COMPENSATION_FINAL),
            ),
            # The linked run: its next one, newest effect first.
            models.Index(
                F("linked_run"), F("effect").desc(), name="compensation_to_undo",
                condition=Q(linked_run__isnull=False),
            ),
        ]  # fmt: skip

    @property
    def is_final(self) -> bool:
        return self.state in COMPENSATION_FINAL
