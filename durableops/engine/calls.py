"""The logic of effects: intent before call, recorded results instead of second calls, old keys for repeats.

What a crash re-sends: a `keyed` call whose intent was committed and whose result was not; it goes out again with the
same key. A lone call costs two commits (intent, then its result with the checkpoint); in a loop result n travels with
intent n + 1; `call_many` commits all intents at once and all results with the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from durableops import failpoints
from durableops.authoring.definitions import ToolDefinition
from durableops.checkpoints import codec
from durableops.checkpoints.failures import safe_text
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared, prepare, summarize
from durableops.engine import local
from durableops.engine.calling import LiveCall
from durableops.engine.checks import check_may_go_on, flush_if_stale, stop_reason
from durableops.engine.hand import Hand, KnownEffect
from durableops.engine.ops import Attempt, Commit, Invoke, InvokeMany, Local, Logic, Pause
from durableops.engine.records import ensure_loaded, load_slots
from durableops.errors import (
    CallFailed,
    CallsFailed,
    CallTimeout,
    ControlSignal,
    DuplicateName,
    DurableOpsError,
    EffectConflict,
    EffectInDoubt,
    InputRefused,
    NotSent,
    PayloadRefused,
    Refused,
    RetryLater,
)
from durableops.limits.clocks import Clock, Firing, Phase

TIMEOUTS = (TimeoutError, httpx.TimeoutException, CallTimeout)
MESSAGE_CHARACTERS = 2000


@dataclass(kw_only=True)
class Pending:
    """A call on its way to an outcome."""

    prepared: Prepared
    effect_id: int | None
    """None for `read`: nothing is on record before it answers."""
    window_closes: float | None
    attempt: int = 0
    repeat_because: str = ""
    """Why the next sending is not the first."""
    maybe_sent: bool = False
    """Whether any attempt may have reached the other side."""
    error: BaseException | None = None
    value: Any = None
    done: bool = False


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
        raise ValueError(f"on_error is {on_error!r}; give 'raise' or 'return'.")
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
    yield from flush_if_stale(hand)
    yield from ensure_loaded(hand)
    results: list[Any] = [None] * len(items)
    fresh: dict[int, Prepared] = {}
    pending: dict[int, Pending] = {}
    for n, item in enumerate(items):
        prepared = _prepare(hand, tool, dict(item))
        try:
            hand.use("call", tool.name, prepared.resource, prepared.author_key, *_read_identity(prepared))
        except DuplicateName as twice:
            results[n] = twice
            continue
        known = hand.effects.get(prepared.slot)
        if known is None or known.state == "withdrawn":
            fresh[n] = prepared
        else:
            _answer(hand, n, prepared, known, results, pending)
    if tool.safety == "local":
        yield from _call_locally(hand, fresh, results)
    else:
        yield from _intend(hand, fresh, results, pending)
        yield from _send_all(hand, pending, concurrency=concurrency)
    for n, one in pending.items():
        results[n] = one.value if one.error is None else one.error
    return results


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
    elif hand.in_page and known.id <= hand.effects_through and prepared.tool.safety != "read":
        results[n] = DuplicateName(
            f"{prepared.tool.name} was called for {prepared.resource!r} on an earlier page; give this one its own key.",
            effect=known.id,
        )
    elif known.state == "succeeded" and known.error_class:
        results[n] = PayloadRefused(known.error_message)
    elif known.state == "succeeded":
        hand.reuse(known.id)
        results[n] = codec.loads(known.result or "null", what=f"result of {prepared.tool.name}")
    elif known.state == "refused":
        hand.reuse(known.id)
        results[n] = Refused(known.error_message)
    elif known.state == "in_doubt" or (known.window_closes is not None and monotonic() > known.window_closes):
        results[n] = _doubt(hand, prepared, known)
    else:
        pending[n] = Pending(
            prepared=prepared,
            effect_id=known.id,
            window_closes=known.window_closes,
            attempt=known.attempts,
            maybe_sent=True,
            repeat_because=hand.claimed.wake_cause or "interrupted",
        )


def _conflict(hand: Hand, prepared: Prepared, known: KnownEffect) -> EffectConflict:
    hand.event(
        "effect_conflict",
        reason=f"{prepared.tool.name} for {prepared.resource!r}: the slot holds another request; nothing was sent.",
        data={
            "effect": known.id,
            "tool": prepared.tool.name,
            "recorded": known.request_hash,
            "asked": prepared.request_hash,
        },
    )
    return EffectConflict(
        f"{prepared.tool.name} for {prepared.resource!r} was asked with another request before (effect {known.id}). "
        "Nothing was sent. Give a changed request a key of its own, or keep it the same.",
        effect=known.id,
    )


def _doubt(hand: Hand, prepared: Prepared, known: KnownEffect) -> EffectInDoubt:
    if known.state != "in_doubt":
        hand.settle(known.id, state="in_doubt")
        hand.event(
            "effect_in_doubt",
            reason=f"{prepared.tool.name} for {prepared.resource!r}: its outcome is unknown and the other side no "
            "longer remembers the key, so sending again could do it twice.",
            data={"effect": known.id, "tool": prepared.tool.name, "key": known.key},
        )
    return EffectInDoubt(
        f"{prepared.tool.name} for {prepared.resource!r} may or may not have happened (effect {known.id}); "
        "it waits to be settled.",
        effect=known.id,
    )


def _intend(hand: Hand, fresh: dict[int, Prepared], results: list[Any], pending: dict[int, Pending]) -> Logic[None]:
    """Commit the intents of calls that are not on record. A slot somebody else took in between answers instead."""
    if not fresh:
        return
    if next(iter(fresh.values())).tool.safety == "read":
        for n, prepared in fresh.items():
            pending[n] = Pending(prepared=prepared, effect_id=None, window_closes=None)
        return
    failpoints.reach(failpoints.Point.BEFORE_INTENT)
    intents = [_intent(hand, n, prepared) for n, prepared in fresh.items()]
    began = monotonic()
    written = yield Commit(hand.write(intents=intents))
    if not written.may_send:
        check_may_go_on(hand)
    failpoints.reach(failpoints.Point.AFTER_INTENT)
    taken = [prepared.slot for prepared in fresh.values() if prepared.slot not in written.intents]
    known = (yield from load_slots(hand, taken)) if taken else {}
    for n, prepared in fresh.items():
        effect_id = written.intents.get(prepared.slot)
        if effect_id is None:
            _answer(hand, n, prepared, known[prepared.slot], results, pending)
            continue
        window = prepared.tool.key_window
        pending[n] = Pending(
            prepared=prepared,
            effect_id=effect_id,
            window_closes=None if window is None else began + window.total_seconds(),
        )


def _intent(hand: Hand, n: int, prepared: Prepared) -> dict[str, Any]:
    tool = prepared.tool
    return {
        "n": n,
        **_identity(hand, prepared),
        "send_seconds": tool.timeout,
        "window_seconds": None if tool.key_window is None else tool.key_window.total_seconds(),
    }


def _identity(hand: Hand, prepared: Prepared) -> dict[str, Any]:
    return {
        "slot": prepared.slot,
        "key": prepared.key,
        "request_hash": prepared.request_hash,
        "request_summary": summarize(prepared.request),
        "step_id": hand.step.id,
        "tool": prepared.tool.name,
        "resource": prepared.resource,
        "author_key": prepared.author_key,
        "safety": prepared.tool.safety,
        "scope": prepared.tool.scope,
    }


def _send_all(hand: Hand, pending: dict[int, Pending], *, concurrency: int) -> Logic[None]:
    """Send in rounds: what failed and may be tried again goes out once more, with its old key, after a pause."""
    waiting = list(pending.values())
    while waiting:
        began = monotonic()
        yield from _commit_repeats(hand, [one for one in waiting if one.repeat_because])
        open_ = [one for one in waiting if not one.done]
        attempts = yield InvokeMany([_invoke(hand, one, began) for one in open_], concurrency)
        failpoints.reach(failpoints.Point.AFTER_ANSWER)
        pauses = [_take(hand, one, attempt) for one, attempt in zip(open_, attempts, strict=True)]
        waiting = [one for one in open_ if not one.done]
        if waiting:
            yield Pause(max(pause for pause in pauses if pause is not None))
            check_may_go_on(hand)


def _invoke(hand: Hand, one: Pending, began: float) -> Invoke:
    one.attempt += 1
    live = LiveCall(
        one.prepared,
        run_id=str(hand.run_id),
        tenant=hand.claimed.tenant,
        attempt=one.attempt,
        send_before=began + one.prepared.tool.timeout,
        gone=lambda: stop_reason(hand) is not None,
    )
    return Invoke(one.prepared.tool, live, one.prepared.request)


def _commit_repeats(hand: Hand, repeats: list[Pending]) -> Logic[None]:
    """Before anything goes out a second time, the reason stands on the timeline and the count in its record."""
    known = [one for one in repeats if one.effect_id is not None]
    for one in known:
        if one.window_closes is not None and monotonic() > one.window_closes:
            one.done, one.error = True, _closed_window(hand, one)
    known = [one for one in known if not one.done]
    if not known:
        return
    by_reason: dict[str, list[Pending]] = {}
    for one in known:
        by_reason.setdefault(one.repeat_because, []).append(one)
    for reason, ones in by_reason.items():
        hand.event(
            "effects_repeated",
            reason=f"{len(ones)} calls of {ones[0].prepared.tool.name} go out again with their old keys: {reason}.",
            data={
                "cause": reason,
                "effects": [one.effect_id for one in ones],
                "keys": [one.prepared.key for one in ones],
            },
        )
    hand.repeat(len(known))
    seconds = max(one.prepared.tool.timeout for one in known)
    written = yield Commit(hand.write(repeats=[one.effect_id for one in known], repeat_seconds=seconds))
    if not written.may_send:
        check_may_go_on(hand)
    for one in known:
        one.repeat_because = ""
        if one.effect_id not in written.repeats:
            # Somebody settled it while we were away: what they decided stands, and nothing is sent.
            one.done = True
            one.error = EffectInDoubt(f"effect {one.effect_id} was settled by somebody else; enter the step again.")


def _closed_window(hand: Hand, one: Pending) -> EffectInDoubt:
    known = KnownEffect(
        id=one.effect_id or 0, slot=one.prepared.slot, key=one.prepared.key, request_hash=one.prepared.request_hash,
        state="intended", attempts=one.attempt, result=None, error_class="", error_message="", window_closes=None,
        fence=hand.fence,
    )  # fmt: skip
    return _doubt(hand, one.prepared, known)


def _take(hand: Hand, one: Pending, attempt: Attempt) -> float | None:
    """Take an attempt's outcome. Returns the pause before the next one, None when there will be none."""
    error = attempt.error
    if isinstance(error, ControlSignal):
        raise error
    if error is None:
        _take_result(hand, one, attempt.value)
        return None
    if isinstance(error, Refused):
        one.done, one.error = True, error
        _note(hand, one, state="refused", error=error)
        return None
    retry = one.prepared.tool.retry
    # A 429 is an answer too, but nobody promises that nothing was done before it was given.
    one.maybe_sent = one.maybe_sent or not isinstance(error, NotSent)
    timed_out = isinstance(error, TIMEOUTS)
    last = one.attempt >= retry.max_attempts or retry.gives_up_on(error)
    if timed_out:
        _note_timeout(hand, one, attempt, next_state="step fails" if last else "sent again")
    if last:
        one.done = True
        one.error = _gave_up(one, error)
        if isinstance(error, NotSent) and not one.maybe_sent:
            _note(hand, one, state="withdrawn", error=error)
        return None
    if not isinstance(error, NotSent):
        one.repeat_because = "call timeout" if timed_out else f"{type(error).__name__}: {_short(error)}"
    pause = retry.delay(one.attempt, hand.random)
    if isinstance(error, RetryLater):
        pause = max(pause, min(error.after_seconds, get_conf().call_retry_after_cap_seconds))
    return pause


def _take_result(hand: Hand, one: Pending, value: Any) -> None:
    one.done = True
    tool = one.prepared.tool
    try:
        text = codec.dumps(value, what=f"result of {tool.name}", max_bytes=get_conf().payload_max_bytes)
    except PayloadRefused as refused:
        # It happened: the outcome is kept, so that no retry does it again; the step fails for what it returned.
        one.error = refused
        _note(hand, one, state="succeeded", error=refused)
        return
    one.value = codec.loads(text)
    found = value.get(tool.resource_id) if tool.resource_id and isinstance(value, dict) else None
    downstream = "" if found is None else str(found)[:255]
    if one.effect_id is None:
        _record_read(hand, one, state="succeeded", result=text)
    else:
        hand.settle(one.effect_id, state="succeeded", result=text, downstream_id=downstream)


def _note(hand: Hand, one: Pending, *, state: str, error: DurableOpsError) -> None:
    facts = {"error_class": type(error).__name__, "error_message": _short(error)}
    if one.effect_id is None:
        _record_read(hand, one, state=state, result=None, **facts)
    else:
        hand.settle(one.effect_id, state=state, **facts)


def _record_read(
    hand: Hand, one: Pending, *, state: str, result: str | None, error_class: str = "", error_message: str = ""
) -> None:
    if state == "withdrawn":
        return
    hand.record(
        {
            **_identity(hand, one.prepared),
            "state": state,
            "result": result,
            "downstream_id": "",
            "error_class": error_class,
            "error_message": error_message,
            "attempts": one.attempt,
        }
    )


def _note_timeout(hand: Hand, one: Pending, attempt: Attempt, *, next_state: str) -> None:
    tool = one.prepared.tool
    firing = Firing(
        clock=Clock.CALL_TIMEOUT,
        limit_seconds=tool.timeout,
        trigger=f"attempt {one.attempt} of {tool.name} for {one.prepared.resource!r} got no answer",
        elapsed_seconds=attempt.elapsed,
        phase=Phase.CALLING,
        next_state=next_state,
    )
    hand.event(
        "call_timeout",
        reason=f"{firing.trigger} within {tool.timeout:g} s; {next_state}.",
        data={**firing.as_data(), "tool": tool.name, "effect": one.effect_id, "key": one.prepared.key},
    )


def _gave_up(one: Pending, error: BaseException) -> DurableOpsError:
    tool = one.prepared.tool
    detail = f"{tool.name} for {one.prepared.resource!r} gave up after {one.attempt} attempts: {_short(error)}"
    gave_up = CallTimeout(detail) if isinstance(error, TIMEOUTS) else CallFailed(detail)
    gave_up.__cause__ = error
    return gave_up


def _short(error: BaseException) -> str:
    return safe_text(str(error), limit=MESSAGE_CHARACTERS) or type(error).__name__


def _call_locally(hand: Hand, fresh: dict[int, Prepared], results: list[Any]) -> Logic[None]:
    for n, prepared in fresh.items():
        live = LiveCall(
            prepared,
            run_id=str(hand.run_id),
            tenant=hand.claimed.tenant,
            attempt=1,
            send_before=monotonic() + prepared.tool.timeout,
            gone=lambda: stop_reason(hand) is not None,
        )
        identity = _identity(hand, prepared)
        attempt = yield Local(partial(local.perform, hand, prepared, live, identity))
        if attempt.error is None:
            effect_id, results[n], reused = attempt.value
            hand.newest_effect = max(hand.newest_effect, effect_id)
            if reused:
                hand.reuse(effect_id)
        elif isinstance(attempt.error, DurableOpsError | ControlSignal):
            raise attempt.error
        else:
            results[n] = attempt.error
