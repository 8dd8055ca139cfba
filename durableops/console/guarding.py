"""What the guard found, as sentences of a dialog. What is found, and what the verb then does, is the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from durableops.console.actions import Meaning
from durableops.console.words import count_of, sentence
from durableops.engine.guard import Line, Plan

_ORDER = ("anew", "again", "doubt", "left", "undo", "task", "given_up", "unsent", "pending", "read", "shared", "reused",
          "settled")  # fmt: skip
_TEXTS: dict[str, str] = {
    "again": "{} of <b>{}</b> ({}): no outcome on record, sent again <b>with the old key</b>.",
    "doubt": "{} of <b>{}</b> ({}): may or may not have happened, and not sent again. The run waits for a person to"
    " settle it.",
    "left": "{} of <b>{}</b> ({}): no outcome on record, stays listed until somebody settles it.",
    "undo": "{} of <b>{}</b> ({}) can be undone by a tool.",
    "task": "{} of <b>{}</b> ({}) can be undone by a person who follows instructions.",
    "given_up": "{} of <b>{}</b> ({}): given up; the step is told so.",
    "unsent": "{} of <b>{}</b> ({}): never sent; sent when the step asks for it.",
    "pending": "{} of <b>{}</b> ({}): on its way as a message, delivered whatever becomes of the run.",
    "read": "{} of <b>{}</b> ({}): made again, and only reads.",
    "shared": "{} of <b>{}</b> ({}): shared by the whole tenant, answered from the record.",
    "reused": "{} of <b>{}</b> ({}): answered from the record and <b>not sent again</b>.",
    "settled": "{} of <b>{}</b> ({}): undone, or being undone, already.",
}
_ANEW: dict[str, str] = {
    "keyed": "{} of <b>{}</b> ({}): sent again <b>under a new key</b>; the other side cannot know that it did this"
    " before.",
    "legacy": "{} of <b>{}</b> ({}): sent again to a system that <b>deduplicates nothing</b>.",
    "outbox": "{} of <b>{}</b> ({}): a message that is <b>sent once more</b>, under a new key.",
    "local": "{} of <b>{}</b> ({}): changes our own database <b>once more</b>.",
}
_ICONS = {
    "anew": "triangle-alert", "again": "triangle-alert", "doubt": "circle-question-mark", "left": "triangle-alert",
    "undo": "rotate-ccw", "task": "user-check", "reused": "check", "shared": "check",
}  # fmt: skip


def meanings(plan: Plan) -> list[Meaning]:
    """A plan as lines, what may hurt first."""
    lines = sorted(plan.lines, key=lambda line: (_ORDER.index(line.category), line.tool))
    told = [_meaning(line) for line in lines] + [_waits(kind, number) for kind, number in sorted(plan.waits.items())]
    return told + [_cannot(why, number) for why, number in plan.cannot.items()]


def plan_of(kept: Mapping[str, Any]) -> Plan:
    """A plan that was kept as JSON."""
    lines = [Line(**{**line, "samples": tuple(line["samples"])}) for line in kept.get("calls", ())]
    return Plan(verb=kept.get("verb", ""), lines=lines, hash=kept.get("plan_hash", ""), waits=kept.get("waits", {}),
                cannot=kept.get("cannot", {}))  # fmt: skip


def _cannot(why: str, number: int) -> Meaning:
    return Meaning(icon="circle-slash", text=sentence("{}: refused; {}", count_of(number, "run"), why))


def _meaning(line: Line) -> Meaning:
    markup = _ANEW.get(line.safety, _ANEW["keyed"]) if line.category == "anew" else _TEXTS[line.category]
    text = sentence(markup, count_of(line.calls, "call"), line.tool, line.safety)
    if line.runs > 1:
        text = sentence("{} In {}.", text, count_of(line.runs, "run"))
    if line.samples:
        text = sentence('{} <span class="soft">{}</span>', text, _sampled(line.samples, line.calls))
    return Meaning(icon=_ICONS.get(line.category, "info"), text=text)


def _sampled(samples: Iterable[str], calls: int) -> str:
    shown = [sample if len(sample) <= 40 else sample[:39] + "…" for sample in samples]
    return ", ".join(shown) + (" …" if calls > len(shown) else "")


_WAITS = {
    "approval": ("{} asked again.", "approval is", "approvals are"),
    "event": ("{} again.", "event that had arrived answers", "events that had arrived answer"),
    "children": ("{} kept: what they did is not done again.", "group of child runs is", "groups of child runs are"),
}


def _waits(kind: str, number: int) -> Meaning:
    markup, one, many = _WAITS.get(kind, ("{} again.", f"{kind} wait begins", f"{kind} waits begin"))
    return Meaning(icon="clock", text=sentence(markup, count_of(number, one, many)))
