"""What may be said of a doubt just now, what each answer would do, and why one is not offered: before it is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection

from durableops.authoring import registry
from durableops.engine import guard
from durableops.engine.compensation.ways import known_or_by_hand
from durableops.engine.guard import Line, Plan
from durableops.engine.sender import whether_quiet, whether_unsendable
from runs.models import Doubt, IdempotencyRecord, Run
from runs.states import TERMINAL, State

LABELS = {
    "happened": "It happened",
    "did_not": "It did not happen",
    "compensate": "Have it undone",
    "give_up": "Give up",
    "release": "Let the queue go on",
}
COUNT_CAP = 1000


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One thing that may be said or done about an open doubt."""

    how: str
    label: str
    why_not: str
    """Why it is not offered just now; empty when it is."""
    means: tuple[str, ...]
    """What it would do, in sentences."""
    plan: Plan
    """What it would do, as the guard tells it of every verb."""

    @property
    def is_offered(self) -> bool:
        return not self.why_not

    def as_json(self) -> dict[str, Any]:
        return {
            "how": self.how, "label": self.label, "why_not": self.why_not, "means": list(self.means),
            "calls": [line.as_json() for line in self.plan.lines], "harmless": self.plan.is_harmless,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Choices:
    """All of them, and the hash of the facts they were worked out from."""

    offered: tuple[Choice, ...]
    plan_hash: str

    def of(self, how: str) -> Choice | None:
        return next((choice for choice in self.offered if choice.how == how), None)

    def as_json(self) -> dict[str, Any]:
        return {"verb": "settle", "plan_hash": self.plan_hash, "choices": [choice.as_json() for choice in self.offered]}


def choices(doubt: Doubt, run: Run) -> Choices:
    """Work them out from the record as it is. Only what is still open has any."""
    effect = doubt.effect
    found: list[Choice] = []
    if doubt.settled_at is None:
        with connection.cursor() as cursor:
            late = {"did_not": whether_quiet(cursor, effect)}
            may_be_sent = whether_unsendable(cursor, doubt)
        goes_on = _goes_on(doubt, run)
        for how, means in (
            ("happened", _happened(effect)), ("did_not", _did_not(effect, run)), ("compensate", _compensate(effect)),
            ("give_up", _give_up(run)),
        ):  # fmt: skip
            busy = late.get(how) or may_be_sent
            why_not = f"{busy[0].upper()}{busy[1:]}." if busy else ""
            lines = (*means, *_queue(effect), *goes_on)
            found.append(Choice(how=how, label=LABELS[how], why_not=why_not, means=lines, plan=plan(doubt, run, how)))
        if effect.holds_system:
            nothing = Plan(verb="release", lines=(), hash=plan_hash(doubt, run))
            found.append(
                Choice(how="release", label=LABELS["release"], why_not="", means=_release(effect), plan=nothing)
            )
    return Choices(offered=tuple(found), plan_hash=plan_hash(doubt, run))


def plan(doubt: Doubt, run: Run, how: str) -> Plan:
    """The guard's plan of settling a doubt like this."""
    effect = doubt.effect
    match how:
        case "happened":
            category = "reused"
        case "did_not":
            category = "unsent" if run.state in TERMINAL or run.cancel_requested else "again"
        case "compensate":
            category = "undo" if known_or_by_hand(effect.tool).how == "tool" else "task"
        case _:
            category = "given_up"
    line = Line(category=category, tool=effect.tool, safety=effect.safety, calls=1, runs=1, samples=(effect.resource,))
    return Plan(verb="settle", lines=(line,), hash=plan_hash(doubt, run))


def plan_hash(doubt: Doubt, run: Run) -> str:
    """Of the facts that decide what an answer would do: one for all answers, since they are shown together."""
    effect = doubt.effect
    return guard.hash_of(
        "settle",
        [doubt.pk, doubt.settled_as, effect.state, effect.holds_system, run.state in TERMINAL, run.cancel_requested],
    )


def check(doubt: Doubt, run: Run, how: str, given: str | None) -> None:
    """Raise PlanChanged when what somebody was shown is not what would be done now. See `guard.check`."""
    if given is not None:
        shown = choices(doubt, run).as_json()
        guard.insist(plan(doubt, run, how), given, run_id=run.pk, state=run.state, shown=shown)


def _happened(effect: IdempotencyRecord) -> tuple[str, ...]:
    tool = registry.tool(effect.tool)
    lines = ["Nothing is sent. The step gets the result you give, as if the call had just returned it."]
    if tool is not None and tool.resource_id:
        lines.append(f"Without a result, the step gets an object of just the id, as {tool.resource_id!r}.")
    return tuple(lines)


def _did_not(effect: IdempotencyRecord, run: Run) -> tuple[str, ...]:
    if run.state in TERMINAL or run.cancel_requested:
        return ("Nothing is sent: its run has ended. If the run is retried, it is sent then, with the same key.",)
    if effect.safety == "legacy":
        return (f"It is sent again, once: it takes a new place at the end of the queue of {effect.system}.",)
    return (f"It is sent again with the same key, {effect.key[:12]}…, when its step asks for it.",)


def _compensate(effect: IdempotencyRecord) -> tuple[str, ...]:
    way = known_or_by_hand(effect.tool)
    how = f"by {way.tool}" if way.how == "tool" else "by a person, with instructions"
    return (
        f"It is listed as owed, to be undone {how}, whether it happened or not.",
        "The step hears EffectGivenUp, an error it may handle.",
    )


def _give_up(run: Run) -> tuple[str, ...]:
    if run.state in TERMINAL:
        return ("Nobody is asked any more. It may have happened, and is never sent again.",)
    return (
        "It may have happened, and is never sent again.",
        "The step hears EffectGivenUp, an error it may handle; if it does not, the run fails.",
    )


def _queue(effect: IdempotencyRecord) -> tuple[str, ...]:
    if not effect.holds_system:
        return ()
    behind = IdempotencyRecord.objects.filter(system=effect.system, state="queued", safety="legacy")[:COUNT_CAP].count()
    more = "+" if behind == COUNT_CAP else ""
    return (f"The queue of {effect.system} goes on: {behind}{more} {'call waits' if behind == 1 else 'calls wait'}.",)


def _release(effect: IdempotencyRecord) -> tuple[str, ...]:
    return (*_queue(effect), "This doubt stays open. What comes next may meet what this call is still doing there.")


def _goes_on(doubt: Doubt, run: Run) -> tuple[str, ...]:
    if run.state in TERMINAL:
        return (f"Its run has ended ({run.state.replace('_', ' ')}): only the record changes.",)
    others = Doubt.objects.filter(run=run, settled_at=None).exclude(pk=doubt.pk)[:COUNT_CAP].count()
    if run.state == State.IN_DOUBT and others:
        many = f"{others} more of it {'is' if others == 1 else 'are'} in doubt"
        return (f"{many}: the run goes on once nothing of its present step is.",)
    if run.state == State.IN_DOUBT:
        return ("Its run goes on." if not run.paused else f"Its run may go on; {run.paused_by} has paused it.",)
    return (f"Its run is {run.state} and finds the answer when it asks.",)
