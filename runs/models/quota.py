"""What a tenant, or a resource that all tenants share, may use: the policy, and the numbered slots of its cap."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.models.budget import BUDGET_POLICIES

MOST_SLOTS = 10_000
"""A claim looks at each slot of a cap that is nearly full; more would be felt."""
HIGHEST_PRIORITY = 100
HEAVIEST = 100


class QuotaPolicy(models.Model):
    """The limits of one tenant, or of one resource. Without a row there are none, and nothing is counted."""

    tenant = models.OneToOneField("Tenant", null=True, on_delete=models.CASCADE, related_name="quota")
    resource = models.CharField(max_length=100, default="", blank=True)
    """What steps name with `uses`; empty for the policy of a tenant."""
    running_cap = models.SmallIntegerField(null=True)
    """How many runs may be running at once; None is no cap, 0 lets none start."""
    weight = models.SmallIntegerField(default=1, db_default=1)
    """How many turns a tenant has where another has one."""
    priority_min = models.SmallIntegerField(default=-HIGHEST_PRIORITY, db_default=-HIGHEST_PRIORITY)
    priority_max = models.SmallIntegerField(default=HIGHEST_PRIORITY, db_default=HIGHEST_PRIORITY)
    """What its runs ask for is brought into this range when they start."""
    starts_per_minute = models.IntegerField(null=True)
    """Of a tenant: runs that may be started in a minute. Of a resource: entries of steps that use it."""
    call_rates = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """Calls a minute of a tenant's runs, by `tool:NAME` and `system:NAME`."""
    budgets = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """What all of a tenant's runs may spend in a `day` and in a `month`: amounts as texts, by period and unit."""
    budget_policy = models.CharField(max_length=7, default="exhaust", db_default="exhaust")
    """What becomes of a run that finds one of them spent."""
    time_zone = models.CharField(max_length=64, default="UTC", db_default="UTC")
    """Where its days and months begin; a change holds from the next one on."""
    version = models.IntegerField(default=1)
    """Grows by one with each change: an edit names the one it was made from."""
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.CharField(max_length=200)

    class Meta:
        db_table = "runs_quota_policy"
        constraints = [
            models.CheckConstraint(
                condition=Q(tenant__isnull=False, resource="") | (Q(tenant=None) & ~Q(resource="")),
                name="quota_policy_has_one_owner",
            ),
            # quotas.set_policy: one policy for one resource; that of a tenant is unique by its column.
            models.UniqueConstraint(fields=["resource"], name="quota_policy_resource_unique", condition=Q(tenant=None)),
            models.CheckConstraint(
                condition=Q(running_cap=None) | Q(running_cap__gte=0, running_cap__lte=MOST_SLOTS),
                name="quota_policy_cap_sane",
            ),
            models.CheckConstraint(condition=Q(weight__gte=1, weight__lte=HEAVIEST), name="quota_policy_weight_sane"),
            models.CheckConstraint(
                condition=Q(starts_per_minute=None) | Q(starts_per_minute__gte=0), name="quota_policy_starts_sane"
            ),
            models.CheckConstraint(
                condition=Q(
                    priority_min__gte=-HIGHEST_PRIORITY,
                    priority_max__lte=HIGHEST_PRIORITY,
                    priority_min__lte=F("priority_max"),
                ),
                name="quota_policy_priorities_sane",
            ),
            models.CheckConstraint(
                condition=Q(budget_policy__in=sorted(BUDGET_POLICIES)) & ~Q(time_zone=""),
                name="quota_policy_budgets_sane",
            ),
        ]

    def __str__(self) -> str:
        return self.resource or f"tenant {self.tenant_id}"


class Slot(models.Model):
    """One place of a cap. Its rows are the cap: a claim takes a run only together with one that nobody has.

    Who has it, the run says (`Run.slot`, `Run.resource_slot`), so that whatever ends a run's hold frees it. The row is
    what two claims that want the same number meet at.
    """

    policy = models.ForeignKey(QuotaPolicy, on_delete=models.CASCADE, related_name="slots", db_index=False)
    number = models.SmallIntegerField()
    taken = models.BigIntegerField(default=0)
    """Grows each time it is taken and with each change of the cap: what a claim saw before that is out of date."""

    class Meta:
        db_table = "runs_slot"
        constraints = [
            models.UniqueConstraint(fields=["policy", "number"], name="slot_number_unique"),
            models.CheckConstraint(condition=Q(number__gte=1, number__lte=MOST_SLOTS), name="slot_number_sane"),
        ]
