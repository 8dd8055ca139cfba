"""What a run may spend and has spent: one row for each unit, and what is reserved of it just now."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

UNITS = ("tokens", "money", "calls", "steps", "compute_seconds")
BUDGET_POLICIES = ("exhaust", "fail", "cancel", "extend", "ask")


class RunBudget(models.Model):
    """The limit of one unit for one run and everything below it, and what was spent of it."""

    run = models.ForeignKey("Run", on_delete=models.CASCADE, related_name="budgets", db_index=False)
    unit = models.CharField(max_length=15)
    currency = models.CharField(max_length=3, default="", blank=True)
    granted = models.DecimalField(max_digits=20, decimal_places=6)
    """What the definition gave it: an extension gives as much again."""
    most = models.DecimalField(max_digits=20, decimal_places=6)
    """The limit as it is now."""
    spent = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    """May be more than the limit: what was done has cost what it cost."""
    policy = models.CharField(max_length=7, default="exhaust")

    class Meta:
        db_table = "runs_budget"
        constraints = [
            models.UniqueConstraint(fields=["run", "unit"], name="budget_unit_unique"),
            models.CheckConstraint(condition=Q(unit__in=sorted(UNITS)), name="budget_unit_known"),
            models.CheckConstraint(condition=Q(policy__in=sorted(BUDGET_POLICIES)), name="budget_policy_known"),
            models.CheckConstraint(
                condition=Q(granted__gte=0, most__gte=F("granted"), spent__gte=0), name="budget_amounts_sane"
            ),
            models.CheckConstraint(
                condition=(Q(unit="money") & ~Q(currency="")) | (~Q(unit="money") & Q(currency="")),
                name="budget_currency_iff_money",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.unit} of run {self.run_id}"


class Reservation(models.Model):
    """What a run is about to spend. It counts against the budget until it is settled by what it cost.

    One whose holder lost its run is booked as it stands: nobody knows what became of it.
    """

    budget = models.ForeignKey(
        RunBudget, on_delete=models.CASCADE, related_name="reservations", db_index=False, db_constraint=False
    )
    run = models.ForeignKey("Run", on_delete=models.CASCADE, related_name="+", db_index=False)
    """Who spends: the run itself or one below it."""
    fence = models.BigIntegerField()
    token = models.UUIDField()
    """The same for all units and runs of one reservation."""
    amount = models.DecimalField(max_digits=20, decimal_places=6)
    opened_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_reservation"
        constraints = [
            models.UniqueConstraint(fields=["budget", "token"], name="reservation_once_per_budget"),
            models.CheckConstraint(condition=Q(amount__gte=0), name="reservation_amount_sane"),
        ]
        indexes = [
            # engine.budgets: what is settled together.
            models.Index(fields=["token"], name="reservation_token"),
            # retention and deletes of runs.
            models.Index(fields=["run"], name="reservation_of_run"),
        ]
