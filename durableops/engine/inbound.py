"""Events from other systems: stored first, then matched with the waits that ask for them.

The rule: an event is a fact. It answers every open wait of its tenant with its name and correlation, and later each
wait that is opened for it by a run that was created before it arrived (`look_back` reaches further back). It answers
one run at most once, so a loop of waits takes a queue of events in their order. Sent twice under one key it is one
event.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.start import constraint_of
from durableops.engine.waking import Closing, close_wait
from durableops.errors import EventConflict, InputRefused, PayloadRefused
from runs.models import InboundEvent, Tenant
from runs.transitions import Cursor

EVENT_KEY_UNIQUE = "inbound_event_key_unique"
MATCH_AT_ONCE = 1000
"""Waits that one event answers in its own transaction; the sweep takes the rest."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """What became of an event that was sent."""

    event_id: int
    created: bool
    """False when the same event had arrived before."""
    answered: int
    """Waits it has answered so far; 0 means it is kept for one that comes."""


def send_event(
    name: str,
    *,
    tenant: Tenant,
    actor: str,
    correlation: str = "",
    payload: Any = None,
    event_key: str | None = None,
) -> Received:
    """Store an event and wake every run that waits for it.

    Raises InputRefused, and EventConflict when the key stands for an event with other content.
    """
    codec.check_key(name, what="event name")
    if correlation:
        codec.check_key(correlation, what="correlation")
    if event_key is not None:
        codec.check_key(event_key, what="event key")
    try:
        text = codec.dumps(payload, what="payload", max_bytes=get_conf().payload_max_bytes)
    except PayloadRefused as refused:
        raise InputRefused(refused.detail, path=refused.path) from None
    payload_hash = codec.hash_hex(f"{correlation}\n{codec.canonical(payload)}")
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            lock(cursor, tenant_id=tenant.pk, name=name, correlation=correlation)
            event = InboundEvent.objects.create(
                tenant=tenant, name=name, correlation=correlation, event_key=event_key, payload=text,
                payload_hash=payload_hash, sent_by=actor,
            )  # fmt: skip
            answered = match_event(cursor, event_id=event.pk)
            transaction.on_commit(lambda: bell.ring(answered))
    except IntegrityError as error:
        if constraint_of(error) != EVENT_KEY_UNIQUE:
            raise
        return _earlier(tenant, name, event_key, payload_hash)
    return Received(event_id=event.pk, created=True, answered=answered)


def _earlier(tenant: Tenant, name: str, event_key: str | None, payload_hash: str) -> Received:
    with transaction.atomic():
        event = InboundEvent.objects.select_for_update().get(tenant=tenant, name=name, event_key=event_key)
        if event.payload_hash != payload_hash:
            raise EventConflict(
                f"event {name!r} with key {event_key!r} arrived before with other content. Nothing was changed; "
                "send a new event under a new key."
            )
        event.duplicates += 1
        event.save(update_fields=["duplicates"])
    return Received(event_id=event.pk, created=False, answered=event.answered_waits)


def lock(cursor: Cursor, *, tenant_id: int, name: str, correlation: str) -> None:
    """Serialise sending an event and opening a wait for it, so that neither misses the other.

    Taken before any row lock, by both. It ends with the transaction, so poolers may stand between.
    """
    digest = hashlib.sha256(f"{tenant_id}\n{name}\n{correlation}".encode()).digest()
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(digest[:8], "big", signed=True)])


_OPEN_WAITS = """
SELECT w.id, w.run_id FROM runs_wait w JOIN runs_inbound_event e ON e.id = %(event)s
WHERE w.tenant_id = e.tenant_id AND w.name = e.name AND w.correlation = e.correlation
  AND w.state = 'open' AND w.kind = 'event' AND w.since <= e.received_at
  AND NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = w.run_id AND o.inbound_event_id = e.id)
ORDER BY w.run_id, w.id LIMIT %(limit)s"""

_OLDEST_EVENT = """
SELECT e.id FROM runs_inbound_event e JOIN runs_wait w ON w.id = %(wait)s
WHERE e.tenant_id = w.tenant_id AND e.name = w.name AND e.correlation = w.correlation AND e.received_at >= w.since
  AND NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = w.run_id AND o.inbound_event_id = e.id)
ORDER BY e.id LIMIT 1"""


def match_event(cursor: Cursor, *, event_id: int) -> int:
    """Answer the open waits that ask for this event, one for each run. Returns how many."""
    cursor.execute(_OPEN_WAITS, {"event": event_id, "limit": MATCH_AT_ONCE})
    answered, seen = 0, set()
    for wait_id, run_id in cursor.fetchall():
        if run_id not in seen and _answer(cursor, run_id=run_id, wait_id=wait_id, event_id=event_id):
            seen.add(run_id)
            answered += 1
    return answered


def match_wait(cursor: Cursor, *, run_id: UUID, wait_id: int) -> bool:
    """Answer a wait with the oldest event that is there for it already."""
    cursor.execute(_OLDEST_EVENT, {"wait": wait_id})
    row = cursor.fetchone()
    return row is not None and _answer(cursor, run_id=run_id, wait_id=wait_id, event_id=row[0])


def _answer(cursor: Cursor, *, run_id: UUID, wait_id: int, event_id: int) -> bool:
    cursor.execute("SELECT name, correlation, payload, sent_by FROM runs_inbound_event WHERE id = %s", [event_id])
    name, correlation, payload, sent_by = cursor.fetchone()
    closing = Closing(
        state="answered",
        cause="event",
        detail=f"event {name!r}" + (f" for {correlation!r}" if correlation else "") + f" from {sent_by}",
        answer=payload,
        by=sent_by,
        inbound_event=event_id,
    )
    if not close_wait(cursor, run_id=run_id, wait_id=wait_id, closing=closing):
        return False
    cursor.execute("UPDATE runs_inbound_event SET answered_waits = answered_waits + 1 WHERE id = %s", [event_id])
    return True
