"""Template tags and filters of the console: icons, state chips, times, lengths. No queries, no rights."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from durableops.console import payloads, run_timeline, words
from durableops.console.effect_filter import EffectFilter
from durableops.console.filters import Condition, RunFilter
from durableops.masking import mask_text
from runs.models import Receipt

register = template.Library()


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of the sprite; the word beside it says what it means."""
    return format_html(
        '<svg class="icon" aria-hidden="true" focusable="false"><use href="{}#{}"/></svg>',
        static("vendor/lucide/sprite.svg"), name,
    )  # fmt: skip


@register.simple_tag
def chip(state: str) -> SafeString:
    """A state as a chip."""
    shown = words.state_word(state)
    return format_html('<span class="chip" data-state="{}">{}{}</span>', shown.key, icon(shown.icon), shown.word)


_UNDO = {"owed": ("warning", "hourglass"), "proposed": ("in_review", "user-check"), "approved": ("queued", "check"),
         "running": ("running", "play"), "failed": ("failed", "circle-x"), "done": ("succeeded", "circle-check"),
         "waived": ("", "circle-slash")}  # fmt: skip


@register.simple_tag
def undo_word(state: str) -> SafeString:
    """The state of a compensation in a table cell."""
    colour, shown = _UNDO.get(state, ("", "circle-dot"))
    return format_html('<span class="word" data-state="{}">{}{}</span>', colour, icon(shown), state)


_BULK = {"running": ("running", "play"), "paused": ("paused", "pause"), "done": ("succeeded", "circle-check"),
         "aborted": ("failed", "ban"), "preview": ("info", "search")}  # fmt: skip


@register.simple_tag
def bulk_chip(state: str) -> SafeString:
    """The state of a bulk action as a chip."""
    colour, shown = _BULK.get(state, ("", "circle-dot"))
    return format_html('<span class="chip" data-state="{}">{}{}</span>', colour, icon(shown), state)


@register.simple_tag
def state_word(state: str) -> SafeString:
    """A state in a table cell."""
    shown = words.state_word(state)
    return format_html('<span class="word" data-state="{}">{}{}</span>', shown.key, icon(shown.icon), shown.word)


@register.simple_tag
def when(at: datetime | None) -> SafeString | str:
    """An instant: short in the text, absolute with its zone in the title."""
    if at is None:
        return "–"
    return format_html(
        '<time datetime="{}" title="{}" class="nowrap">{}</time>',
        at.isoformat(),
        words.full_moment(at),
        words.moment(at),
    )


@register.filter
def span(seconds: float | None) -> str:
    return words.length(seconds)


@register.filter
def commas(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else "–"


@register.filter
def amount(number: Any) -> str:
    """What was spent, or may be: without the zeros behind it."""
    text = f"{Decimal(number):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@register.filter
def short_id(value: Any) -> str:
    """The part of a UUIDv7 that tells runs of one minute apart: its end."""
    return str(value)[-8:]


@register.filter
def masked(text: Any) -> str:
    """Running text without credentials."""
    return mask_text(str(text))


@register.filter
def size(number: int | None) -> str:
    """Bytes in words."""
    if number is None:
        return "–"
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{number} B"


@register.simple_tag
def took(start: datetime | None, end: datetime | None) -> str:
    """The time between two instants."""
    return words.length(words.seconds_between(start, end))


@register.simple_tag
def facts(text: str) -> SafeString:
    """The facts of an approval as a list of terms."""
    found = payloads.facts_of(text)
    if not found:
        return SafeString("")
    return format_html('<dl class="facts">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", found))


@register.simple_tag
def with_condition(asked: RunFilter, name: str, value: str) -> str:
    """The query string of the list with one more condition: any cell can become a filter."""
    return asked.with_text(str(Condition(name=name, value=value))).query


@register.simple_tag
def with_one(asked: EffectFilter, name: str, value: str) -> str:
    """The query string of the list of effects with one more condition."""
    return asked.with_one(name, value).query


@register.filter
def age(at: datetime) -> str:
    return words.short_length(words.seconds_between(at, timezone.now()))


@register.filter
def time_left(at: datetime) -> str:
    if at <= timezone.now():
        return "now due"
    return words.length(words.seconds_between(timezone.now(), at))


@register.filter
def short_time_left(at: datetime) -> str:
    """The same with one unit, for table cells."""
    return "now due" if at <= timezone.now() else words.short_length(words.seconds_between(timezone.now(), at))


@register.filter
def full_moment(at: datetime | None) -> str:
    return words.full_moment(at)


@register.filter
def spaced(text: Any) -> str:
    """A stored name as words."""
    return str(text).replace("_", " ")


@register.filter
def last_word(text: Any) -> str:
    """The class without its module."""
    return str(text).rsplit(".", 1)[-1]


@register.filter
def split_words(text: str) -> list[str]:
    return text.split()


@register.filter
def joined(values: Any) -> str:
    return ", ".join(str(value) for value in values) if isinstance(values, list) else str(values)


@register.filter
def at(mapping: Mapping[str, Any], key: str) -> Any:
    """One entry of a mapping, or nothing."""
    return mapping.get(key, "")


@register.filter
def attribute(thing: Any, name: str) -> Any:
    """One named figure of a value."""
    return getattr(thing, name, "")


@register.filter
def xy(number: float) -> str:
    """A coordinate; never localised, never with more digits than a screen has."""
    return f"{float(number):.1f}".rstrip("0").rstrip(".")


@register.filter
def plus(number: float, other: float) -> float:
    return float(number) + float(other)


@register.filter
def half(number: float) -> float:
    return float(number) / 2


@register.filter
def minus(number: float, other: float) -> float:
    return float(number) - float(other)


@register.filter
def cause_words(cause: str) -> str:
    return run_timeline.cause_words(cause)


@register.filter
def cause_state(cause: str) -> str:
    """Which colour a receipt's cause takes."""
    known = {"worker_lost": "failed", "step_timeout": "timed_out", "retry": "warning", "operator": "info"}
    return known.get(cause, "")


@register.filter
def clock_words(clock: str) -> str:
    """Which clock it was, in words."""
    known = {"call_timeout": "a call’s timeout", "step_timeout": "a step’s timeout", "wait_timeout": "a wait’s end",
             "run_deadline": "a run’s deadline", "queue_wait": "too long in the queue", "budget": "a budget",
             "doubt": "a doubt’s reminder"}  # fmt: skip
    return known.get(clock, spaced(clock))


@register.filter
def policy_words(on_timeout: str) -> str:
    """What happens when nobody answers, in words."""
    return words.POLICY.get(on_timeout, on_timeout)


@register.filter
def level_state(level: str) -> str:
    return {"error": "error", "critical": "error", "warning": "warning"}.get(level.lower(), "")


@register.filter
def receipt_sentence(receipt: Receipt) -> str:
    return run_timeline.receipt_sentence(receipt)
