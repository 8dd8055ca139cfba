"""What is made of the cells: what the other side counted, what the API tells, and whether one explains the other. Pure.

A repeat is explained by an event that names the effect, a loss by an effect that says so, a doubt by itself. Whatever
nobody could see over the API has not been seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durableops.upkeep.drills.checks import Checks
from examples.five_classes.cells import NO_SUCH_MOMENT, Cell, Row
from examples.five_classes.outside import Counted

MOST_TOLD = 5
EVENTS_SHOWN = ("lose_worker", "call_timeout", "effects_repeated", "effect_conflict", "effect_in_doubt")
PROMISES = {
    "lost": "no_loss_unseen",
    "doubled": "no_duplicate_unseen",
    "repeated": "every_repeat_is_explained",
    "unknown": "intent_before_call",
    "unplayed": "every_cell_was_played",
}
"""What can be wrong with a cell, and the check that says so."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the API tells of one run."""

    run: Mapping[str, Any]
    timeline: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]


def rows_of_report(told: Mapping[Row, Told], seen: Counted) -> list[dict[str, Any]]:
    """Every cell with what is known of it from both sides, and what is wrong with it."""
    return [row_of_report(cell, of_run, seen) for row, of_run in told.items() for cell in row.cells]


def row_of_report(cell: Cell, told: Told, seen: Counted) -> dict[str, Any]:
    """One cell."""
    effects = [effect for effect in told.effects if effect["step"] == cell.step]
    events = Counter(one["event"] for one in told.timeline if one["step"] == cell.step)
    return {
        "cell": str(cell),
        "class": cell.row.safety,
        "call": cell.row.way,
        "moment": cell.moment.value,
        "asked": len(cell.asked),
        "requests": sum(seen.requests[text] for text in cell.asked),
        "done": sum(seen.done[text] for text in cell.asked),
        "states": dict(Counter(effect["state"] for effect in effects)),
        "run": told.run["state"],
        "events": {name: events[name] for name in EVENTS_SHOWN if events[name]},
        "wrong": [{"what": what, "said": said} for what, said in _problems(cell, told, effects, events, seen)],
    }


def _problems(
    cell: Cell, told: Told, effects: list[Mapping[str, Any]], events: Counter[str], seen: Counted
) -> Iterator[tuple[str, str]]:
    interruption = "lose_worker" if cell.is_killed else "call_timeout"
    if not events[interruption]:
        yield "unplayed", f"{cell} has no {interruption!r} on its timeline"
    for text in cell.asked:
        if cell.row.safety != "read" and seen.done[text] > 1:
            yield "doubled", f"{text!r} is there {seen.done[text]} times"
        yield from _compare(text, [one for one in effects if one["resource"] == text], told, seen)


def _compare(text: str, effects: list[Mapping[str, Any]], told: Told, seen: Counted) -> Iterator[tuple[str, str]]:
    """One thing that was asked for: the other side's count against our record of it."""
    if len(effects) != 1:
        yield "lost", f"{text!r} has {len(effects)} effects on record; the other side did it {seen.done[text]} times"
        return
    [effect] = effects
    if effect["state"] == "succeeded" and not seen.done[text]:
        yield "lost", f"{text!r} succeeded by our record and never reached the other side"
    if effect["state"] != "succeeded":
        yield "lost", f"{text!r} is {effect['state']}; the other side did it {seen.done[text]} times"
    strangers = seen.keys[text] - {effect["downstream_key"]}
    if strangers:
        yield "unknown", f"{text!r} was sent with {len(strangers)} keys that are not on record"
    # A read that was interrupted left nothing that could be repeated: it promises no more than an answer.
    explained = 1 + sum(effect["id"] in one["data"].get("effects", ()) for one in _repeats(told))
    if effect["safety"] != "read" and seen.requests[text] > explained:
        yield "repeated", f"{text!r} was sent {seen.requests[text]} times, of which {explained} are explained"


def _repeats(told: Told) -> Iterator[Mapping[str, Any]]:
    return (one for one in told.timeline if one["event"] == "effects_repeated")


def check(rows: list[dict[str, Any]], checks: Checks) -> None:
    """A check for each promise, over all cells."""
    for what, name in PROMISES.items():
        wrong = [problem["said"] for row in rows for problem in row["wrong"] if problem["what"] == what]
        more = f"; and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        checks.add(name, not wrong, "; ".join(wrong[:MOST_TOLD]) + more or f"in all {len(rows)} cells")


def summary(rows: list[dict[str, Any]]) -> str:
    """The table in words."""
    lines = [f"{'cell':28} {'asked':>5} {'requests':>8} {'done':>4}  states; events"]
    for row in rows:
        states = ", ".join(f"{count} {state}" for state, count in row["states"].items()) or "nothing on record"
        events = ", ".join(f"{count} {name}" for name, count in row["events"].items())
        counts = f"{row['asked']:5} {row['requests']:8} {row['done']:4}"
        lines.append(f"{row['cell']:28} {counts}  {states}; {events or 'none'}{'  WRONG' if row['wrong'] else ''}")
    lines += [f"{safety:5} {moment}: {why}" for (safety, moment), why in NO_SUCH_MOMENT.items()]
    return "\n".join(lines)
