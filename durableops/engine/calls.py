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
from durableops.engine import admission, django_side, large_results, legacy, local, posting, probing, sharing
from durableops.engine.answers import Batch, tell_conflict
from durableops.engine.calling import LiveCall
from durableops.engine.checks import check_may_go_on, flush_if_stale, stop_reason
from durableops.engine.hand import Hand
from durableops.engine.ops import Commit, Local, Logic
from durableops.engine.records import ask_earlier_lineages, ensure_loaded, load_slots
from durableops.engine.sending import Pending, identity_of, send_all
from durableops.errors import (
    CallsFailed,
    ControlSignal,
    DuplicateName,
    DurableOpsError,
    EffectConflict,
    EffectInDoubt,
    Fatal,
    InputRefused,
    PayloadRefused,
)

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
    batch = Batch(hand=hand, results=[None] * len(items))
    asked = [_prepare(hand, tool, dict(item)) for item in items]
    yield from ask_earlier_lineages(hand, tool, [prepared.slot for prepared in asked])
    for n, prepared in enumerate(asked):
        _look_up(batch, n, prepared)
    if tool.safety == "local":
        yield from _call_locally(batch)
    else:
        yield from _ask_probes(batch)
        yield from _send(batch, tool, concurrency=concurrency)
    for n, one in batch.pending.items():
        batch.results[n] = one.value if one.error is None else one.error
    yield from large_results.read_all(hand, batch.results)
    return batch.results


def _look_up(batch: Batch, n: int, prepared: Prepared) -> None:
    hand, tool = batch.hand, prepared.tool
    try:
        hand.use("call", tool.name, prepared.resource, prepared.author_key, *_read_identity(prepared))
    except DuplicateName as twice:
        batch.results[n] = twice
        return
    known = hand.effects.get(prepared.slot)
    if known is not None and known.key != prepared.key and known.request_hash == prepared.request_hash:
        # Its step or tool was called something else then: the other side knows it by its first key.
        prepared = replace(prepared, key=known.key)
    batch.take(n, prepared, known)


def _ask_probes(batch: Batch) -> Logic[None]:
    """Have those in doubt settled by their tool's probe, where it knows."""
    if batch.doubted:
        for n, known in (yield from probing.ask(batch.hand, batch.doubted)).items():
            prepared, _ = batch.doubted.pop(n)
            batch.results[n] = None
            batch.take(n, prepared, known)


def _send(batch: Batch, tool: ToolDefinition, *, concurrency: int) -> Logic[None]:
    """Send what is ours to send, then wait for what other runs of the tenant are at; what they left is ours then."""
    while True:
        yield from _send_ours(batch, tool, concurrency=concurrency)
        if not batch.shared:
            return
        for n, known in (yield from sharing.look(batch.hand, batch.shared)).items():
            prepared, before = batch.shared.pop(n)
            batch.take(n, prepared, known, because=f"taken over from run {before.run_id}")


def _send_ours(batch: Batch, tool: ToolDefinition, *, concurrency: int) -> Logic[None]:
    """Send what is ours, in portions as the quota allows: all at once, where there is none."""
    waiting = sorted([*batch.fresh, *(n for n, one in batch.pending.items() if not one.done)])
    while waiting:
        admitted = yield from admission.admit_calls(batch.hand, tool, len(waiting))
        now, waiting = set(waiting[:admitted]), waiting[admitted:]
        held_back = {n: batch.fresh.pop(n) for n in list(batch.fresh) if n not in now}
        while batch.fresh:
            yield from _intend(batch, concurrency=concurrency)
        batch.fresh = held_back
        going = {n: one for n, one in batch.pending.items() if n in now and not one.done}
        if tool.safety == "legacy":
            _raise_doubt(batch)
            yield from legacy.send_in_turn(batch.hand, going)
        else:
            yield from send_all(batch.hand, going, concurrency=concurrency)
        if tool.scope == "tenant" and going:
            # Others may wait for it, and the step may take long.
            yield Commit(batch.hand.write())


def _raise_doubt(batch: Batch) -> None:
    """One in doubt holds the queue, or did: those behind it keep their places until somebody settles it."""
    for result in batch.results:
        if isinstance(result, EffectInDoubt):
            raise result


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


def _intend(batch: Batch, *, concurrency: int) -> Logic[None]:
    """Commit the intents of calls that are not on record. A slot somebody else took in between answers instead."""
    hand = batch.hand
    # In an order that all runs of the tenant share: two of them may ask for the same several things.
    fresh = dict(sorted(batch.fresh.items(), key=lambda item: item[1].slot if item[1].tool.scope == "tenant" else ""))
    batch.fresh = {}
    first = next(iter(fresh.values()))
    tool = first.tool
    failpoints.reach(failpoints.Point.BEFORE_INTENT, hand.step.id, first.resource)
    if tool.safety == "read":
        for n, prepared in fresh.items():
            batch.pending[n] = Pending(prepared=prepared, effect_id=None, window_closes=None)
        return
    if tool.safety == "legacy":
        yield from _take_over(batch, fresh, (yield from legacy.queue(hand, fresh)))
        return
    waves = math.ceil(len(fresh) / concurrency)
    intents = [_intent(hand, n, prepared, waves=waves) for n, prepared in enumerate(fresh.values())]
    began, newest, lost_before = uptime(), hand.newest_effect, hand.answers_lost
    written = yield Commit(hand.write(intents=intents))
    if not written.may_send:
        check_may_go_on(hand)
    failpoints.reach(failpoints.Point.AFTER_INTENT, hand.step.id, first.resource)
    made = dict(written.intents)
    if hand.answers_lost != lost_before:
        made |= yield from _made_all_the_same(hand, fresh, made, newest)
    yield from _take_over(batch, fresh, made)
    for n, prepared in fresh.items():
        if prepared.slot in made:
            window, one = tool.key_window, batch.pending[n]
            one.window_closes = None if window is None else began + window.total_seconds()
            one.send_before = began + tool.timeout * waves
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


def _take_over(batch: Batch, fresh: dict[int, Prepared], made: Mapping[str, int]) -> Logic[None]:
    """Take the effects that were made for these calls; a slot that somebody else took in between answers instead."""
    taken = [prepared.slot for prepared in fresh.values() if prepared.slot not in made]
    known = (yield from load_slots(batch.hand, taken)) if taken else {}
    for n, prepared in fresh.items():
        if prepared.slot not in made:
            batch.take(n, prepared, known[prepared.slot])
            continue
        batch.pending[n] = Pending(prepared=prepared, effect_id=made[prepared.slot], window_closes=None)
        if prepared.tool.scope == "tenant":
            batch.hand.shared.add(made[prepared.slot])


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


def _call_locally(batch: Batch) -> Logic[None]:
    hand = batch.hand
    for n, prepared in batch.fresh.items():
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
            effect_id, batch.results[n], reused = attempt.value
            hand.newest_effect = max(hand.newest_effect, effect_id)
            if reused:
                hand.reuse(effect_id)
        elif isinstance(attempt.error, DurableOpsError | ControlSignal):
            if isinstance(attempt.error, EffectConflict):
                tell_conflict(hand, prepared, attempt.error.context["effect"])
            raise attempt.error
        else:
            batch.results[n] = attempt.error
