"""What runs wait for, and the events that arrive for them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

WAIT_KINDS = ("event", "approval", "file", "time", "poll", "children", "turn")
WAIT_STATES = ("open", "answered", "expired", "cancelled")
ON_TIMEOUT = ("raise", "fail", "cancel", "continue", "extend", "ask", "asked")


class Wait(models.Model):
    """A durable pause. Found by name and key within its step, never by order."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="waits", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    lineage = models.SmallIntegerField(default=1)
    step_id = models.CharField(max_length=100)
    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=255)
    author_key = models.CharField(max_length=255, default="", blank=True)
    correlation = models.CharField(max_length=255, default="", blank=True)
    state = models.CharField(max_length=9, default="open")
    opened_at = models.DateTimeField(db_default=Now())
    since = models.DateTimeField(db_default=Now())
    """Events that arrived earlier than this do not answer it."""
    due_at = models.DateTimeField(null=True)
    """When the engine itself goes on: the end of a sleep, the next turn of a poll."""
    expires_at = models.DateTimeField(null=True)
    """The wait's own clock; the run's deadline may come first."""
    on_timeout = models.CharField(max_length=8, default="raise")
    """What happens when its clock comes; `asked` while a person is asked that, who answers an approval of its own."""
    clock = models.CharField(max_length=12, default="", db_default="", blank=True)
    """Of an approval that the engine asks for because a clock has come: which one. Its `correlation` is the wait that
    it is about, if it is about one."""
    turns = models.IntegerField(default=0)
    """Polls: turns taken so far."""
    question = models.TextField(default="", blank=True)
    facts = models.TextField(default="", blank=True)
    """JSON text of what a person is shown."""
    facts_hash = models.CharField(max_length=64, default="", blank=True)
    answer = models.TextField(null=True)
    """JSON text of the answer."""
    answered_by = models.CharField(max_length=200, default="", blank=True)
    answered_at = models.DateTimeField(null=True)
    inbound_event = models.ForeignKey(
        "InboundEvent", null=True, on_delete=models.PROTECT, related_name="waits", db_constraint=False
    )

    class Meta:
        db_table = "runs_wait"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "lineage", "step_id", "kind", "name", "author_key"], name="wait_name_unique"
            ),
            models.CheckConstraint(condition=Q(kind__in=sorted(WAIT_KINDS)), name="wait_kind_known"),
            models.CheckConstraint(condition=Q(state__in=sorted(WAIT_STATES)), name="wait_state_known"),
            models.CheckConstraint(condition=Q(on_timeout__in=sorted(ON_TIMEOUT)), name="wait_on_timeout_known"),
            # One event answers a run once, whichever of its waits asks.
            models.UniqueConstraint(
                fields=["run", "inbound_event"],
                name="wait_event_once_per_run",
                condition=Q(inbound_event__isnull=False),
            ),
        ]
        indexes = [
            # send_event and the sweep: open waits for this event.
            models.Index(
                fields=["tenant", "name", "correlation"],
                name="wait_open_for_event",
                condition=Q(state="open", kind__in=["event", "file"]),
            ),
            # upkeep.rounds: when the next is due. upkeep.timers: sleeps and polls of each tenant; waits that expire.
            models.Index(fields=["due_at"], name="wait_due", condition=Q(state="open", due_at__isnull=False)),
            models.Index(
                fields=["tenant", "due_at"], name="wait_due_in_turn", condition=Q(state="open", due_at__isnull=False)
            ),
            models.Index(
                fields=["expires_at"], name="wait_expiring", condition=Q(state="open", expires_at__isnull=False)
            ),
            # engine.turns: who waits for this system's queue, or for this effect of another run.
            models.Index(fields=["name", "correlation"], name="wait_open_turn", condition=Q(state="open", kind="turn")),
            # inbox and the children sweep.
            models.Index(fields=["kind", "id"], name="wait_open_by_kind", condition=Q(state="open")),
            # inbox: what a tenant's people are asked, oldest first.
            models.Index(
                fields=["tenant", "kind", "id"],
                name="wait_open_for_people",
                condition=Q(state="open", kind__in=["approval", "file"]),
            ),
        ]


class InboundEvent(models.Model):
    """Something another system told us. A fact: it answers every wait that asks for it, each run once."""

    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    name = models.CharField(max_length=255)
    correlation = models.CharField(max_length=255, default="", blank=True)
    event_key = models.CharField(max_length=255, null=True)
    """The sender's own id; sent twice, it is one event."""
    payload = models.TextField(default="null")
    payload_hash = models.CharField(max_length=64)
    sent_by = models.CharField(max_length=200)
    received_at = models.DateTimeField(db_default=Now())
    answered_waits = models.IntegerField(default=0)
    duplicates = models.IntegerField(default=0)

    class Meta:
        db_table = "runs_inbound_event"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name", "event_key"],
                name="inbound_event_key_unique",
                condition=Q(event_key__isnull=False),
            ),
        ]
        indexes = [
            # engine.suspend: has it already arrived?
            models.Index(fields=["tenant", "name", "correlation", "id"], name="inbound_event_lookup"),
        ]
