"""The outbox: messages committed with a checkpoint, the lanes they leave in, and how their destinations do."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.effect import IdempotencyRecord
from runs.models.webhook import WebhookEndpoint
from runs.models.worker import Worker

MESSAGE_STATES = ("pending", "delivered", "poisoned", "skipped")
ON_POISON = ("hold", "skip")


class OutboxLane(models.Model):
    """The messages of one run to one destination: they leave one after the other, in the order of their ids."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="lanes", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    destination = models.TextField()
    """Name of a handler's destination, or `webhook:` and the id of an endpoint."""
    depth = models.IntegerField()
    """Messages that have not left yet. Counted under this row's lock, by whoever adds or settles one: a relay that
    empties the lane and a run that adds to it see each other, in whichever order they commit."""
    held_by = models.BigIntegerField(null=True)
    """The poisoned message that holds the lane until a person decides."""
    due_at = models.DateTimeField()
    claim = models.BigIntegerField(default=0, db_default=0)
    """Grows with each claim; a relay that settles a message must name the present one."""
    relay = models.ForeignKey(
        Worker, null=True, on_delete=models.PROTECT, related_name="lanes", db_constraint=False, db_index=False
    )
    claimed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_outbox_lane"
        constraints = [
            models.UniqueConstraint(fields=["run", "destination"], name="outbox_lane_unique"),
            models.CheckConstraint(condition=Q(depth__gte=0), name="outbox_lane_depth_is_a_count"),
            models.CheckConstraint(
                condition=Q(relay=None, claimed_at=None)
                | Q(relay__isnull=False, claimed_at__isnull=False, depth__gt=0),
                name="outbox_lane_claimed_at_iff_claimed",
            ),
            models.CheckConstraint(
                condition=Q(held_by=None) | Q(relay=None, depth__gt=0), name="outbox_lane_held_is_not_claimed"
            ),
        ]
        indexes = [
            # relay's claim: the destinations that have something ready, each by one descent, and their oldest lanes.
            models.Index(
                fields=["tenant", "destination", "due_at", "id"],
                name="outbox_lane_ready",
                condition=Q(depth__gt=0, relay=None, held_by=None),
            ),
            # upkeep: lanes of relays that have gone. relay: what stands under its name in nobody's hand.
            models.Index(fields=["relay"], name="outbox_lane_claimed", condition=Q(relay__isnull=False)),
            # console, overview: lanes that a person has to open again.
            models.Index(fields=["tenant", "id"], name="outbox_lane_held", condition=Q(held_by__isnull=False)),
        ]


class OutboxMessage(models.Model):
    """One message on its way to one destination. What it says is the body of its effect."""

    lane = models.ForeignKey(OutboxLane, on_delete=models.PROTECT, related_name="messages", db_index=False)
    effect = models.ForeignKey(IdempotencyRecord, on_delete=models.PROTECT, related_name="messages", db_index=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    endpoint = models.ForeignKey(
        WebhookEndpoint, null=True, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    state = models.CharField(max_length=9, default="pending")
    on_poison = models.CharField(max_length=4)
    attempts = models.IntegerField(default=0)
    """How often a relay took it up."""
    forgiven = models.IntegerField(default=0, db_default=0)
    """Attempts that do not count any more, because a person had it tried again."""
    sendings = models.IntegerField(default=0)
    """How often it left, or may have left. Each above one has an `effects_repeated` event that says why."""
    created_at = models.DateTimeField(db_default=Now())
    deliver_before = models.DateTimeField(null=True)
    """After this it is not sent any more."""
    attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error_class = models.CharField(max_length=200, default="", blank=True)
    error_message = models.TextField(default="", blank=True)
    """Of the newest attempt that failed, masked."""

    class Meta:
        db_table = "runs_outbox_message"
        constraints = [
            models.CheckConstraint(condition=Q(state__in=sorted(MESSAGE_STATES)), name="outbox_message_state_known"),
            models.CheckConstraint(condition=Q(on_poison__in=sorted(ON_POISON)), name="outbox_message_on_poison_known"),
            models.CheckConstraint(
                condition=Q(state="pending", finished_at=None) | (~Q(state="pending") & Q(finished_at__isnull=False)),
                name="outbox_message_finished_at_iff_finished",
            ),
            models.CheckConstraint(
                condition=Q(sendings__gte=0, attempts__gte=models.F("sendings")),
                name="outbox_message_sent_at_most_as_often_as_tried",
            ),
            # Also how the messages of an effect are found.
            models.UniqueConstraint(fields=["effect", "lane"], name="outbox_message_once_in_a_lane"),
        ]
        indexes = [
            # relay's claim: the head of a lane, without its history.
            models.Index(fields=["lane", "id"], name="outbox_message_open", condition=Q(state="pending")),
            # retention: the database looks for messages of each lane that goes.
            models.Index(fields=["lane"], name="outbox_message_of_lane"),
            # console, overview, API: what a person has to decide.
            models.Index(fields=["tenant", "id"], name="outbox_message_poisoned", condition=Q(state="poisoned")),
            # console: the newest deliveries of an endpoint.
            models.Index(
                fields=["endpoint", "id"], name="outbox_message_of_endpoint", condition=Q(endpoint__isnull=False)
            ),
        ]


class OutboxBody(models.Model):
    """What the messages of one effect say, apart from them, so that retention can drop it and keep the facts."""

    effect = models.OneToOneField(IdempotencyRecord, primary_key=True, on_delete=models.PROTECT, related_name="body")
    event_type = models.CharField(max_length=100, default="", blank=True)
    """For webhooks: what endpoints subscribe to."""
    body = models.TextField(null=True)
    """JSON text of the request; NULL once retention dropped it."""
    open_messages = models.IntegerField()
    """Messages of the effect that are neither delivered nor skipped: the one that makes it 0 settles the effect."""
    delivered_messages = models.IntegerField(default=0)

    class Meta:
        db_table = "runs_outbox_body"
        constraints = [
            models.CheckConstraint(
                condition=Q(open_messages__gte=0, delivered_messages__gte=0), name="outbox_body_counts_messages"
            ),
            models.CheckConstraint(
                condition=Q(open_messages=0) | Q(body__isnull=False), name="outbox_body_kept_while_needed"
            ),
        ]


class OutboxDestination(models.Model):
    """How a destination is doing. There is a row once it failed or a person stopped it; without one all is well."""

    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    name = models.TextField()
    failures = models.IntegerField(default=0, db_default=0)
    """Failed attempts since the last one that succeeded."""
    failing_since = models.DateTimeField(null=True)
    open_until = models.DateTimeField(null=True)
    """Nothing is sent before this; then one message is, to see whether it is back."""
    error_message = models.TextField(default="", db_default="", blank=True)
    """Of the newest failure, masked."""
    stopped_by = models.CharField(max_length=200, default="", db_default="", blank=True)
    """Whoever stopped deliveries to it; empty while they may go on."""
    stopped_why = models.TextField(default="", db_default="", blank=True)
    stopped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_outbox_destination"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="outbox_destination_unique"),
            models.CheckConstraint(
                condition=Q(failures=0, failing_since=None, open_until=None)
                | Q(failures__gt=0, failing_since__isnull=False),
                name="outbox_destination_failing_since_iff_failing",
            ),
            models.CheckConstraint(
                condition=Q(stopped_by="", stopped_at=None) | (~Q(stopped_by="") & Q(stopped_at__isnull=False)),
                name="outbox_destination_stopped_by_somebody",
            ),
        ]
