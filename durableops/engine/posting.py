"""Calls of `outbox` tools: nothing is sent. Effect and message are committed with the step's next commit, or never.

A conflict (same slot, other request) is found before that wherever it can be: in what was loaded when the step was
entered again, and, for slots that other pages or runs may hold, by asking. What another run commits between that look
and our commit is found by the commit itself, which is then refused as a whole.
"""

from __future__ import annotations

from typing import Any

from durableops import failpoints
from durableops.checkpoints import codec, secrets
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.known import KnownEffect
from durableops.engine.ops import Commit, Logic
from durableops.engine.records import load_slots
from durableops.engine.sending import identity_of
from durableops.errors import DuplicateName, EffectConflict
from runs.fenced import FencedWrite

MOST_MESSAGES = 1000
MOST_BYTES = 4 * 1024 * 1024
"""With more than this waiting for a commit, they get one of their own."""

_HOLDERS = "SELECT id, encode(slot, 'hex'), request_hash FROM runs_effect WHERE slot = ANY(%s)"


def post(hand: Hand, calls: list[Prepared]) -> Logic[list[Any]]:
    """Note each message, unless it is on record; answer with receipts, or with the error that stands in one's place."""
    results: list[Any] = [None] * len(calls)
    new: dict[int, Prepared] = {}
    for n, prepared in enumerate(calls):
        try:
            hand.use("call", prepared.tool.name, prepared.resource, prepared.author_key)
        except DuplicateName as twice:
            results[n] = twice
        else:
            new[n] = prepared
    known = yield from _recorded(hand, list(new.values()))
    for n, prepared in new.items():
        effect = known.get(prepared.slot)
        results[n] = receipt(prepared) if effect is None else _answer(hand, prepared, effect)
        if effect is None:
            yield from _post(hand, prepared)
    return results


def receipt(prepared: Prepared) -> dict[str, Any]:
    """What the step gets: the same whenever it asks, whatever became of the message meanwhile."""
    return {"message": prepared.key, "queued": True}


def conflict_of(database: Database, hand: Hand, write: FencedWrite) -> EffectConflict | None:
    """The message whose slot another run gave another request meanwhile, told on the timeline; None without one."""
    asked = {row["slot"]: row for row in write.messages}
    for effect_id, slot, recorded in database.read(_HOLDERS, [[bytes.fromhex(slot) for slot in asked]]):
        row = asked[slot]
        if row["request_hash"] != recorded:
            return _conflict(hand, row["tool"], row["resource"], row["request_hash"], effect_id, recorded)
    return None


def _recorded(hand: Hand, calls: list[Prepared]) -> Logic[dict[str, KnownEffect]]:
    """Those of the calls whose slots are taken. A step's own slots were loaded with it; others are asked for."""
    found = {call.slot: hand.effects[call.slot] for call in calls if call.slot in hand.effects}
    elsewhere = [
        call.slot
        for call in calls
        if call.slot not in found and (hand.in_page or hand.went_back or call.tool.scope == "tenant")
    ]
    if elsewhere:
        found |= yield from load_slots(hand, elsewhere)
    return found


def _answer(hand: Hand, prepared: Prepared, known: KnownEffect) -> Any:
    tool = prepared.tool
    if known.request_hash != prepared.request_hash:
        return _conflict(hand, tool.name, prepared.resource, prepared.request_hash, known.id, known.request_hash)
    if hand.in_page and not hand.went_back and tool.scope == "run" and known.id <= hand.effects_through:
        return DuplicateName(
            f"{tool.name} was called for {prepared.resource!r} on an earlier page; give this one its own key.",
            effect=known.id,
        )
    hand.reuse(known.id)
    return receipt(prepared)


def _conflict(hand: Hand, tool: str, resource: str, asked: str, effect_id: int, recorded: str) -> EffectConflict:
    hand.event(
        "effect_conflict",
        reason=f"{tool} for {resource!r}: the slot holds another request; no message was queued.",
        data={"effect": effect_id, "tool": tool, "asked": asked, "recorded": recorded},
    )
    return EffectConflict(
        f"{tool} for {resource!r} was asked with another request before (effect {effect_id}). "
        "No message was queued. Give a changed request a key of its own, or keep it the same.",
        effect=effect_id,
    )


def _post(hand: Hand, prepared: Prepared) -> Logic[None]:
    tool = prepared.tool
    failpoints.reach(failpoints.Point.BEFORE_INTENT, hand.step.id, prepared.resource)
    body = codec.dumps(prepared.request, what=f"message of {tool.name}", max_bytes=get_conf().payload_max_bytes)
    hand.post(
        {
            **identity_of(hand, prepared),
            "destination": tool.destination or tool.name,
            "event_type": tool.event_type,
            "on_poison": tool.on_poison,
            "deliver_seconds": None if tool.deliver_within is None else tool.deliver_within.total_seconds(),
            "body": secrets.seal_fields(body, tool.secret),
        }
    )
    if hand.posting.count >= MOST_MESSAGES or hand.posting.bytes >= MOST_BYTES:
        yield Commit(hand.write())
