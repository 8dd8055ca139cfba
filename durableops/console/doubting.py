"""What the page of one doubt shows, and what this person may do about it just now. The verbs are the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from durableops.access import VERBS
from durableops.authoring import registry
from durableops.conf import get_conf
from durableops.console import guarding, payloads
from durableops.console.access import WHO, Access
from durableops.console.actions import Meaning
from durableops.engine import choices, sender
from durableops.engine.guard import Plan
from durableops.engine.settlements import HOW as SETTLEMENTS
from durableops.engine.settlements import WORDS
from runs.models import Doubt, IdempotencyRecord, RunEvent
from runs.states import State

SHOWN_EVENTS = 50
SEARCHED_EVENTS = 2000
EARLIER_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One thing that may be said or done about a doubt."""

    name: str
    """In addresses."""
    how: str
    """As the engine's choices name it."""
    label: str
    button: str
    """What the button in its dialog says."""
    verb: str = "settle"
    """Whose permission it needs."""
    asks_id: bool = False
    asks_evidence: bool = False
    needs_reason: bool = True
    danger: bool = False


ASKS: dict[str, Ask] = {
    ask.name: ask
    for ask in (
        Ask(name="happened", how="happened", label="It happened", button="It happened", asks_id=True,
            asks_evidence=True),
        Ask(name="did-not", how="did_not", label="It did not happen", button="It did not: send it again",
            asks_evidence=True),
        Ask(name="compensate", how="compensate", label="Have it undone", button="Have it undone", asks_id=True,
            asks_evidence=True, danger=True),
        Ask(name="give-up", how="give_up", label="Give up", button="Give up finding out", danger=True),
        Ask(name="release", how="release", label="Let the queue go on", button="Let the queue go on",
            verb="release_system", danger=True),
        Ask(name="probe", how="probe", label="Ask its probe now", button="Ask its probe now", verb="probe_doubt",
            needs_reason=False),
    )
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One of them as it is just now: what it would do, and why this person cannot have it."""

    ask: Ask
    means: Sequence[str]
    again: Sequence[Meaning]
    """What goes out again by it."""
    why_not: str
    """Empty when it may be done."""
    possible_at: datetime | None = None
    """From when on it can be done although it cannot yet."""


@dataclass(frozen=True, kw_only=True)
class Offers:
    """All of them, and the hash of the facts they were worked out from."""

    all: Sequence[Offer]
    plan_hash: str

    def of(self, name: str) -> Offer | None:
        return next((offer for offer in self.all if offer.ask.name == name), None)


def offers(doubt: Doubt, access: Access) -> Offers:
    """What may be said of the doubt as it is; nothing of a settled one."""
    found = choices.choices(doubt, doubt.run)
    made = []
    for ask in ASKS.values():
        choice = _probing(doubt) if ask.how == "probe" else found.of(ask.how)
        if choice is None:
            continue
        lacks = "" if access.may_verb(ask.verb, doubt.tenant_id) else _lacks(ask.verb, doubt)
        late = ask.how in SETTLEMENTS and not choice.is_offered
        made.append(
            Offer(ask=ask, means=choice.means, again=[] if choice.plan.is_harmless else guarding.meanings(choice.plan),
                  why_not=lacks or choice.why_not,
                  possible_at=sender.possible_at(doubt, ask.how) if late else None)
        )  # fmt: skip
    return Offers(all=made, plan_hash=found.plan_hash)


def _lacks(verb: str, doubt: Doubt) -> str:
    return f"It needs {WHO[VERBS[verb]]} of {doubt.tenant.slug}."


def _probing(doubt: Doubt) -> choices.Choice | None:
    """Asking the probe ahead of its time, where there is one and only the run's own step can ask it."""
    if doubt.settled_at is not None or not offers_probe(doubt):
        return None
    why_not = ""
    if doubt.run.state != State.IN_DOUBT:
        why_not = f"Its run is {doubt.run.state.replace('_', ' ')}: a probe is asked by the step of a run in doubt."
    elif doubt.probe_at is None:
        why_not = "Nobody has asked it so far: its step does, when it is entered next."
    means = ["The step of its run asks the other side at once. A probe only reads, and sends nothing again."]
    if doubt.run.paused:
        means.append(f"{doubt.run.paused_by} has paused the run: it is asked when the run is resumed.")
    nothing = Plan(verb="probe", lines=(), hash="")
    return choices.Choice(how="probe", label=ASKS["probe"].label, why_not=why_not, means=tuple(means), plan=nothing)


def offers_probe(doubt: Doubt) -> bool:
    """Whether its tool has a probe, as far as this process or the record knows."""
    tool = registry.tool(doubt.effect.tool)
    return bool(doubt.probe_at or doubt.probe_attempts or (tool is not None and tool.probe is not None))


def page(doubt: Doubt, access: Access) -> dict[str, Any]:
    """Everything the page shows of it, in few reads."""
    effect, sight, conf = doubt.effect, access.sees_payloads(doubt.tenant_id), get_conf()
    tool = registry.tool(effect.tool)
    with connection.cursor() as cursor:
        sent_by = sender.sender_of(cursor, effect)
    return {
        "doubt": doubt, "effect": effect, "run": doubt.run, "sender": sent_by, "offers": offers(doubt, access),
        "may_claim": doubt.settled_at is None and access.may_verb("claim_doubt", doubt.tenant_id),
        "quiet_at": sender.quiet_at(effect), "timeout": tool.timeout if tool is not None else None,
        "remind_at": doubt.since + _seconds(effect.remind_seconds, conf.doubt_remind_seconds),
        "escalate_at": doubt.since + _seconds(effect.escalate_seconds, conf.doubt_escalate_seconds),
        "asked": payloads.show("request", effect.request_summary or None, sight=sight),
        "answered": payloads.show("response", effect.response_summary or None, sight=sight),
        "result": payloads.show("result", effect.result, sight=sight),
        "has_probe": offers_probe(doubt),
        "settled_words": _settled(doubt),
        "instructions": tool.instructions if tool is not None else "",
        "others": Doubt.objects.filter(effect=effect).exclude(pk=doubt.pk).order_by("-id")[:EARLIER_SHOWN],
        "told": _told(effect),
    }  # fmt: skip


def _seconds(own: float | None, usual: float) -> timedelta:
    return timedelta(seconds=usual if own is None else own)


def _told(effect: IdempotencyRecord) -> Sequence[RunEvent]:
    # A run with a million events is not searched for them; whatever is told of an open doubt is among the newest.
    newest = RunEvent.objects.filter(run=effect.run_id).order_by("-id").values("pk")[:SEARCHED_EVENTS]
    rows = RunEvent.objects.filter(pk__in=newest)
    return list((rows.filter(data__effect=effect.pk) | rows.filter(data__effects__contains=effect.pk)).order_by("-id")
                [:SHOWN_EVENTS])  # fmt: skip


def _settled(doubt: Doubt) -> str:
    """How it was settled, in words; empty while it is open."""
    return WORDS.get(doubt.settled_as, doubt.settled_as.replace("_", " "))
