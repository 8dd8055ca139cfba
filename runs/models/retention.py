"""What is kept how long, what must not go, what went and why; and the few facts of a run that stay to the end."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.artifact import DATA_CLASSES

SUBJECTS = (*DATA_CLASSES, "reopen")
KEEPS = ("for_ever", "seconds", "inherited")
HOLD_SCOPES = ("run", "tenant", "label")


class RetentionRule(models.Model):
    """How long something is kept, from a moment on. Never changed: of one place the newest row counts."""

    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    """Whose runs; empty is every tenant's, unless a tenant has a rule of its own."""
    workflow = models.CharField(max_length=100, default="", blank=True)
    subject = models.CharField(max_length=14)
    """A data class, or `reopen`: how long a run that ended badly may be reopened."""
    keeps = models.CharField(max_length=9)
    """for_ever, seconds, or inherited: from now on what the wider rule or the default says."""
    seconds = models.BigIntegerField(null=True)
    actor = models.CharField(max_length=200)
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_retention_rule"
        constraints = [
            models.CheckConstraint(condition=Q(subject__in=sorted(SUBJECTS)), name="retention_rule_subject_known"),
            models.CheckConstraint(condition=Q(keeps__in=sorted(KEEPS)), name="retention_rule_keeps_known"),
            # Zero is a length like any other: it goes when the run ends.
            models.CheckConstraint(
                condition=Q(keeps="seconds", seconds__gte=0) | (~Q(keeps="seconds") & Q(seconds=None)),
                name="retention_rule_seconds_iff_meant",
            ),
        ]
        indexes = [
            # runs_retention_window: the newest rule of each place.
            models.Index(fields=["subject", "tenant", "workflow", "id"], name="retention_rule_of_place"),
        ]


class LegalHold(models.Model):
    """While it stands, nothing of what it names goes: a run, a tenant, or whatever carries a label."""

    scope = models.CharField(max_length=6)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    run_id = models.UUIDField(null=True)
    label = models.CharField(max_length=255, default="", blank=True)
    value = models.CharField(max_length=255, default="", blank=True)
    placed_by = models.CharField(max_length=200)
    reason = models.TextField()
    placed_at = models.DateTimeField(db_default=Now())
    lifted_at = models.DateTimeField(null=True)
    lifted_by = models.CharField(max_length=200, default="", blank=True)
    lift_reason = models.TextField(default="", blank=True)

    class Meta:
        db_table = "runs_legal_hold"
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="run", run_id__isnull=False, label="", value="")
                | Q(scope="tenant", run_id=None, label="", value="")
                | (Q(scope="label", run_id=None) & ~Q(label="")),
                name="legal_hold_scope_complete",
            ),
            models.CheckConstraint(
                condition=Q(lifted_at=None, lifted_by="") | (Q(lifted_at__isnull=False) & ~Q(lifted_by="")),
                name="legal_hold_lifted_by_iff_lifted",
            ),
        ]
        indexes = [
            # runs_retention_verdicts: the few that stand.
            models.Index(fields=["tenant", "scope"], name="legal_hold_standing", condition=Q(lifted_at=None)),
        ]


class Erasure(models.Model):
    """Somebody asked that a tenant's data, or what carries a label, be removed. What has to stay is said and why."""

    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    label = models.CharField(max_length=255, default="", blank=True)
    """Empty: everything of the tenant."""
    value = models.CharField(max_length=255, default="", blank=True)
    requested_by = models.CharField(max_length=200)
    reason = models.TextField()
    requested_at = models.DateTimeField(db_default=Now())
    """Of runs created later nothing is erased."""
    finished_at = models.DateTimeField(null=True)
    erased = models.JSONField(default=dict)
    """Rows and bytes by class, once it is finished."""
    stayed = models.JSONField(default=dict)
    """How many runs had to stay, and why, as it was last looked at."""

    class Meta:
        db_table = "runs_erasure"
        indexes = [
            # runs_retention_verdicts, upkeep.retention.erasures: the few of a tenant.
            models.Index(fields=["tenant", "id"], name="erasure_of_tenant"),
        ]


class Cleanup(models.Model):
    """What went: written by the transaction that removed it, before it did."""

    at = models.DateTimeField(db_default=Now())
    data_class = models.CharField(max_length=14)
    kind = models.CharField(max_length=40)
    """The table it was in."""
    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    workflow = models.CharField(max_length=100, default="", blank=True)
    rule = models.BigIntegerField()
    """The version of the policy: number of the rule that applied; 0 is the default."""
    seconds = models.BigIntegerField(null=True)
    """How long it was kept, by that rule."""
    cutoff = models.DateTimeField()
    """What had ended, or stopped being needed, up to here has gone."""
    reason = models.CharField(max_length=10)
    erasure = models.ForeignKey(Erasure, null=True, on_delete=models.PROTECT, related_name="cleanups", db_index=False)
    runs = models.IntegerField()
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    sample = models.JSONField(default=list)
    """Some of the runs."""
    cleaner = models.CharField(max_length=200)

    class Meta:
        db_table = "runs_cleanup"
        constraints = [
            models.CheckConstraint(condition=Q(data_class__in=sorted(DATA_CLASSES)), name="cleanup_data_class_known"),
            models.CheckConstraint(
                condition=Q(reason="policy", erasure=None) | Q(reason="erasure", erasure__isnull=False),
                name="cleanup_reason_known",
            ),
        ]
        indexes = [
            # Retention page: newest first.
            models.Index(models.F("at").desc(), models.F("id").desc(), name="cleanup_newest"),
            # An erasure's own account.
            models.Index(fields=["erasure"], name="cleanup_of_erasure", condition=Q(erasure__isnull=False)),
        ]


class RunSummary(models.Model):
    """What stays of a finished run: written before anything of it goes. References, no payloads."""

    run = models.OneToOneField("Run", primary_key=True, on_delete=models.PROTECT, related_name="summary")
    finished_at = models.DateTimeField()
    """The end that it tells about: a run that was reopened gets another."""
    version = models.IntegerField()
    checkpoints = models.IntegerField()
    effects = models.JSONField(default=dict)
    """How many, by outcome."""
    output_hash = models.CharField(max_length=64, default="", blank=True)
    output_bytes = models.IntegerField(null=True)
    deliverables = models.JSONField(default=list)
    """Number, name, hash and size of the files that the run was for."""
    written_at = models.DateTimeField(db_default=Now())
    cleaned = models.JSONField(default=dict)
    """Data class to when it had gone."""
    kept = models.JSONField(default=dict)
    """Data class to why it stays although its time has come."""
    closed_at = models.DateTimeField(null=True)
    """Since when something is missing without which the run cannot go on: it is never reopened after."""
    erasure = models.ForeignKey(Erasure, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    """On whose request it was emptied; its labels went with it, so they cannot tell any more."""

    class Meta:
        db_table = "runs_summary"
        indexes = [
            models.Index(fields=["erasure"], name="summary_of_erasure", condition=Q(erasure__isnull=False)),
        ]


class Relook(models.Model):
    """Runs that retention should look at again, because a rule, a hold or a request about them changed."""

    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    workflow = models.CharField(max_length=100, default="", blank=True)
    run_id = models.UUIDField(null=True)
    label = models.CharField(max_length=255, default="", blank=True)
    value = models.CharField(max_length=255, default="", blank=True)
    at = models.DateTimeField(db_default=Now())
    after_at = models.DateTimeField(null=True)
    after_id = models.UUIDField(null=True)
    """How far it has come, in the order in which runs are looked at."""
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_relook"
        indexes = [models.Index(fields=["id"], name="relook_open", condition=Q(done_at=None))]  # upkeep.retention


class RetentionLane(models.Model):
    """One kind of cleaning. Its row is locked by whoever is at it: one at a time, whoever dies lets go."""

    name = models.CharField(max_length=20, primary_key=True)
    position = models.BigIntegerField(default=0, db_default=0)
    """Lanes that walk along a table: up to which row they have come."""
    worked_at = models.DateTimeField(null=True)
    rows = models.BigIntegerField(default=0, db_default=0)
    """How many rows it ever removed or emptied."""
    bytes = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "runs_retention_lane"


class RetentionPreview(models.Model):
    """What would go, what would stay and why, as of one moment; and what became of it."""

    made_at = models.DateTimeField(db_default=Now())
    made_by = models.CharField(max_length=200)
    as_of = models.DateTimeField()
    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    rule = models.BigIntegerField()
    """The newest rule there was."""
    figures = models.JSONField()
    ran_at = models.DateTimeField(null=True)
    outcome = models.JSONField(null=True)
    """What went, and what was different from the preview."""

    class Meta:
        db_table = "runs_retention_preview"


class ClassSize(models.Model):
    """How much there was of each data class at one moment: what the Overview shows, and warns about when it grows."""

    at = models.DateTimeField(db_default=Now())
    data_class = models.CharField(max_length=14)
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()

    class Meta:
        db_table = "runs_class_size"
        constraints = [
            models.CheckConstraint(condition=Q(data_class__in=sorted(DATA_CLASSES)), name="class_size_class_known"),
        ]
        indexes = [models.Index(fields=["data_class", "at"], name="class_size_of_class")]  # Overview, growth alarm
