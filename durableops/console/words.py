"""Lengths, instants and states in words and icons, the same in every view. Sentences about runs live in `story`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.states import State

ICONS: dict[str, str] = {
    State.QUEUED: "circle-dashed",
    State.RUNNING: "play",
    State.WAITING: "clock",
    State.IN_DOUBT: "circle-question-mark",
    State.IN_REVIEW: "file-search",
    State.SUCCEEDED: "circle-check",
    State.FAILED: "circle-x",
    State.CANCELLED: "ban",
    State.TIMED_OUT: "timer-off",
    State.EXHAUSTED: "battery-low",
    "paused": "pause",
}


POLICY = {
    "cancel": "the run is cancelled",
    "fail": "the run times out",
    "continue": "the step goes on without an answer",
    "raise": "the step is told and decides",
    "extend": "it waits once more as long",
    "ask": "a person is asked",
    "asked": "a person was asked",
}
"""What a wait's clock does."""


@dataclass(frozen=True, kw_only=True)
class StateWord:
    """A state as it is drawn: never by colour alone."""

    key: str
    word: str
    icon: str


def state_word(state: str) -> StateWord:
    """The icon and word of a state; an unknown one is shown as it is stored."""
    return StateWord(key=state, word=state.replace("_", " "), icon=ICONS.get(state, "circle-dot"))


def length(seconds: float | None) -> str:
    """A span of time with at most two units: 0.35 s, 1 min 20 s, 2 d 21 h."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    total = round(seconds)
    for size, unit, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            rest = total % size // small_size
            return f"{total // size} {unit} {rest} {small}" if rest else f"{total // size} {unit}"
    return f"{total} s"


def short_length(seconds: float | None) -> str:
    """The same with one unit, for table cells."""
    if seconds is None:
        return "–"
    whole = length(seconds).split(" ")
    return " ".join(whole[:2])


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds from start to end, never negative: two clocks may disagree by a little."""
    if start is None or end is None:
        return None
    return max(0.0, (end - start).total_seconds())


def moment(at: datetime | None, *, now: datetime | None = None) -> str:
    """An instant in the person's zone: the time today, else the day with the time."""
    if at is None:
        return "–"
    local, today = timezone.localtime(at), timezone.localtime(now or timezone.now())
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    if local.year == today.year or abs(at - (now or timezone.now())) < timedelta(days=180):
        return f"{local.day} {local:%b, %H:%M}"
    return f"{local.day} {local:%b %Y, %H:%M}"


def full_moment(at: datetime | None) -> str:
    """An instant with its date, milliseconds and zone, for titles."""
    if at is None:
        return ""
    local = timezone.localtime(at)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {local.tzname()}"


def count_of(number: int, one: str, many: str = "") -> str:
    """1 call, 3,376 calls."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sentence(markup: str, *values: object) -> SafeString:
    """A sentence of ours, marked up, with values escaped into its places."""
    return format_html(markup, *values) if values else SafeString(markup)
