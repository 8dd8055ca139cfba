"""The logic of effects: intent before call, recorded results instead of second calls, old keys for repeats.

What a crash re-sends: a `keyed` call whose intent was committed and whose result was not; it goes out again with the
same key. A lone call costs two commits (intent, then its result with the checkpoint); in a loop result n travels with
intent n + 1; `call_many` commits all intents at once and all results with the cursor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from durableops import failpoints
from durableops.authoring.definitions import ToolDefinition
from durableops.clock import uptime
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared, prepare
from durableops.engine import django_side, large_results, legacy, local, posting
from durableops.engine import results as recorded
from durableops.engine.calling import LiveCall
from durableops.engine.checks import check_may_go_on, flush_if_stale, stop_reason
from durableops.engine.hand import Hand, KnownEffect
from durableops.engine.large_results import Apart
from durableops.engine.ops import Commit, Local, Logic
from durableops.engine.records import ask_earlier_lineages, ensure_loaded, load_slots
from durableops.engine.sending import Pending, identity_of, in_doubt, send_all, window_closed
from durableops.errors import (
    CallsFailed,
    ControlSignal,
    DuplicateName,
    DurableOpsError,
    EffectConflict,
    EffectGivenUp,
    EffectInDoubt,
    Fatal,
    InputRefused,
    PayloadRefused,
    Refused,
)

MESSAGE_CHARACTERS = 2000
MAX_CONCURRENCY = 64


def call(hand: Hand, tool: ToolDefinition, *, resource: str, key: str, request: Mapping[str, Any]) -> Logic[Any]:
    """Call once for (step, tool, resource, key); on re-entry the record answers."""
    [result] = yield from _calls(hand, tool, [dict(request, resource=resource, key=key)], concurrency=1)
    if isinstance(result, BaseException):
        raise result
    return result


def call_many(
    hand: Hand, tool: ToolDefinition, items: Iterable[Mapping[str, Any]], *, concurrency: int, on_error: str
) -> Logic[list[Any]]:
    """Call for each item; with on_error "return", an item that has no result is answered by its error."""
    if on_error not in ("raise", "return"):
        raise Fatal(f"on_error is {on_error!r}; give 'raise' or 'return'.")
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise Fatal(f"concurrency is {concurrency!r}; give a whole number from 1 to {MAX_CONCURRENCY}.")
    results = yield from _calls(hand, tool, list(items), concurrency=concurrency)
    failed = {n: error for n, error in enumerate(results) if isinstance(error, BaseException)}
    doubts = [error for error in failed.values() if isinstance(error, EffectInDoubt)]
    if doubts:
        raise doubts[0]
    if failed and on_error == "raise":
        first = next(iter(failed.values()))
        raise CallsFailed(
            f"{len(failed)} of {len(results)} calls of {tool.name} gave up, the rest is recorded; the first: {first}",
            errors={n: str(e) for n, e in failed.items()},
        ) from first
    return results


def _calls(hand: Hand, tool: ToolDefinition, items: list[Mapping[str, Any]], *, concurrency: int) -> Logic[list[Any]]:
    check_may_go_on(hand)
    _refuse_transaction(tool)
    yield from flush_if_stale(hand)
    yield from ensure_loaded(hand)
    if tool.safety == "outbox":
        return (yield from posting.post(hand, [_prepare(hand, tool, dict(item)) for item in items]))
    results: list[Any] = [None] * len(items)
    fresh: dict[int, Prepared] = {}
    pending: dict[int, Pending] = {}
    asked = [_prepare(hand, tool, dict(item)) for item in items]
    yield from ask_earlier_lineages(hand, tool, [prepared.slot for prepared in asked])
    for n, prepared in enumerate(asked):
        try:
            hand.use("call", tool.name, prepared.resource, prepared.author_key, *_read_identity(prepared))
        except DuplicateName as twice:
            results[n] = twice
            continue
        known = hand.effects.get(prepared.slot)
        if known is not None and known.key != prepared.key and known.request_hash == prepared.request_hash:
            # Its step or tool was called something else then: the other side knows it by its first key.
            prepared = replace(prepared, key=known.key)
        if known is None or known.state == "withdrawn":
            fresh[n] = prepared
        else:
            _answer(hand, n, prepared, known, results, pending)
    if tool.safety == "local":
        yield from _call_locally(hand, fresh, results)
    else:
        yield from _intend(hand, fresh, results, pending, concurrency=concurrency)
        if tool.safety == "legacy":
            yield from legacy.send_in_turn(hand, pending)
        else:
            yield from send_all(hand, pending, concurrency=concurrency)
    for n, one in pending.items():
        results[n] = one.value if one.error is None else one.error
    yield from large_results.read_all(hand, results)
    return results


def _refuse_transaction(tool: ToolDefinition) -> None:
    """Waiting for an answer inside a transaction would keep its connection and its locks from everybody else."""
    if tool.safety != "local" and django_side.in_transaction():
        raise Fatal(
            f"{tool.name} was called inside a transaction of the step's own, which would stay open while it waits. "
            "Call it before or after the transaction."
        )


def _prepare(hand: Hand, tool: ToolDefinition, item: dict[str, Any]) -> Prepared:
    resource, key = item.pop("resource", ""), item.pop("key", "")
    try:
        return prepare(
            tool,
            item,
            run_id=hand.run_id,
            tenant_id=hand.claimed.tenant_id,
            step_id=hand.step.id,
            resource=resource if isinstance(resource, str) else str(resource),
            author_key=key if isinstance(key, str) else str(key),
            max_bytes=get_conf().payload_max_bytes,
        )
    except InputRefused as refused:
        raise PayloadRefused(refused.detail, path=refused.path) from None


def _read_identity(prepared: Prepared) -> tuple[str, ...]:
    return (prepared.request_hash,) if not prepared.resource else ()


def _answer(
    hand: Hand, n: int, prepared: Prepared, known: KnownEffect, results: list[Any], pending: dict[int, Pending]
) -> None:
    """Answer from the record where it has an answer; otherwise note the call as one to be sent again."""
    if known.request_hash != prepared.request_hash:
        results[n] = _conflict(hand, prepared, known)
    elif hand.in_page and not hand.went_back and known.id <= hand.effects_through and prepared.tool.safety != "read":
        # A run that went back may as well have done it on this very page.
        results[n] = DuplicateName(
            f"{prepared.tool.name} was called for {prepared.resource!r} on an earlier page; give this one its own key.",
            effect=known.id,
        )
    elif known.state == "succeeded" and known.error_class:
        results[n] = PayloadRefused(known.error_message)
    elif known.state == "succeeded" and known.result is None:
        hand.reuse(known.id)
        results[n] = Apart(slot=prepared.slot, tool=prepared.tool, resource=prepared.resource)
    elif known.state == "succeeded":
        hand.reuse(known.id)
        results[n] = recorded.read(prepared.tool, known.result or "null")
    elif known.state == "refused":
        hand.reuse(known.id)
        results[n] = Refused(known.error_message)
    elif known.state == "given_up":
        results[n] = EffectGivenUp(
            f"{prepared.tool.name} for {prepared.resource!r} was given up (effect {known.id}): {known.error_message}",
            effect=known.id,
        )
    elif known.state == "intended" and _is_closed(known):
        results[n] = window_closed(hand, prepared, known.id)
    elif known.state == "in_doubt" and (prepared.tool.safety != "keyed" or _is_closed(known)):
        results[n] = in_doubt(prepared, known.id)
    elif known.state == "queued":
        pending[n] = Pending(prepared=prepared, effect_id=known.id, window_closes=None)
    elif prepared.tool.safety == "legacy":
        # Whoever left the step said so already; this is the last of the nets below it.
        hand.doubt(known.id, cause="interrupted", why="its sender left before it had an answer.")
        results[n] = in_doubt(prepared, known.id)
    else:
        pending[n] = hand.under_way[known.id] = Pending(
            prepared=prepared,
            effect_id=known.id,
            window_closes=known.window_closes,
            attempt=known.attempts,
            maybe_sent=True,
            repeat_because=hand.claimed.wake_cause or "interrupted",
        )


def _is_closed(known: KnownEffect) -> bool:
    """Whether the other side may have forgotten the key."""
    return known.window_closes is not None and uptime() > known.window_closes


def _conflict(hand: Hand, prepared: Prepared, known: KnownEffect) -> EffectConflict:
    _tell_conflict(hand, prepared, known.id, recorded=known.request_hash)
    return EffectConflict(
        f"{prepared.tool.name} for {prepared.resource!r} was asked with another request before (effect {known.id}). "
        "Nothing was sent. Give a changed request a key of its own, or keep it the same.",
        effect=known.id,
    )


def _tell_conflict(hand: Hand, prepared: Prepared, effect_id: int, **more: str) -> None:
    hand.event(
        "effect_conflict",
        reason=f"{prepared.tool.name} for {prepared.resource!r}: the slot holds another request; nothing was sent.",
        data={"effect": effect_id, "tool": prepared.tool.name, "asked": prepared.request_hash, **more},
    )


def _intend(
    hand: Hand, fresh: dict[int, Prepared], results: list[Any], pending: dict[int, Pending], *, concurrency: int
) -> Logic[None]:
    """Commit the intents of calls that are not on record. A slot somebody else took in between answers instead."""
    if not fresh:
        return
    failpoints.reach(failpoints.Point.BEFORE_INTENT, hand.step.id)
    if next(iter(fresh.values())).tool.safety == "read":
        for n, prepared in fresh.items():
            pending[n] = Pending(prepared=prepared, effect_id=None, window_closes=None)
        return
    if next(iter(fresh.values())).tool.safety == "legacy":
        yield from _take_over(hand, fresh, (yield from legacy.queue(hand, fresh)), results, pending)
        return
    waves = math.ceil(len(fresh) / concurrency)
    intents = [_intent(hand, n, prepared, waves=waves) for n, prepared in fresh.items()]
    began, newest, lost_before = uptime(), hand.newest_effect, hand.answers_lost
    written = yield Commit(hand.write(intents=intents))
    if not written.may_send:
        check_may_go_on(hand)
    failpoints.reach(failpoints.Point.AFTER_INTENT, hand.step.id)
    made = dict(written.intents)
    if hand.answers_lost != lost_before:
        made |= yield from _made_all_the_same(hand, fresh, made, newest)
    yield from _take_over(hand, fresh, made, results, pending)
    for n, prepared in fresh.items():
        if prepared.slot in made:
            window, one = prepared.tool.key_window, pending[n]
            one.window_closes = None if window is None else began + window.total_seconds()
            one.send_before = began + prepared.tool.timeout * waves
            hand.under_way[made[prepared.slot]] = one


def _made_all_the_same(
    hand: Hand, fresh: dict[int, Prepared], made: dict[str, int], newest: int
) -> Logic[dict[str, int]]:
    """Intents that landed with a commit whose answer was lost: on record since this moment, and sent by nobody.

    Only what no other run can have made counts, and only what is newer than the effects this run had before.
    """
    hashes = {one.slot: one.request_hash for one in fresh.values() if one.slot not in made and one.tool.scope == "run"}
    known = (yield from load_slots(hand, list(hashes))) if hashes else {}
    return {
        slot: effect.id
        for slot, effect in known.items()
        if effect.state == "intended" and effect.id > newest and effect.request_hash == hashes[slot]
    }


def _take_over(
    hand: Hand, fresh: dict[int, Prepared], made: Mapping[str, int], results: list[Any], pending: dict[int, Pending]
) -> Logic[None]:
    """Take the effects that were made for these calls; a slot that somebody else took in between answers instead."""
    taken = [prepared.slot for prepared in fresh.values() if prepared.slot not in made]
    known = (yield from load_slots(hand, taken)) if taken else {}
    for n, prepared in fresh.items():
        if prepared.slot in made:
            pending[n] = Pending(prepared=prepared, effect_id=made[prepared.slot], window_closes=None)
        else:
            _answer(hand, n, prepared, known[prepared.slot], results, pending)


def _intent(hand: Hand, n: int, prepared: Prepared, *, waves: int) -> dict[str, Any]:
    tool = prepared.tool
    return {
        "n": n,
        **identity_of(hand, prepared),
        # The last wave of a batch is sent when all before it have taken as long as they may.
        "send_seconds": tool.timeout * waves,
        "quiet_seconds": tool.timeout * (waves + 1),
        "remind_seconds": tool.remind_after and tool.remind_after.total_seconds(),
        "escalate_seconds": tool.escalate_after and tool.escalate_after.total_seconds(),
        "window_seconds": None if tool.key_window is None else tool.key_window.total_seconds(),
    }


def _call_locally(hand: Hand, fresh: dict[int, Prepared], results: list[Any]) -> Logic[None]:
    for n, prepared in fresh.items():
        live = LiveCall(
            prepared,
            run_id=str(hand.run_id),
            tenant=hand.claimed.tenant,
            attempt=1,
            send_before=uptime() + prepared.tool.timeout,
            gone=lambda: stop_reason(hand) is not None,
        )
        identity = identity_of(hand, prepared)
        attempt = yield Local(partial(local.perform, hand, prepared, live, identity))
        if attempt.error is None:
            effect_id, results[n], reused = attempt.value
            hand.newest_effect = max(hand.newest_effect, effect_id)
            if reused:
                hand.reuse(effect_id)
        elif isinstance(attempt.error, DurableOpsError | ControlSignal):
            if isinstance(attempt.error, EffectConflict):
                _tell_conflict(hand, prepared, attempt.error.context["effect"])
            raise attempt.error
        else:
            results[n] = attempt.error
