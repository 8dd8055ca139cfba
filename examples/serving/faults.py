"""Misbehaviour on request: which fault strikes which request, and requests that are held until released."""

from __future__ import annotations

import fnmatch
import math
import threading
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from examples.serving.messages import BadRequest

Kind = Literal["delay", "timeout", "drop", "limit", "error", "refuse", "slow", "hold"]
When = Literal["before", "after"]

USUAL_MOMENT: dict[Kind, When] = {
    "delay": "before",
    "timeout": "after",
    "drop": "after",
    "limit": "before",
    "error": "before",
    "refuse": "before",
    "slow": "after",
    "hold": "after",
}
"""Whether a fault strikes before or after the work is done, unless the request for the fault says otherwise.
After is the interesting one: the work was done, and the sender does not hear of it."""

USUAL_SECONDS: dict[Kind, float] = {"timeout": 30.0, "hold": 600.0}
MAX_SECONDS = 3600.0


class Arrival(Protocol):
    """A request, as far as faults choose by it."""

    @property
    def key(self) -> str:
        """The key it came with; empty if none."""

    @property
    def title(self) -> str:
        """What a person would call it."""


@dataclass(frozen=True, kw_only=True)
class FaultRequest:
    """The body of `POST /faults`, checked."""

    kind: Kind
    """delay waits `seconds`; so does timeout, and then, if it strikes before the work, hangs up with nothing done; drop
    closes the connection unanswered; limit answers 429 with `Retry-After`; error answers 500; refuse answers 422; slow
    sends the answer byte by byte over `seconds`; hold waits until released."""
    when: When
    seconds: float
    retry_after: float
    key: str
    """Strike only this key; empty matches every key."""
    title: str
    """Strike only titles that match this shell pattern (`*` matches all)."""
    nth: int
    """The first matching request to strike, counted from 1 after the fault was set."""
    count: int
    """How many matching requests to strike from there on."""


@dataclass(kw_only=True)
class Fault:
    """A fault that is set, and what it has struck so far."""

    id: int
    wanted: FaultRequest
    matched: int = 0
    struck_keys: list[str] = field(default_factory=list)
    holding: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def refuses(self) -> bool:
        """True if the request is turned away with nothing done, its key free for the next try."""
        return self.wanted.when == "before" and self.wanted.kind in ("drop", "timeout", "limit", "error", "refuse")

    def as_json(self) -> dict[str, Any]:
        """What `GET /faults` shows."""
        return {
            "id": self.id,
            "kind": self.wanted.kind,
            "when": self.wanted.when,
            "matched": self.matched,
            "fired": len(self.struck_keys),
            "keys": list(self.struck_keys),
            "holding": self.holding,
            "released": self.released.is_set(),
        }


def read_fault(fields: Any) -> FaultRequest:
    """Check the body of `POST /faults`. Raises BadRequest."""
    if not isinstance(fields, dict):
        raise BadRequest('the body is not an object; wanted {"kind": "timeout", …}')
    kinds: tuple[Kind, ...] = get_args(Kind)
    kind = fields.get("kind")
    if kind not in kinds:
        raise BadRequest(f"kind is {kind!r}; wanted one of {', '.join(kinds)}")
    unknown = set(fields) - set(FaultRequest.__dataclass_fields__)
    if unknown:
        raise BadRequest(f"unknown fields: {', '.join(sorted(unknown))}")
    when = fields.get("when", USUAL_MOMENT[kind])
    if when not in get_args(When):
        raise BadRequest(f"when is {when!r}; wanted before or after")
    if (kind, when) == ("refuse", "after"):
        raise BadRequest("a refusal after the work would be a lie; wanted before")
    return FaultRequest(
        kind=kind,
        when=when,
        seconds=_number(fields, "seconds", USUAL_SECONDS.get(kind, 1.0)),
        retry_after=_number(fields, "retry_after", 1.0),
        key=_pattern(fields, "key", ""),
        title=_pattern(fields, "title", "*"),
        nth=_count(fields, "nth"),
        count=_count(fields, "count"),
    )


def _number(fields: dict[str, Any], name: str, default: float) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRequest(f"{name} is {value!r}; wanted seconds")
    if not 0 <= value <= MAX_SECONDS:
        raise BadRequest(f"{name} is {value}; wanted 0 to {MAX_SECONDS:.0f}")
    return float(value)


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{name} is {value!r}; wanted a whole number from 1")
    return value


def _pattern(fields: dict[str, Any], name: str, default: str) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise BadRequest(f"{name} is {value!r}; wanted a text")
    return value


class FaultBook:
    """The faults that are set; the oldest that matches strikes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[int, Fault] = {}
        self._next_id = 1

    def add(self, wanted: FaultRequest) -> Fault:
        """Set a fault."""
        with self._lock:
            fault = Fault(id=self._next_id, wanted=wanted)
            self._next_id += 1
            self._faults[fault.id] = fault
            return fault

    def strike(self, arrival: Arrival) -> Fault | None:
        """The fault that strikes this request, if any; every fault that matches it counts it."""
        with self._lock:
            struck: Fault | None = None
            for fault in self._faults.values():
                if not _matches(fault.wanted, arrival):
                    continue
                fault.matched += 1
                due = fault.matched >= fault.wanted.nth and len(fault.struck_keys) < fault.wanted.count
                if due and struck is None and not fault.released.is_set():
                    fault.struck_keys.append(arrival.key)
                    struck = fault
            return struck

    def hold(self, fault: Fault) -> None:
        """Wait until the fault is released (or its seconds have passed)."""
        with self._lock:
            fault.holding += 1
        fault.released.wait(fault.wanted.seconds)
        with self._lock:
            fault.holding -= 1

    def release(self, fault_id: int) -> Fault | None:
        """Let go of what a fault holds or delays; it strikes no more. None if there is no such fault."""
        fault = self._faults.get(fault_id)
        if fault is not None:
            fault.released.set()
        return fault

    def release_all(self) -> None:
        """Let go of everything and forget it."""
        with self._lock:
            faults, self._faults = list(self._faults.values()), {}
        for fault in faults:
            fault.released.set()

    def as_json(self) -> list[dict[str, Any]]:
        """All faults, oldest first."""
        with self._lock:
            return [fault.as_json() for fault in self._faults.values()]


def _matches(wanted: FaultRequest, arrival: Arrival) -> bool:
    if wanted.key and wanted.key != arrival.key:
        return False
    return wanted.title == "*" or fnmatch.fnmatchcase(arrival.title, wanted.title)
