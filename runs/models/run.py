"""The run: one execution of a workflow for one tenant, as a row of facts."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.ids import uuid7
from runs.models.access import Tenant
from runs.models.plan import WorkflowPlan
from runs.models.worker import Worker
from runs.querysets import RunQuerySet
from runs.states import OPEN, TERMINAL, State

_TERMINAL = sorted(s.value for s in TERMINAL)
_OPEN = sorted(s.value for s in OPEN)
DEADLINE_POLICIES = ("fail", "cancel", "extend", "ask", "asked")
QUEUE_POLICIES = ("fail", "cancel", "continue", "extend", "ask")


class Run(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="runs", db_index=False)
    workflow = models.CharField(max_length=100)
    plan = models.ForeignKey(WorkflowPlan, on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.CharField(max_length=12, choices=[(s.value, s.value) for s in State])
    state_since = models.DateTimeField(db_default=Now())
    priority = models.SmallIntegerField(default=0)
    due_at = models.DateTimeField(null=True)
    """When a queued run may be claimed; empty in every other state."""
    deferred = models.BooleanField(default=False, db_default=False)
    """Queued for a later time, which upkeep waits for: however many there are, claims do not walk past them."""

    # How it began, and what makes the beginning happen once.
    start_key = models.CharField(max_length=255, null=True)
    input_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200)
    labels = models.JSONField(default=dict)
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    parent_wait = models.ForeignKey(
        "Wait", null=True, on_delete=models.PROTECT, related_name="child_runs", db_index=False
    )
    child_index = models.IntegerField(null=True)

    # Who holds it. The fence grows by one with each claim and every write of the holder carries it.
    fence = models.BigIntegerField(default=0)
    worker = models.ForeignKey(
        Worker, null=True, on_delete=models.PROTECT, related_name="runs", db_constraint=False, db_index=False
    )
    isolated = models.BooleanField(default=False, db_default=False)
    """Whether its present step asked for a process of its own: other workers leave it alone."""
    resource = models.CharField(max_length=100, default="", db_default="", blank=True)
    """What its present step uses that all tenants share."""
    slot = models.SmallIntegerField(null=True)
    """Its place under its tenant's cap, while it runs; None for a tenant without one."""
    resource_slot = models.SmallIntegerField(null=True)
    """Its place under the cap of its resource."""
    pinned = models.BooleanField(default=False, db_default=False)
    """Whether a person decided that it stays on its plan: only workers that have this very plan move it."""
    paused = models.BooleanField(default=False)
    paused_by = models.CharField(max_length=200, default="", blank=True)
    cancel_requested = models.BooleanField(default=False)
    cancel_requested_by = models.CharField(max_length=200, default="", blank=True)
    cancel_reason = models.TextField(default="", blank=True)
    deadline_at = models.DateTimeField(null=True)
    deadline_policy = models.CharField(max_length=6, default="fail", db_default="fail")
    """What happens when it comes; `asked` while a person is asked that, and nothing else does."""
    queue_seconds = models.FloatField(null=True)
    """How long it may stand in the queue each time it comes there; None is no limit."""
    queue_policy = models.CharField(max_length=8, default="fail", db_default="fail")
    queue_expires_at = models.DateTimeField(null=True)
    """When it will have stood there as long; empty outside the queue, and once it was said."""

    # Where it is.
    lineage = models.SmallIntegerField(default=1)
    head_seq = models.IntegerField(default=0)
    state_seq = models.IntegerField(default=0)
    """The checkpoint that holds the present state: a step that changes nothing does not copy it."""
    state_bytes = models.BigIntegerField(default=0, db_default=0)
    """What the states that its steps and pages stored take together, as text: what a growing state costs."""
    step_id = models.CharField(max_length=100)
    own_plan = models.BooleanField(default=False, db_default=False)
    """Whether it ever had a plan of its own (`MadePlan`): only then is one looked for."""
    cursor = models.JSONField(null=True)
    step_entries = models.IntegerField(default=0)
    step_attempts = models.SmallIntegerField(default=0)
    recoveries = models.SmallIntegerField(default=0)
    """Workers lost in a row since the last checkpoint."""
    max_recoveries = models.SmallIntegerField(default=5)
    wake_cause = models.CharField(max_length=40, default="", blank=True)
    wake_detail = models.TextField(default="", blank=True)
    lost_at = models.DateTimeField(null=True)
    """Last sign of life before the interruption that the next claim will repair."""
    woken_at = models.DateTimeField(null=True)
    """When that interruption, or the awaited thing, was noticed."""

    # What came of it.
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    retain_at = models.DateTimeField(null=True)
    """When retention looks at it next; empty while it is open, and until it was looked at once."""
    resumes = models.IntegerField(default=0)
    effects_avoided = models.IntegerField(default=0)
    progress_done = models.BigIntegerField(null=True)
    progress_total = models.BigIntegerField(null=True)
    progress_note = models.CharField(max_length=200, default="", blank=True)
    error_class = models.CharField(max_length=200, default="", blank=True)
    error_message = models.TextField(default="", blank=True)
    error_fingerprint = models.CharField(max_length=64, default="", blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        db_table = "runs_run"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=sorted(s.value for s in State)), name="run_state_known"),
            models.CheckConstraint(
                condition=Q(state="queued", due_at__isnull=False) | (~Q(state="queued") & Q(due_at=None)),
                name="run_due_at_iff_queued",
            ),
            models.CheckConstraint(
                condition=Q(state="running", worker__isnull=False) | (~Q(state="running") & Q(worker=None)),
                name="run_worker_iff_running",
            ),
            models.CheckConstraint(
                condition=Q(state__in=_TERMINAL, finished_at__isnull=False) | Q(state__in=_OPEN, finished_at=None),
                name="run_finished_at_iff_terminal",
            ),
            # Nothing of an open run is ever due.
            models.CheckConstraint(
                condition=Q(retain_at=None) | Q(finished_at__isnull=False), name="run_retain_at_only_when_finished"
            ),
            models.CheckConstraint(
                condition=Q(parent=None, parent_wait=None, child_index=None)
                | Q(parent__isnull=False, parent_wait__isnull=False, child_index__isnull=False),
                name="run_child_names_its_wait",
            ),
            models.CheckConstraint(
                condition=Q(fence__gte=0, head_seq__gte=0, state_seq__gte=0, state_seq__lte=F("head_seq")),
                name="run_positions_sane",
            ),
            models.CheckConstraint(
                condition=Q(state="queued") | Q(deferred=False), name="run_deferred_only_while_queued"
            ),
            models.CheckConstraint(
                condition=Q(state="queued") | Q(queue_expires_at=None), name="run_queue_clock_only_while_queued"
            ),
            models.CheckConstraint(
                condition=Q(deadline_policy__in=sorted(DEADLINE_POLICIES), queue_policy__in=sorted(QUEUE_POLICIES)),
                name="run_clock_policies_known",
            ),
            # engine.claim: what makes a cap hold. Nothing that does not run has a place, and no two runs have the same.
            models.CheckConstraint(
                condition=Q(state="running") | Q(slot=None, resource_slot=None), name="run_slots_only_while_running"
            ),
            models.UniqueConstraint(
                fields=["tenant", "slot"], name="run_slot_unique", condition=Q(slot__isnull=False), include=["id"]
            ),
            models.UniqueConstraint(
                fields=["resource", "resource_slot"],
                name="run_resource_slot_unique",
                condition=Q(resource_slot__isnull=False),
                include=["id"],
            ),
            # engine.start: one run for one start key of a tenant, however often it is asked for.
            models.UniqueConstraint(
                fields=["tenant", "start_key"], name="run_start_key_unique", condition=Q(start_key__isnull=False)
            ),
            # engine.children: a fan-out that is repeated creates no second child.
            models.UniqueConstraint(
                fields=["parent_wait", "child_index"], name="run_child_unique", condition=Q(parent_wait__isnull=False)
            ),
        ]
        indexes = [
            # engine.claim: tenants in turn, of each the most urgent, then oldest due; what cannot be claimed stays out.
            # Runs that use one resource stand together, so that a full one is left out as a whole.
            models.Index(
                F("isolated"),
                F("resource"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable_now",
                condition=Q(state="queued", paused=False, deferred=False),
            ),
            # Queued runs whose time comes later. upkeep.rounds: when the next one is due; upkeep.timers: each tenant's.
            models.Index(fields=["due_at"], name="run_deferred", condition=Q(state="queued", deferred=True)),
            models.Index(
                fields=["tenant", "due_at"], name="run_deferred_in_turn", condition=Q(state="queued", deferred=True)
            ),
            # engine.claim, where a long queue is for other workers: the same within one plan. Its first column tells
            # engine.offers which plans are asked for.
            models.Index(
                F("plan"),
                F("isolated"),
                F("resource"),
                F("tenant"),
                F("priority").desc(),
                F("due_at"),
                F("id"),
                name="run_claimable_of_plan",
                condition=Q(state="queued", paused=False),
            ),
            # check_workflows, the Workflows page, upkeep.stranded: which plans open runs need, and those that need one.
            models.Index(fields=["plan", "id"], name="run_open_of_plan", condition=Q(state__in=_OPEN)),
            # upkeep.reaper and the Workers page: what a worker has in hand.
            models.Index(fields=["worker"], name="run_in_hand", condition=Q(state="running")),
            # engine.claim: how many are running that use a resource.
            models.Index(fields=["resource"], name="run_using", condition=Q(state="running") & ~Q(resource="")),
            # upkeep.timers: deadlines of open runs.
            models.Index(
                fields=["deadline_at"],
                name="run_open_deadline",
                condition=Q(deadline_at__isnull=False, state__in=_OPEN),
            ),
            # upkeep.clocks: runs that have stood in the queue too long.
            models.Index(
                fields=["queue_expires_at"],
                name="run_queue_clock",
                condition=Q(state="queued", queue_expires_at__isnull=False),
            ),
            # runs_retention_step: runs that have finished since, then in the order in which they are looked at again.
            models.Index(
                fields=["finished_at", "id"],
                name="run_just_finished",
                condition=Q(finished_at__isnull=False, retain_at=None),
            ),
            models.Index(fields=["retain_at", "id"], name="run_retained", condition=Q(retain_at__isnull=False)),
            # console: newest first within a tenant, and the same by state.
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="run_tenant_newest"),
            models.Index(
                F("tenant"), F("state"), F("created_at").desc(), F("id").desc(), name="run_tenant_state_newest"
            ),
            # console: open runs are few among millions of finished ones.
            models.Index(fields=["state", "state_since"], name="run_open_by_state", condition=Q(state__in=_OPEN)),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.id}"

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def version(self) -> int:
        return self.plan.version
