"""What a person may decide about a compensation just now, and why not. The verbs are the engine's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from durableops.access import VERBS
from durableops.console.access import WHO, Access
from durableops.engine import compensating
from durableops.engine.acting import Done
from runs.models import Compensation


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One thing that may be decided."""

    name: str
    label: str
    means: str
    """What it does, in a sentence."""
    do: Callable[..., Done]
    fits: Callable[[Compensation], bool]
    asks_evidence: bool = False
    needs_reason: bool = True
    danger: bool = False


def _by_hand(one: Compensation) -> bool:
    return one.state in compensating.BY_HAND and not _being_called(one)


def _being_called(one: Compensation) -> bool:
    return one.how == "tool" and one.state == "running"


CHOICES: dict[str, Choice] = {
    choice.name: choice
    for choice in (
        Choice(name="approve", label="Agree", do=compensating.approve, needs_reason=False,
               fits=lambda one: one.state == "proposed",
               means="You are the second pair of eyes: what the first person proposed or did counts."),
        Choice(name="send-back", label="Send back", do=compensating.send_back,
               fits=lambda one: one.state == "proposed" and bool(one.evidence),
               means="What was given as proof is none: it is to be done again, or proved otherwise."),
        Choice(name="done", label="It is undone", do=compensating.report_done, asks_evidence=True, needs_reason=False,
               fits=_by_hand, means="You have undone it by hand, and say what proves it."),
        Choice(name="retry", label="Try again", do=compensating.try_again, fits=lambda one: one.state == "failed",
               means="The tool is called once more."),
        Choice(name="waive", label="Waive", do=compensating.waive, danger=True,
               fits=lambda one: not one.is_final and not _being_called(one),
               means="It stays as it is, for good. The next one may go on."),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A choice that fits, and why this person may not take it; empty if they may."""

    choice: Choice
    why_not: str


def offers(one: Compensation, access: Access) -> list[Offer]:
    """What fits the compensation as it is."""
    verb = "decide_compensation"
    lacks = "" if access.may_verb(verb, one.tenant_id) else f"needs {WHO[VERBS[verb]]} of {one.tenant.slug}"
    return [
        Offer(choice=choice, why_not=lacks or _not_this_person(choice, one, access))
        for choice in CHOICES.values()
        if choice.fits(one)
    ]


def _not_this_person(choice: Choice, one: Compensation, access: Access) -> str:
    if choice.name == "approve" and one.proposed_by == access.actor:
        return "needs another person: you proposed it"
    return ""
