"""Reading what a step left behind before it was interrupted: effects, waits, decisions. Once for each re-entry."""

from __future__ import annotations

from typing import Any

from durableops.authoring.definitions import ToolDefinition
from durableops.clock import uptime
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.known import KnownEffect, KnownWait
from durableops.engine.ops import Ask, Logic
from runs.sharing import OWNER

_EFFECT = """
SELECT e.id, encode(e.slot, 'hex'), e.key, e.request_hash, e.state, e.attempts, e.result, e.error_class,
    e.error_message, extract(epoch FROM e.window_ends_at - now())::float8, e.fence, e.run_id, {owner}
FROM runs_effect e {more} WHERE """
_OF_ENTRY = _EFFECT.format(owner="''", more="") + "e.run_id = %s AND e.id > %s ORDER BY e.id"
_OF_SLOTS = (
    _EFFECT.format(owner=OWNER.format(effect="e"), more="JOIN runs_run o ON o.id = e.run_id") + "e.slot = ANY(%s)"
)
_WAITS = """
SELECT kind, name, author_key, id, state, answer, answered_by, on_timeout, turns, coalesce(due_at <= now(), true),
    facts_hash
FROM runs_wait WHERE run_id = %s AND lineage = %s AND step_id = %s"""
_WAIT_FIELDS = ("id", "state", "answer", "answered_by", "on_timeout", "turns", "due", "facts_hash")
_WENT_BACK = "SELECT EXISTS (SELECT 1 FROM runs_lineage WHERE run_id = %s AND kind = 'branch')"
_DECISIONS = "SELECT name, author_key, input_hash, result FROM runs_decision WHERE run_id = %s AND step_id = %s"


def ensure_loaded(hand: Hand) -> Logic[None]:
    """Load what this step (or page) may find again. A first entry has nothing to find and asks nothing."""
    if not hand.loaded:
        yield Ask(lambda database: _load(hand, database))


def load_slots(hand: Hand, slots: list[str]) -> Logic[dict[str, KnownEffect]]:
    """The effects that hold these slots, whoever made them."""
    wanted = [bytes.fromhex(slot) for slot in slots]
    rows = yield Ask(lambda database: database.read(_OF_SLOTS, [wanted]))
    return {effect.slot: effect for effect in map(_effect, rows)}


def ask_earlier_lineages(hand: Hand, tool: ToolDefinition, slots: list[str]) -> Logic[None]:
    """Of a run that went back, find what was done before under these slots. Reads are made again, and not asked for."""
    unknown = [slot for slot in slots if slot not in hand.effects]
    if hand.went_back and tool.safety != "read" and unknown:
        hand.effects |= yield from load_slots(hand, unknown)


def _load(hand: Hand, database: Database) -> None:
    claimed = hand.claimed
    if hand.went_back is None:
        hand.went_back = database.read(_WENT_BACK, [hand.run_id])[0][0]
    # Who went back may find all that was done before: it is asked for call by call.
    for row in [] if hand.went_back else database.read(_OF_ENTRY, [hand.run_id, hand.effects_through]):
        effect = _effect(row)
        hand.effects[effect.slot] = effect
    for row in database.read(_WAITS, [hand.run_id, claimed.lineage, hand.step.id]):
        kind, name, key, *rest = row
        hand.waits[kind, name, key] = KnownWait(**dict(zip(_WAIT_FIELDS, rest, strict=True)))
    for name, key, input_hash, result in database.read(_DECISIONS, [hand.run_id, hand.step.id]):
        hand.decisions[name, key, input_hash] = result
    hand.loaded = True


def _effect(row: tuple[Any, ...]) -> KnownEffect:
    (*facts, window_left, fence, run_id, owner) = row
    names = ("id", "slot", "key", "request_hash", "state", "attempts", "result", "error_class", "error_message")
    return KnownEffect(
        **dict(zip(names, facts, strict=True)),
        window_closes=None if window_left is None else uptime() + window_left,
        fence=fence,
        run_id=run_id,
        owner=owner,
    )
