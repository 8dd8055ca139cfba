"""What is made of the cells: what the other side counted, what the API tells, and whether one explains the other. Pure.

A repeat is explained by an event that names the effect, a legacy call that may or may not have happened by its doubt.
Whatever nobody could see over the API has not been seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durableops.upkeep.drills.checks import Checks
from examples.five_classes.cells import DOUBTFUL, Cell, Moment, missing
from examples.five_classes.outside import Counted

MOST_TOLD = 5
IN_DOUBT = "effect_in_doubt"
EVENTS_SHOWN = ("lose_worker", "call_timeout", "effects_repeated", "effect_conflict", IN_DOUBT, "settle")
PROMISES = {
    "lost": "no_loss_unseen",
    "doubled": "no_duplicate_unseen",
    "repeated": "every_repeat_is_explained",
    "unknown": "intent_before_call",
    "doubted": "in_doubt_where_nobody_can_know",
    "unseen": "every_kill_is_on_the_timeline",
    "unplayed": "every_cell_was_played",
}
"""What can be wrong with a cell, and the check that says so."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the API tells of one run."""

    run: Mapping[str, Any]
    timeline: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]

    def of(self, cell: Cell) -> list[Mapping[str, Any]]:
        """The effects of a cell: those of its step; of its undoing, those for the same resources."""
        if cell.undoing:
            return [effect for effect in self.effects if effect["resource"] in cell.asked]
        return [effect for effect in self.effects if effect["step"] == cell.step]

    def about(self, cell: Cell) -> list[Mapping[str, Any]]:
        """What happened to a cell: in its step, or to its effects."""
        ids = {effect["id"] for effect in self.of(cell)}
        return [one for one in self.timeline if one["step"] == cell.step or ids & _named(one)]


def _named(happening: Mapping[str, Any]) -> set[int]:
    """The effects that an event names."""
    data = happening["data"]
    return {*data.get("effects", ()), *filter(None, [data.get("effect")])}


def row_of_report(cell: Cell, told: Told, seen: Counted, *, struck: Collection[Cell], precise: bool) -> dict[str, Any]:
    """One cell with what is known of it from both sides, and what is wrong with it.

    `precise`: nothing but the cell's own interruption may have hit it.
    """
    effects, texts = told.of(cell), [cell.text(resource) for resource in cell.asked]
    events = Counter(one["event"] for one in told.about(cell))
    problems = [*_interrupted(cell, told, events, struck), *_doubted(cell, events, precise=precise)]
    for resource in cell.asked:
        of_it = [effect for effect in effects if effect["resource"] == resource]
        problems += _compare(cell.text(resource), of_it, told, seen)
    return {
        "cell": str(cell),
        "class": cell.row.safety,
        "call": cell.row.way,
        "moment": cell.moment.value,
        "undoing": cell.undoing,
        "asked": len(texts),
        "requests": sum(seen.requests[text] for text in texts),
        "done": sum(seen.done[text] for text in texts),
        "states": dict(Counter(effect["state"] for effect in effects)),
        "run": told.run["state"],
        "events": {name: events[name] for name in EVENTS_SHOWN if events[name]},
        "wrong": [{"what": what, "said": said} for what, said in problems],
    }


def _interrupted(cell: Cell, told: Told, events: Counter[str], struck: Collection[Cell]) -> Iterator[tuple[str, str]]:
    if cell not in struck:
        if cell.is_interrupted:
            yield "unplayed", f"{cell} was never interrupted"
        return
    if cell.victim != "worker":
        return
    if cell.undoing or cell.moment is Moment.AFTER_CHECKPOINT:
        # One step undoes all, and after a checkpoint it is the next step's loss: there must be as many as kills.
        kills = sum((one.row, one.undoing, one.victim) == (cell.row, cell.undoing, "worker") for one in struck)
        losses = sum(one["event"] == "lose_worker" for one in told.timeline)
        if losses < kills:
            yield "unseen", f"{cell} is one of {kills} kills; {losses} are on the timeline of its run"
    elif not events["lose_worker"]:
        yield "unseen", f"{cell} was killed and nothing on its timeline says so"


def _doubted(cell: Cell, events: Counter[str], *, precise: bool) -> Iterator[tuple[str, str]]:
    wanted = cell.row.safety == "legacy" and cell.moment in DOUBTFUL
    if wanted and not events[IN_DOUBT]:
        yield "doubted", f"{cell} was never in doubt"
    if precise and not wanted and events[IN_DOUBT]:
        yield "doubted", f"{cell} was in doubt {events[IN_DOUBT]} times"


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
    if strangers := seen.keys[text] - {effect["downstream_key"]}:
        yield "unknown", f"{text!r} was sent with {len(strangers)} keys that are not on record"
    if effect["safety"] == "read":
        return  # it left nothing that could be repeated: it promises no more than an answer
    if seen.done[text] > 1:
        yield "doubled", f"{text!r} is there {seen.done[text]} times"
    explained = 1 + sum(_explains(one, effect["id"]) for one in told.timeline)
    if seen.requests[text] > explained:
        yield "repeated", f"{text!r} was sent {seen.requests[text]} times, of which {explained} are explained"


def _explains(happening: Mapping[str, Any], effect: int) -> bool:
    """Whether it says why the effect went out once more: again with its key, or because somebody knew it had not."""
    if effect not in _named(happening):
        return False
    return (happening["event"], happening["data"].get("as")) in (("effects_repeated", None), ("settle", "did_not"))


def check(rows: list[dict[str, Any]], checks: Checks) -> None:
    """A check for each promise, over all cells."""
    for what, name in PROMISES.items():
        wrong = [problem["said"] for row in rows for problem in row["wrong"] if problem["what"] == what]
        more = f"; and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        checks.add(name, not wrong, "; ".join(wrong[:MOST_TOLD]) + more or f"in all {len(rows)} cells")


def summary(rows: list[dict[str, Any]]) -> str:
    """The table in words."""
    lines = [f"{'cell':34} {'asked':>5} {'requests':>8} {'done':>4}  states; events"]
    for row in rows:
        states = ", ".join(f"{count} {state}" for state, count in row["states"].items()) or "nothing on record"
        events = ", ".join(f"{count} {name}" for name, count in row["events"].items())
        counts = f"{row['asked']:5} {row['requests']:8} {row['done']:4}"
        lines.append(f"{row['cell']:34} {counts}  {states}; {events or 'none'}{'  WRONG' if row['wrong'] else ''}")
    return "\n".join([*lines, *missing()])
