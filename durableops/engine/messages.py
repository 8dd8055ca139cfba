"""The verbs of people on messages of the outbox and on their destinations: try again, send again, skip, stop, go on.

As with runs: a verb, its history row and its audit entry are one transaction, and refusals are audited, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from durableops.engine import relay_bell
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, write
from durableops.engine.waking import db_now
from durableops.errors import MessageNotFound, TransitionRefused
from runs.models import (
    AuditEntry,
    IdempotencyRecord,
    OutboxBody,
    OutboxDestination,
    OutboxLane,
    OutboxMessage,
    Run,
    Tenant,
)


@dataclass(frozen=True, kw_only=True)
class _Hold:
    """A message with everything that is locked for a verb on it, in the order of locks."""

    run: Run
    lane: OutboxLane
    message: OutboxMessage
    body: OutboxBody

    @property
    def is_under_way(self) -> bool:
        """Whether a relay has it in its hand: the claim wrote one instant on the lane and on the message it took."""
        return self.lane.claimed_at is not None and self.lane.claimed_at == self.message.attempted_at

    def refused(self, verb: str, wanted: str) -> TransitionRefused:
        shown = "being delivered just now" if self.is_under_way else self.message.state
        return TransitionRefused(
            f"message {self.message.pk} is {shown}; '{verb}' needs {wanted}. Nothing was changed.",
            run=self.run.pk, state=self.run.state, event=verb, wanted=wanted,
        )  # fmt: skip

    def written(self, cursor: Any, verb: str, message: str, *, actor: str, reason: str, before: dict[str, Any]) -> Done:
        self.message.refresh_from_db()
        facts = {"message": self.message.pk, "effect": self.message.effect_id, "destination": self.lane.destination}
        write(
            cursor, self.run, verb, actor=actor, reason=reason, before={**facts, **before},
            after={**facts, "state": self.message.state},
        )  # fmt: skip
        transaction.on_commit(relay_bell.ring)
        return Done(run_id=self.run.pk, state=self.run.state, settled=True, message=message)


@audited_refusals
def retry_message(message_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Have a message tried now: one that waits for its next attempt, or a poisoned one, with all its attempts anew."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold = _hold(tenant, message_id)
        if hold.message.state not in ("pending", "poisoned") or hold.is_under_way:
            raise hold.refused("retry_message", "one that waits for its next attempt, or is poisoned")
        before = {"state": hold.message.state, "attempts": hold.message.attempts, "error": hold.message.error_message}
        now = db_now(cursor)
        lane = {"due_at": now, "held_by": None if hold.lane.held_by == hold.message.pk else hold.lane.held_by}
        if hold.message.state == "poisoned":
            OutboxMessage.objects.filter(pk=hold.message.pk).update(
                state="pending", finished_at=None, forgiven=F("attempts"), deliver_before=None
            )
            # The one that held its lane is counted there already.
            lane["depth"] = hold.lane.depth + (hold.lane.held_by != hold.message.pk)
        OutboxLane.objects.filter(pk=hold.lane.pk).update(**lane)
        _end_rest(tenant, hold.lane.destination, now)
        return hold.written(
            cursor, "retry_message", "is tried now.", actor=actor, reason=reason, before=before
        )  # fmt: skip


@audited_refusals
def redeliver(message_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Send a message again that was delivered or skipped, with its old key. Its receiver may know it already."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold = _hold(tenant, message_id)
        if hold.message.state not in ("delivered", "skipped"):
            raise hold.refused("redeliver", "a delivered or skipped one; have others tried with 'retry_message'")
        if hold.body.body is None:
            raise hold.refused("redeliver", "one whose body is still there; retention has removed it")
        was = hold.message.state
        OutboxMessage.objects.filter(pk=hold.message.pk).update(
            state="pending", finished_at=None, forgiven=F("attempts"), deliver_before=None,
            error_message=f"{actor} had it sent again"[:1000],
        )  # fmt: skip
        OutboxLane.objects.filter(pk=hold.lane.pk).update(depth=F("depth") + 1, due_at=db_now(cursor))
        OutboxBody.objects.filter(pk=hold.body.pk).update(
            open_messages=F("open_messages") + 1, delivered_messages=F("delivered_messages") - int(was == "delivered")
        )
        return hold.written(cursor, "redeliver", "is sent again.", actor=actor, reason=reason, before={"state": was})


@audited_refusals
def skip_message(message_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Give a message up: it is not delivered any more, and those behind it go on."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold = _hold(tenant, message_id)
        if hold.message.state not in ("pending", "poisoned") or hold.is_under_way:
            raise hold.refused("skip_message", "a poisoned one, or one that waits")
        before = {"state": hold.message.state, "error": hold.message.error_message}
        counted = hold.message.state == "pending" or hold.lane.held_by == hold.message.pk
        now = db_now(cursor)
        OutboxLane.objects.filter(pk=hold.lane.pk).update(
            depth=F("depth") - int(counted),
            held_by=None if hold.lane.held_by == hold.message.pk else hold.lane.held_by,
        )
        OutboxMessage.objects.filter(pk=hold.message.pk).update(state="skipped", finished_at=now)
        _settle_effect(hold, now)
        return hold.written(cursor, "skip_message", "is skipped.", actor=actor, reason=reason, before=before)


def stop_destination(name: str, *, tenant: Tenant, actor: str, reason: str) -> bool:
    """Let nothing leave to a destination until it is let go on. False when it was stopped already."""
    with transaction.atomic(), connection.cursor() as cursor:
        row, _ = OutboxDestination.objects.get_or_create(tenant=tenant, name=name)
        stopped = OutboxDestination.objects.filter(pk=row.pk, stopped_by="").update(
            stopped_by=actor, stopped_why=kept_reason(reason), stopped_at=db_now(cursor)
        )
        if stopped:
            _audit(tenant, "stop_destination", name, actor=actor, reason=reason)
    return bool(stopped)


def let_destination_go_on(name: str, *, tenant: Tenant, actor: str, reason: str) -> bool:
    """Let a destination have its messages: one that was stopped, or one that rests, is tried now. False without one."""
    with transaction.atomic(), connection.cursor() as cursor:
        row = OutboxDestination.objects.select_for_update().filter(tenant=tenant, name=name).first()
        if row is None or not (row.stopped_by or row.open_until):
            return False
        row.stopped_by, row.stopped_why, row.stopped_at = "", "", None
        row.open_until = row.open_until and db_now(cursor)
        row.save(update_fields=["stopped_by", "stopped_why", "stopped_at", "open_until"])
        OutboxLane.objects.filter(tenant=tenant, destination=name, depth__gt=0, relay=None, held_by=None).update(
            due_at=db_now(cursor)
        )
        _audit(tenant, "let_destination_go_on", name, actor=actor, reason=reason)
        transaction.on_commit(relay_bell.ring)
    return True


def _hold(tenant: Tenant, message_id: int) -> _Hold:
    """The message with its run, lane and body locked, in the order of locks. Raises MessageNotFound."""
    found = OutboxMessage.objects.filter(pk=message_id, tenant=tenant).select_related("lane").first()
    if found is None:
        raise MessageNotFound(f"there is no message {message_id} here.")
    run = locked(tenant, found.lane.run_id)
    lane = OutboxLane.objects.select_for_update(no_key=True).get(pk=found.lane_id)
    message = OutboxMessage.objects.select_for_update(no_key=True).get(pk=found.pk)
    body = OutboxBody.objects.select_for_update(no_key=True).get(pk=found.effect_id)
    return _Hold(run=run, lane=lane, message=message, body=body)


def _settle_effect(hold: _Hold, now: Any) -> None:
    """A message less to wait for; with the last one the effect has its outcome."""
    OutboxBody.objects.filter(pk=hold.body.pk).update(open_messages=F("open_messages") - 1)
    if hold.body.open_messages > 1:
        return
    delivered = hold.body.delivered_messages > 0
    effect = IdempotencyRecord.objects.filter(pk=hold.message.effect_id, state="queued")
    if delivered:
        effect.update(state="succeeded", completed_at=now, result="null", error_class="", error_message="")
    else:
        effect.update(state="given_up", completed_at=now)


def _end_rest(tenant: Tenant, destination: str, now: Any) -> None:
    """Whoever has a message tried now does not want to wait for the destination's next probe either."""
    OutboxDestination.objects.filter(tenant=tenant, name=destination, open_until__gt=now).update(open_until=now)


def _audit(tenant: Tenant, verb: str, name: str, *, actor: str, reason: str) -> None:
    AuditEntry.objects.create(
        tenant=tenant, actor=actor, verb=verb, target_kind="destination", target_id=name, reason=kept_reason(reason),
        after={"destination": name},
    )  # fmt: skip
