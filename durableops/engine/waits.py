"""The logic of waits: found by name and key, answered once, suspended on otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from pydantic import ValidationError

from durableops.authoring import asking, forms
from durableops.authoring.definitions import ToolDefinition
from durableops.authoring.policies import OnTimeout
from durableops.checkpoints import codec
from durableops.checkpoints.failures import safe_text
from durableops.conf import get_conf
from durableops.engine import calls
from durableops.engine.checks import check_may_go_on, flush_if_stale
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.known import KnownWait
from durableops.engine.ops import Ask, Compute, Logic
from durableops.engine.questions import PREFIX
from durableops.engine.records import ensure_loaded
from durableops.engine.suspending import Suspend as Suspend
from durableops.engine.suspending import not_too_long
from durableops.engine.suspending import wait_row as wait_row
from durableops.errors import Fatal, InputRefused, RunCancelled, WaitTimeout
from durableops.masking import mask, mask_text

ON_TIMEOUT = get_args(OnTimeout)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a person decided."""

    approved: bool
    by: str
    comment: str = ""
    choice: str = ""
    values: Any = None


class Expired(RunCancelled):
    """A wait's clock ended the run, by its policy."""

    def __init__(self, detail: str, *, policy: str) -> None:
        super().__init__(detail)
        self.policy = policy


def wait_for(
    hand: Hand, kind: str, name: str, *, correlation: str, key: str, timeout: timedelta | None, on_timeout: str,
    default: Any, look_back: timedelta,
) -> Logic[Any]:  # fmt: skip
    """Wait for an event (or a file) and return its payload."""
    known = yield from known_wait(hand, kind, name, key, on_timeout)
    if known is not None:
        if known.state != "open":
            return answered(kind, name, known, default)
        raise Suspend(wait_row(kind, name, key), again=True)
    if correlation:
        _checked(correlation, "correlation")
    raise Suspend(
        wait_row(
            kind, name, key, correlation=correlation, expires=timeout, on_timeout=on_timeout,
            since=(hand.claimed.created_at - look_back).isoformat(),
        )
    )  # fmt: skip


def approval(
    hand: Hand, name: str, *, key: str, question: str, facts: Mapping[str, Any] | None, timeout: timedelta | None,
    on_timeout: str, default: Any, on_refusal: str, form: forms.Form | None, **how: Any,
) -> Logic[Any]:  # fmt: skip
    """Ask a person. A refusal ends the run as cancelled unless on_refusal is "return"."""
    if on_refusal not in ("cancel", "return"):
        raise Fatal(f"on_refusal is {on_refusal!r}; give 'cancel' or 'return'.")
    if name.startswith(PREFIX):
        raise Fatal(f"approval {name!r} begins with {PREFIX!r}, which is what clocks ask for; choose another name.")
    known = yield from known_wait(hand, "approval", name, key, on_timeout)
    if known is None or known.state == "open":
        row = _question(name, question, facts, asking.terms(form=form, **how))
        row = wait_row("approval", name, key, expires=timeout, on_timeout=on_timeout) | row
        if known is not None and known.facts_hash == row["facts_hash"]:
            raise Suspend(row, again=True)
        if known is not None:
            hand.event("facts_changed", reason=f"approval {name!r} is asked with other facts than before.")
        raise Suspend(row)
    if known.state == "expired":
        return answered("approval", name, known, default)
    answer = _decided(name, known, form)
    if not answer.approved and on_refusal == "cancel":
        raise Expired(f"approval {name!r} was refused by {answer.by}: {answer.comment}", policy="cancel")
    return answer


def _question(name: str, question: str, facts: Mapping[str, Any] | None, terms: asking.Terms) -> dict[str, Any]:
    """What a person is asked: the question, the facts, the choices and the form, under one hash."""
    question = safe_text(mask_text(question))
    limit = get_conf().payload_max_bytes
    codec.canonical(dict(facts or {}), what="facts", max_bytes=limit)
    # A person decides about what is stored, so what is stored is what is shown.
    text = codec.canonical(mask(dict(facts or {})), what="facts", max_bytes=limit)
    shown = f"{question}:{text}"
    if not terms.is_plain:
        shown += codec.canonical([terms.choices, terms.fields], what="choices and form", max_bytes=limit)
    return {
        "question": question,
        "facts": text,
        "facts_hash": codec.hash_hex(shown),
        "terms": {**asdict(terms), "name": name},
    }


def _decided(name: str, known: KnownWait, form: forms.Form | None) -> Answer:
    found = codec.loads(known.answer or "{}")
    approved, values = bool(found.get("approved")), found.get("values")
    if form is not None and approved:
        try:
            read = forms.model_of(form).model_validate_json(codec.dumps(values or {}, what="what was filled in"))
        except ValidationError as problem:
            wrong = problem.errors(include_url=False, include_input=False)[0]
            where = "/".join(str(part) for part in wrong["loc"])
            raise Fatal(
                f"what {known.answered_by} filled in for approval {name!r} does not fit its form any more: "
                f"{where}: {wrong['msg']}. Ask again under a key of its own."
            ) from None
        values = read if isinstance(form, type) else read.model_dump()
    return Answer(
        approved=approved, by=known.answered_by, comment=found.get("comment", ""), values=values,
        choice=found.get("choice", "approve" if approved else "refuse"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReceivedFile:
    """The file that somebody brought; `run.open_artifact(name, content_hash=…)` opens it."""

    name: str
    file_name: str
    content_type: str
    content_hash: str
    size_bytes: int
    by: str


def wait_for_file(
    hand: Hand, name: str, *, key: str = "", question: str = "", accept: Iterable[str] = (),
    max_bytes: int | None = None, data_class: str = "input", readers: str = "payloads",
    timeout: timedelta | None = None, on_timeout: str = "raise", default: Any = None,
) -> Logic[Any]:  # fmt: skip
    """Wait until a person brings a file, and return what is known of it."""
    known = yield from known_wait(hand, "file", name, key, on_timeout)
    if known is None:
        asked = _file_wanted(accept, max_bytes, data_class, readers)
        text = codec.canonical(asked, what="what is wanted of the file")
        question = safe_text(mask_text(question))
        raise Suspend(
            wait_row("file", name, key, expires=timeout, on_timeout=on_timeout, question=question, facts=text,
                     facts_hash=codec.hash_hex(f"{question}:{text}"))
        )  # fmt: skip
    if known.state == "open":
        raise Suspend(wait_row("file", name, key), again=True)
    if known.state != "answered":
        return answered("file", name, known, default)
    return ReceivedFile(**codec.loads(known.answer or "{}"), by=known.answered_by)


def _file_wanted(accept: Iterable[str], max_bytes: int | None, data_class: str, readers: str) -> dict[str, Any]:
    kinds = [accept] if isinstance(accept, str) else list(accept)
    if not all(isinstance(one, str) and (one.startswith(".") or "/" in one) for one in kinds):
        raise Fatal(f"accept is {kinds!r}; give endings such as '.csv' and types such as 'image/*'.")
    most = get_conf().large_result_max_bytes
    if max_bytes is not None and not (type(max_bytes) is int and 0 < max_bytes <= most):
        raise Fatal(f"max_bytes is {max_bytes!r}; give a whole number from 1 to {most:,}.")
    if data_class not in ("input", "temp_file"):
        raise Fatal(f"data_class is {data_class!r}; a file that is brought is 'input' or 'temp_file'.")
    if readers not in ("payloads", "members"):
        raise Fatal(f"readers is {readers!r}; give 'payloads' or 'members'.")
    wanted = {"accept": [one.lower() for one in kinds], "data_class": data_class, "readers": readers}
    return wanted | ({"max_bytes": max_bytes} if max_bytes is not None else {})


def sleep(hand: Hand, seconds: float | timedelta, *, key: str) -> Logic[None]:
    """Sleep for a while, counted from when the wait was first recorded."""
    length = seconds if isinstance(seconds, timedelta) else _seconds(seconds)
    if length < timedelta(0):
        raise Fatal(f"a sleep of {length} was asked for; give zero or more.")
    known = yield from known_wait(hand, "time", "sleep", key, "continue")
    _sleep_on(known, "sleep", key, length)


def sleep_until(hand: Hand, when: datetime, *, key: str) -> Logic[None]:
    """Sleep until an instant; one that has passed goes on at once."""
    if when.tzinfo is None:
        raise Fatal(f"sleep_until got {when!r} without a time zone; give an aware datetime.")
    known = yield from known_wait(hand, "time", "sleep_until", key, "continue")
    # How far away the instant is, the database says: a worker's own clock may be minutes off (C067).
    left = timedelta(0) if known is not None else when - (yield Ask(_database_now))
    _sleep_on(known, "sleep_until", key, left)


def _database_now(database: Database) -> datetime:
    found: datetime = database.read("SELECT clock_timestamp()")[0][0]
    return found


def _sleep_on(known: KnownWait | None, name: str, key: str, length: timedelta) -> None:
    if known is None and length > timedelta(0):
        raise Suspend(wait_row("time", name, key, due=not_too_long(length), on_timeout="continue"))
    if known is not None and known.state == "open" and not known.due:
        raise Suspend(wait_row("time", name, key), again=True)


def poll(
    hand: Hand, tool: ToolDefinition, *, every: timedelta, until: Callable[[Any], Any], timeout: timedelta | None,
    on_timeout: str, default: Any, resource: str, key: str, request: Mapping[str, Any],
) -> Logic[Any]:  # fmt: skip
    """Take turns until one satisfies; each turn is a record of its own and the worker is free between them."""
    if every <= timedelta(0):
        raise Fatal(f"poll of {tool.name} has every={every}; give more than zero.")
    if tool.safety == "outbox":
        raise Fatal(f"{tool.name} is `outbox`: it answers with a receipt, so there is nothing to poll for.")
    known = yield from known_wait(hand, "poll", tool.name, key, on_timeout)
    if known is not None and known.state == "expired":
        return answered("poll", tool.name, known, default)
    turns = known.turns if known is not None else 0
    row = wait_row("poll", tool.name, key, due=every, expires=timeout, on_timeout=on_timeout, turns=turns)
    if known is not None and not known.due:
        raise Suspend(row, again=True)
    result = yield from calls.call(hand, tool, resource=resource, key=f"{key}#{turns + 1}", request=request)
    satisfied = yield Compute(until, (result,))
    if not satisfied:
        raise Suspend(row | {"turns": turns + 1})
    return result


def known_wait(hand: Hand, kind: str, name: str, key: str, on_timeout: str) -> Logic[KnownWait | None]:
    check_may_go_on(hand)
    yield from flush_if_stale(hand)
    _checked(name, "name of a wait")
    if key:
        _checked(key, "key of a wait")
    if on_timeout not in ON_TIMEOUT:
        raise Fatal(f"on_timeout is {on_timeout!r}; give one of {', '.join(ON_TIMEOUT)}.")
    hand.use(kind, name, key)
    yield from ensure_loaded(hand)
    return hand.waits.get((kind, name, key))


def answered(kind: str, name: str, known: KnownWait, default: Any) -> Any:
    """What a wait that has ended means to its step: the answer, or what its clock's policy says."""
    if known.state == "answered":
        return codec.loads(known.answer or "null", what=f"answer of {name!r}")
    detail = f"{kind} {name!r} ended without an answer ({known.state})."
    if known.on_timeout == "continue":
        return default
    if known.on_timeout not in ("cancel", "fail"):
        raise WaitTimeout(detail, wait=known.id)
    raise Expired(detail, policy=known.on_timeout)


def _checked(text: str, what: str) -> None:
    try:
        codec.check_key(text, what=what)
    except InputRefused as refused:
        raise Fatal(refused.detail) from None


def _seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Fatal(f"a sleep of {value!r} seconds was asked for; give a finite number of seconds.") from None
