"""Sending: rounds of attempts, repeats with their reason on record first, and what each attempt's outcome means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from durableops import failpoints
from durableops.checkpoints import codec
from durableops.checkpoints.failures import safe_text
from durableops.clock import monotonic, uptime
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared, summarize
from durableops.engine import admission, large_results, results
from durableops.engine.calling import LiveCall, is_timeout
from durableops.engine.checks import HandBack, check_may_go_on, stop_reason
from durableops.engine.hand import FLUSH_AFTER_SECONDS, Hand
from durableops.engine.ops import Attempt, Collect, Commit, Invoke, InvokeMany, Logic, Pause
from durableops.engine.questions import AskPerson
from durableops.engine.spent import BudgetSpent
from durableops.errors import (
    CallFailed,
    CallTimeout,
    ControlSignal,
    DurableOpsError,
    EffectInDoubt,
    NotSent,
    PayloadRefused,
    Refused,
    RetryLater,
    RunCancelled,
)
from durableops.limits.clocks import Clock, Firing, Phase
from durableops.masking import mask_text

MESSAGE_CHARACTERS = 2000
LONG_SECONDS = 3600.0


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
    send_before: float = math.inf
    """On `clock.uptime`, read before the intent was committed: after this somebody may have settled it."""
    maybe_sent: bool = False
    """Whether any attempt may have reached the other side."""
    in_flight: bool = False
    """Whether an attempt has begun and not answered."""
    error: BaseException | None = None
    value: Any = None
    live: LiveCall | None = None
    """The attempt that was made last."""
    large: str | None = None
    """A result that is to be kept as a file."""
    done: bool = False

    @property
    def certainly_unsent(self) -> bool:
        """See hand.UnderWay."""
        return not (self.maybe_sent or self.in_flight)

    @property
    def must_be_answered(self) -> bool:
        """See hand.UnderWay."""
        return self.in_flight and self.prepared.tool.safety == "legacy"


def send_all(hand: Hand, pending: dict[int, Pending], *, concurrency: int) -> Logic[None]:
    """Send in rounds: what failed and may be tried again goes out once more, with its old key, after a pause."""
    waiting = list(pending.values())
    admitted = len(waiting)
    while waiting:
        going, later = waiting[:admitted], waiting[admitted:]
        waves = math.ceil(len(going) / concurrency)
        yield from _commit_repeats(hand, [one for one in going if one.repeat_because], waves=waves)
        going = [one for one in going if not one.done]
        pause = yield from _one_round(hand, going, concurrency=concurrency)
        waiting = [one for one in going if not one.done] + later
        if waiting:
            _withdraw_if_stopped(hand, waiting)
            yield Pause(pause)
            _withdraw_if_stopped(hand, waiting)
            admitted = yield from _admit_again(hand, waiting)


def _admit_again(hand: Hand, waiting: list[Pending]) -> Logic[int]:
    """Repeats are calls as well: how many of them may go out now."""
    try:
        return (yield from admission.admit_calls(hand, waiting[0].prepared.tool, len(waiting)))
    except (HandBack, BudgetSpent) as reason:
        _withdraw_unsent(hand, waiting, reason)
        raise


def _one_round(hand: Hand, calls: list[Pending], *, concurrency: int) -> Logic[float]:
    """Make each call once and take the outcomes as they come. Returns the pause before the next round.

    A round that takes long commits what it has about once a second, so that a crash costs no more than that.
    """
    pause = 0.0
    # One call has nothing to commit before its answer: a thousand runs that wait for one are not woken each second.
    seconds = FLUSH_AFTER_SECONDS if len(calls) > 1 else LONG_SECONDS
    for one in calls:
        one.in_flight = True
    began, tool = monotonic(), calls[0].prepared.tool.name if calls else ""
    hand.on_the_wire = (tool, began, None)
    batch = yield InvokeMany([_invoke(hand, one) for one in calls], concurrency)
    try:
        while not batch.is_done:
            answered = yield Collect(batch, seconds)
            if answered:
                failpoints.reach(failpoints.Point.AFTER_ANSWER, hand.step.id, calls[answered[0][0]].prepared.resource)
            for n, attempt in answered:
                calls[n].in_flight = False
                pause = max(pause, _take(hand, calls[n], attempt) or 0.0)
                if (text := calls[n].large) is not None:
                    yield from large_results.keep(hand, calls[n].prepared.key, text)
                    _settle_result(hand, calls[n], None)
            if answered and not batch.is_done:
                yield Commit(hand.write())
    finally:
        hand.on_the_wire = (tool, began, monotonic())
        for n in batch.stop():
            calls[n].in_flight = False
    return pause


def _withdraw_if_stopped(hand: Hand, waiting: list[Pending]) -> None:
    """Leave if something stops the run; intents that were never sent are withdrawn, for they are in no doubt."""
    reason = stop_reason(hand)
    if reason is None:
        return
    _withdraw_unsent(hand, waiting, reason)
    raise reason


def _withdraw_unsent(hand: Hand, waiting: list[Pending], reason: ControlSignal) -> None:
    """Withdraw those that certainly never left."""
    for one in waiting:
        if one.effect_id is not None and not one.maybe_sent:
            _note(hand, one, state="withdrawn", error=NotSent(f"not sent: {reason}"))


def _invoke(hand: Hand, one: Pending) -> Invoke:
    one.attempt += 1
    entry = hand.entries
    live = one.live = LiveCall(
        one.prepared,
        run_id=str(hand.run_id),
        tenant=hand.claimed.tenant,
        attempt=one.attempt,
        send_before=one.send_before,
        gone=lambda: stop_reason(hand) is not None or hand.entries != entry,
    )
    return Invoke(one.prepared.tool, live, one.prepared.request)


def _commit_repeats(hand: Hand, repeats: list[Pending], *, waves: int) -> Logic[None]:
    """Before anything goes out a second time, the reason stands on the timeline and the count in its record."""
    known = [one for one in repeats if one.effect_id is not None]
    for one in known:
        if one.window_closes is not None and uptime() > one.window_closes:
            one.done, one.error = True, window_closed(hand, one.prepared, one.effect_id or 0)
    known = [one for one in known if not one.done]
    if not known:
        return
    unsent = [one.effect_id for one in known if not one.maybe_sent]
    sent = [one for one in known if one.maybe_sent]
    by_reason: dict[str, list[Pending]] = {}
    for one in sent:
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
    hand.repeat(len(sent))
    seconds = max(one.prepared.tool.timeout for one in known) * waves
    send_before = uptime() + seconds
    ids = [one.effect_id for one in known]
    written = yield Commit(hand.write(repeats=ids, unsent=unsent, repeat_seconds=seconds))
    if not written.may_send:
        check_may_go_on(hand)
    for one in known:
        one.repeat_because, one.send_before = "", send_before
        if one.effect_id not in written.repeats:
            # Somebody settled it while we were away: what they decided stands, and the step hears it from its top.
            raise HandBack("settled", f"effect {one.effect_id} was settled by somebody else")


def _take(hand: Hand, one: Pending, attempt: Attempt) -> float | None:
    """Take an attempt's outcome. Returns the pause before the next one, None when there will be none."""
    error = attempt.error
    if isinstance(error, ControlSignal):
        raise error
    if error is None:
        if attempt.elapsed > one.prepared.tool.timeout:
            # A plain function cannot be cut off. What it brought is a fact all the same, and taken.
            _note_timeout(hand, one, attempt, next_state="its late answer was taken")
        _take_result(hand, one, attempt.value)
        return None
    if isinstance(error, Refused):
        one.done, one.error = True, error
        _note(hand, one, state="refused", error=error)
        return None
    if one.prepared.tool.safety == "legacy" and not isinstance(error, NotSent):
        _take_doubt(hand, one, attempt, error)
        return None
    retry = one.prepared.tool.retry
    # A 429 is an answer too, but nobody promises that nothing was done before it was given.
    one.maybe_sent = one.maybe_sent or not isinstance(error, NotSent)
    timed_out = is_timeout(error)
    last = one.attempt >= retry.max_attempts or retry.gives_up_on(error)
    if timed_out:
        last = last or one.prepared.tool.on_timeout != "retry"
        if _follow_policy(hand, one, attempt, last=last):
            return None
    if last:
        one.done = True
        one.error = _gave_up(one, error)
        if isinstance(error, NotSent) and not one.maybe_sent:
            _note(hand, one, state="withdrawn", error=error)
        elif one.effect_id is not None:
            cause = "call_timeout" if timed_out else "call_failed"
            hand.give_up(one.effect_id, cause=cause, why=f"after {one.attempt} attempts: {_short(error)}")
        return None
    # What never left goes through the record too: it may be put on the wire later than its intent said.
    one.repeat_because = "call timeout" if timed_out else f"{type(error).__name__}: {_short(error)}"
    pause = retry.delay(one.attempt, hand.random)
    if isinstance(error, RetryLater):
        pause = max(pause, min(error.after_seconds, get_conf().call_retry_after_cap_seconds))
    return pause


def _follow_policy(hand: Hand, one: Pending, attempt: Attempt, *, last: bool) -> bool:
    """Note a call timeout and do what the tool's policy says. Returns whether the call is done with that."""
    tool = one.prepared.tool
    match tool.on_timeout:
        case "cancel":
            _note_timeout(hand, one, attempt, next_state="cancelled")
            raise RunCancelled(f"{tool.name} got no answer in time, and its policy is to cancel the run.")
        case "continue":
            _note_timeout(hand, one, attempt, next_state="went on with its default")
            _take_result(hand, one, tool.default)
            return True
        case "ask":
            raise AskPerson(_timeout(one, attempt, next_state="waiting"))
        case _:
            _note_timeout(hand, one, attempt, next_state="step fails" if last else "sent again")
            return False


def _take_doubt(hand: Hand, one: Pending, attempt: Attempt, error: BaseException) -> None:
    """The other side may have done it and would do it again: nobody but a person or a probe knows, and it stays so."""
    timed_out = is_timeout(error)
    if timed_out:
        _note_timeout(hand, one, attempt, next_state="in doubt")
    why = _short(error) if timed_out else f"{type(error).__name__}: {_short(error)}"
    cause = "call_timeout" if timed_out else "call_failed"
    hand.doubt(one.effect_id or 0, cause=cause, why=why, response=_response(one))
    if one.prepared.tool.probe is not None:
        hand.probeable.add(one.effect_id or 0)
    one.done, one.error = True, in_doubt(one.prepared, one.effect_id or 0)
    one.error.__cause__ = error


def _response(one: Pending) -> dict[str, Any] | None:
    """What a legacy system answered, for people: of other classes the result is enough."""
    return one.live.response if one.live is not None and one.prepared.tool.safety == "legacy" else None


def _take_result(hand: Hand, one: Pending, value: Any) -> None:
    one.done = True
    tool = one.prepared.tool
    conf = get_conf()
    most = conf.payload_max_bytes if tool.large_result == "refuse" else conf.large_result_max_bytes
    try:
        text = codec.dumps(value, what=f"result of {tool.name}", max_bytes=most)
    except PayloadRefused as refused:
        # It happened: the outcome is kept, so that no retry does it again; the step fails for what it returned.
        one.error = refused
        _note(hand, one, state="succeeded", error=refused)
        return
    one.value = codec.loads(text)
    text = results.stored(tool, text)
    if tool.large_result != "refuse" and len(text.encode()) > conf.payload_max_bytes:
        one.large = text
    else:
        _settle_result(hand, one, text)


def _settle_result(hand: Hand, one: Pending, text: str | None) -> None:
    """Note that it succeeded; its result is in the record, or in a file that the same commit names."""
    tool, value = one.prepared.tool, one.value
    found = value.get(tool.resource_id) if tool.resource_id and isinstance(value, dict) else None
    downstream = "" if found is None else str(found)[:255]
    if one.effect_id is None:
        _record_read(hand, one, state="succeeded", result=text)
    else:
        hand.settle(one.effect_id, state="succeeded", result=text, downstream_id=downstream, response=_response(one))


def _note(hand: Hand, one: Pending, *, state: str, error: DurableOpsError) -> None:
    facts = {"error_class": type(error).__name__, "error_message": _short(error)}
    if one.effect_id is None:
        _record_read(hand, one, state=state, result=None, **facts)
    else:
        hand.settle(one.effect_id, state=state, response=_response(one), **facts)


def _record_read(
    hand: Hand, one: Pending, *, state: str, result: str | None, error_class: str = "", error_message: str = ""
) -> None:
    if state == "withdrawn":
        return
    hand.record(
        {
            **identity_of(hand, one.prepared),
            "state": state,
            "result": result,
            "downstream_id": "",
            "error_class": error_class,
            "error_message": error_message,
            "attempts": one.attempt,
        }
    )


def _timeout(one: Pending, attempt: Attempt, *, next_state: str) -> Firing:
    tool = one.prepared.tool
    return Firing(
        clock=Clock.CALL_TIMEOUT,
        limit_seconds=tool.timeout,
        trigger=f"attempt {one.attempt} of {tool.name} for {one.prepared.resource!r} got no answer in time",
        elapsed_seconds=attempt.elapsed,
        phase=Phase.CALLING,
        next_state=next_state,
        whom=f"tool {tool.name}",
        more={"tool": tool.name, "effect": one.effect_id, "key": one.prepared.key},
    )


def _note_timeout(hand: Hand, one: Pending, attempt: Attempt, *, next_state: str) -> None:
    firing = _timeout(one, attempt, next_state=next_state)
    hand.event(
        "call_timeout",
        reason=f"{firing.trigger} within {one.prepared.tool.timeout:g} s; {next_state}.",
        data=firing.as_data(),
    )


def _gave_up(one: Pending, error: BaseException) -> DurableOpsError:
    tool = one.prepared.tool
    detail = f"{tool.name} for {one.prepared.resource!r} gave up after {one.attempt} attempts: {_short(error)}"
    gave_up = CallTimeout(detail) if is_timeout(error) else CallFailed(detail)
    gave_up.__cause__ = error
    return gave_up


def _short(error: BaseException) -> str:
    return safe_text(mask_text(str(error)), limit=MESSAGE_CHARACTERS) or type(error).__name__


def window_closed(hand: Hand, prepared: Prepared, effect_id: int) -> EffectInDoubt:
    """Note that a call without an outcome is past its key window, and return the error that says so."""
    why = "the other side no longer remembers its key, so sending it again could do it twice."
    hand.doubt(effect_id, cause="window_closed", why=why)
    if prepared.tool.probe is not None:
        hand.probeable.add(effect_id)
    return in_doubt(prepared, effect_id)


def in_doubt(prepared: Prepared, effect_id: int) -> EffectInDoubt:
    """The error of a call whose outcome nobody knows."""
    return EffectInDoubt(
        f"{prepared.tool.name} for {prepared.resource!r} may or may not have happened (effect {effect_id}); "
        "it waits to be settled.",
        effect=effect_id,
    )


def identity_of(hand: Hand, prepared: Prepared) -> dict[str, Any]:
    return {
        "slot": prepared.slot,
        "key": prepared.key,
        "request_hash": prepared.request_hash,
        "request_summary": summarize(prepared.request, secret=prepared.tool.secret),
        "step_id": hand.step.id,
        "tool": prepared.tool.name,
        "resource": prepared.resource,
        "author_key": prepared.author_key,
        "safety": prepared.tool.safety,
        "scope": prepared.tool.scope,
    }
