"""What runs and tenants may spend and have spent: a row for each unit, and what is reserved of it just now."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

UNITS = ("tokens", "money", "calls", "steps", "compute_seconds")
PERIODS = ("day", "month")
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


class TenantSpending(models.Model):
    """One unit of one tenant in one day or month. The limit is the tenant's quota; this is what became of it.

    Workers take blocks of it, and runs spend from the block of their worker, so that this row is locked once for each
    block and not for each call.
    """

    tenant = models.ForeignKey("Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    period = models.CharField(max_length=5)
    unit = models.CharField(max_length=15)
    currency = models.CharField(max_length=3, default="", blank=True)
    starts_at = models.DateTimeField()
    """Midnight in the tenant's time zone, or the end of the period before where that zone was changed."""
    ends_at = models.DateTimeField()
    most = models.DecimalField(max_digits=20, decimal_places=6)
    """What spent and blocks may come to. A limit that is lowered below that is reached as blocks return."""
    more = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    """What was added to the limit for this period alone."""
    is_extended = models.BooleanField(default=False, db_default=False)
    """Whether the policy "extend" has given as much again."""
    spent = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    """By workers whose blocks have returned; the blocks themselves know the rest."""
    blocked = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    """The sum of its blocks; kept by a trigger."""
    over = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)
    """What was done and cost more than was left: it is told, and nothing more is let out until it is covered."""

    class Meta:
        db_table = "runs_tenant_spending"
        constraints = [
            # Also how engine.blocks finds the present period.
            models.UniqueConstraint(fields=["tenant", "period", "unit", "starts_at"], name="spending_period_unique"),
            models.CheckConstraint(condition=Q(period__in=sorted(PERIODS)), name="spending_period_known"),
            models.CheckConstraint(condition=Q(unit__in=sorted(UNITS)), name="spending_unit_known"),
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="spending_period_forward"),
            models.CheckConstraint(condition=Q(most__gte=F("spent") + F("blocked")), name="spending_within_limit"),
            models.CheckConstraint(
                condition=Q(more__gte=0, spent__gte=0, blocked__gte=0, over__gte=0), name="spending_amounts_sane"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.unit} of tenant {self.tenant_id} for the {self.period} from {self.starts_at}"


class BudgetBlock(models.Model):
    """What one worker has of a tenant's budget: its runs reserve and spend here. It returns with the worker's lease."""

    spending = models.ForeignKey(TenantSpending, on_delete=models.CASCADE, related_name="blocks", db_index=False)
    worker = models.ForeignKey("Worker", on_delete=models.CASCADE, related_name="+", db_index=False)
    amount = models.DecimalField(max_digits=20, decimal_places=6)
    spent = models.DecimalField(max_digits=20, decimal_places=6, default=0, db_default=0)

    class Meta:
        db_table = "runs_budget_block"
        constraints = [
            models.UniqueConstraint(fields=["spending", "worker"], name="block_once_per_worker"),
            models.CheckConstraint(condition=Q(spent__gte=0, amount__gte=F("spent")), name="block_within_amount"),
        ]
        indexes = [
            # engine.blocks: what a worker has, and what it gives back.
            models.Index(fields=["worker"], name="block_of_worker"),
        ]

    def __str__(self) -> str:
        return f"{self.amount} for worker {self.worker_id}"


class Reservation(models.Model):
    """What a run is about to spend: of a run's budget, or of its worker's block of the tenant's.

    It counts against that until it is settled by what it cost. One whose holder lost its run is booked as it stands:
    nobody knows what became of it.
    """

    budget = models.ForeignKey(
        RunBudget, null=True, on_delete=models.CASCADE, related_name="reservations", db_index=False, db_constraint=False
    )
    block = models.ForeignKey(
        BudgetBlock, null=True, on_delete=models.CASCADE, related_name="reservations", db_index=False
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
            models.UniqueConstraint(fields=["block", "token"], name="reservation_once_per_block"),
            models.CheckConstraint(condition=Q(amount__gte=0), name="reservation_amount_sane"),
            models.CheckConstraint(
                condition=Q(budget=None, block__isnull=False) | Q(budget__isnull=False, block=None),
                name="reservation_of_budget_or_block",
            ),
        ]
        indexes = [
            # engine.budgets: what is settled together.
            models.Index(fields=["token"], name="reservation_token"),
            # retention and deletes of runs.
            models.Index(fields=["run"], name="reservation_of_run"),
        ]
