"""Which buttons a run offers, from the transition table and the person's role. The verbs are the engine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from durableops.access import VERBS
from durableops.console import asking
from durableops.console.access import WHO, Access
from durableops.console.words import count_of, sentence
from durableops.engine import deciding
from durableops.engine.compensation.owing import WORKFLOW
from runs.models import Approval, Run, RunEvent, Wait
from runs.states import OPEN, PARKED, State, operator_events


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing a person may do to a run."""

    name: str
    label: str
    fits: Callable[[Run], bool]
    """Whether the run's state allows it."""
    wants: str
    """Which runs it fits, in words."""
    done: str
    """What a person reads afterwards."""
    danger: bool = False
    needs_reason: bool = True
    is_offered_to_all: bool = True
    """Whether those who may not do it see it too, with the reason."""


def _operator_event(event: str) -> Callable[[Run], bool]:
    return lambda run: event in operator_events(run.state)


RUN_VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(name="pause", label="Pause", fits=lambda run: run.state in OPEN and not run.paused,
             wants="an open run that is not paused", done="The run was"),
        Verb(name="resume", label="Resume", fits=lambda run: run.state in OPEN and run.paused, wants="a paused run",
             done="The run", needs_reason=False),
        Verb(name="retry", label="Retry", fits=_operator_event("reopen"),
             wants="a failed, timed out or exhausted run", done="The run was"),
        Verb(name="recheck", label="Recheck", fits=_operator_event("recheck"), wants="a run in review", done="The run",
             needs_reason=False),
        Verb(name="migrate", label="Migrate", fits=_operator_event("recheck"), wants="a run in review",
             done="The run was"),
        Verb(name="revert", label="Take migration back", wants="a run that was migrated and did nothing since",
             fits=lambda run: run.state in PARKED and run.lineage > 1, done="The run:"),
        Verb(name="pin", label="Keep on its version", wants="a run in review",
             fits=lambda run: run.state == State.IN_REVIEW and not run.pinned, done="The run was"),
        Verb(name="unpin", label="Unpin", fits=lambda run: run.state in PARKED and run.pinned, wants="a pinned run",
             done="The run"),
        Verb(name="reject", label="Reject", fits=_operator_event("recheck"), wants="a run in review",
             done="The run was", danger=True),
        Verb(name="ask_second", label="Ask for a second reviewer", wants="a run in review",
             fits=_operator_event("recheck"), done="The run"),
        Verb(name="extend", label="Extend deadline", fits=lambda run: run.state in OPEN and run.deadline_at is not None,
             wants="an open run with a deadline", done="The run:"),
        Verb(name="add_budget", label="Add budget", wants="an open or exhausted run with a budget",
             fits=lambda run: run.state in OPEN or run.state == State.EXHAUSTED, done="The run"),
        # A running run is not in the table's sources: its holder is asked, and stops at its next commit.
        Verb(name="cancel", label="Cancel",
             fits=lambda run: not run.cancel_requested
             and (run.state == State.RUNNING or "cancel" in operator_events(run.state)),
             wants="an open run that was not asked to stop yet", done="The run was", danger=True),
        Verb(name="compensate", label="Compensate", fits=lambda run: run.is_terminal and run.workflow != WORKFLOW,
             wants="a finished run that did something", done="Begun:", danger=True),
        Verb(name="place_hold", label="Legal hold", fits=lambda run: True, wants="a run", done="Done:",
             is_offered_to_all=False),
        Verb(name="lift_hold", label="Lift legal hold", fits=lambda run: True, wants="a run", done="Done:",
             danger=True, is_offered_to_all=False),
    )
}  # fmt: skip
GUARDED = ("retry", "cancel", "compensate", "migrate", "pin", "reject")
"""Verbs whose consequences the guard works out from the record."""
ENTERING = ("resume", "recheck")
"""Verbs after which the run's step is entered again, as after a retry: what is open of its calls then goes on."""
OPEN_FATES = ("again", "doubt", "unsent", "pending")


@dataclass(frozen=True, kw_only=True)
class Button:
    verb: str
    label: str
    why_not: str
    """Empty when it may be pressed; else the reason in words."""
    danger: bool = False


def buttons(
    run: Run, access: Access, *, undoable: bool = False, budgeted: bool = False, held: bool = False
) -> list[Button]:
    """Every verb that fits the run's state; one the person's role lacks is shown with the reason."""
    found, has = [], {"compensate": undoable, "add_budget": budgeted, "place_hold": not held, "lift_hold": held}
    for verb in RUN_VERBS.values():
        if verb.fits(run) and has.get(verb.name, True):
            allowed = access.may_verb(verb.name, run.tenant_id)
            if not (allowed or verb.is_offered_to_all):
                continue
            why_not = "" if allowed else f"needs {WHO[VERBS[verb.name]]} of {run.tenant.slug}"
            found.append(Button(verb=verb.name, label=verb.label, why_not=why_not, danger=verb.danger))
    return found


def going_back(run: Run, access: Access) -> dict[str, bool]:
    """Whether the person may let this run go on from an earlier checkpoint, and fork it there."""
    back = "branch" in operator_events(run.state) and not (run.cancel_requested and not run.is_terminal)
    return {
        "goes_back": back and access.may_verb("retry_from", run.tenant_id),
        "forks": run.workflow != WORKFLOW and access.may_verb("fork", run.tenant_id),
    }


@dataclass(frozen=True, kw_only=True)
class Question:
    """An open question and who may answer it."""

    wait: Wait
    terms: Approval
    why_not: str
    plain: bool
    """Whether a yes or a no is all that it asks for."""
    comments: list[RunEvent]


def questions(run: Run, waits: Sequence[Wait], access: Access) -> list[Question]:
    """What this run asks people just now."""
    if run.state != State.WAITING:
        return []
    roles, found = access.deciding_roles(run.tenant_id), []
    for wait in waits:
        if wait.kind == "approval":
            terms = deciding.terms_of(wait)
            needed = deciding.why_not(terms, run, actor=access.actor, roles=roles)
            found.append(
                Question(
                    wait=wait, terms=terms, why_not=f"needs {needed}" if needed else "",
                    plain=not terms.fields and deciding.is_plain(terms), comments=asking.comments(wait),
                )
            )  # fmt: skip
    return found


def sendable(run: Run, waits: Sequence[Wait], access: Access) -> list[Wait]:
    """The events this run waits for that the person may send by hand."""
    if run.state != State.WAITING or not access.may_verb("send_event", run.tenant_id):
        return []
    return [wait for wait in waits if wait.kind == "event"]


def awaited_files(run: Run, waits: Sequence[Wait], access: Access) -> list[Wait]:
    """The files this run waits for that the person may bring."""
    if run.state != State.WAITING or not access.may_verb("bring_file", run.tenant_id):
        return []
    return [wait for wait in waits if wait.kind == "file"]


def extendable(run: Run, waits: Sequence[Wait], access: Access) -> list[Wait]:
    """The waits with a clock that the person may move."""
    if run.state != State.WAITING or not access.may_verb("extend", run.tenant_id):
        return []
    return [wait for wait in waits if wait.expires_at is not None]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """One line of a verb's consequences."""

    icon: str
    text: SafeString


def consequences(verb: str, run: Run, *, children: int) -> list[Meaning]:
    """What the verb would do, before it is done, besides what the guard says of it."""
    return [Meaning(icon="info", text=text) for text in _EFFECTS[verb](run, children)]


def _pausing(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("A running step is handed back at its next commit; a queued run is not taken.")
        if run.state == State.RUNNING
        else sentence("No worker takes it until somebody presses Resume."),
        sentence("Its deadlines and timeouts <b>go on</b> while it is paused."),
    ]


def _resuming(run: Run, children: int) -> list[SafeString]:
    return [sentence("It goes on at checkpoint {}; committed steps do not run again.", run.head_seq)]


def _retrying(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("It is reopened at checkpoint {}, step <b>{}</b>. Committed steps do not run again.",
                    run.head_seq, run.step_id),
    ]  # fmt: skip


def _rechecking(run: Run, children: int) -> list[SafeString]:
    return [sentence("Its plan is compared with today's code once more: it goes on, or is parked again.")]


def _migrating(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("Its state, step, waits and calls are brought to the <b>newest version</b> by its migrations."),
        sentence("If anything does not fit, nothing is changed and you read why."),
        sentence("Committed steps do not run again; calls keep their keys. It can be taken back until it goes on."),
    ]


def _reverting(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("Its version, state, step, waits and calls are what they were before the migration."),
        sentence("It is not migrated again unless a person says so."),
    ]


def _pinning(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("Only workers that have <b>version {}</b> as it was recorded move it.", run.version),
        sentence("Without such a worker it waits in the queue, says so, and counts as limbo."),
    ]


def _unpinning(run: Run, children: int) -> list[SafeString]:
    return [sentence("Workers with a newer version may take it over: to migrate it, or to park it for a person.")]


def _asking_second(run: Run, children: int) -> list[SafeString]:
    return [sentence("It stays where it is. <b>You</b> do not decide about it any more; another reviewer does.")]


def _extending(run: Run, children: int) -> list[SafeString]:
    return [sentence("Only the deadline moves; timeouts of its waits stay as they are.")]


def _adding_budget(run: Run, children: int) -> list[SafeString]:
    more = "It goes on when it is <b>retried</b>." if run.state == State.EXHAUSTED else "It goes on as it is."
    return [sentence("What it may spend is raised, for itself and whatever it started."), sentence(more)]


def _cancelling(run: Run, children: int) -> list[SafeString]:
    lines = [
        sentence("It ends <b>cancelled</b>, for good{}.",
                    " at its next commit" if run.state == State.RUNNING else ""),
    ]  # fmt: skip
    if children:
        lines.append(sentence("{} below it {} cancelled too.", count_of(children, "open run"),
                                 "is" if children == 1 else "are"))  # fmt: skip
    return lines


def _compensating(run: Run, children: int) -> list[SafeString]:
    return [
        sentence(
            "A run of its own undoes what this one did, <b>newest first</b>, and waits where a person has to act."
        ),
        sentence("This run stays {}, and is not retried any more.", run.state.replace("_", " ")),
    ]


def _holding(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("<b>Nothing</b> of this run goes while the hold stands, whatever rules and erasures say."),
        sentence("How it runs does not change."),
    ]


def _lifting(run: Run, children: int) -> list[SafeString]:
    return [
        sentence("Holds on <b>this run</b> are lifted; one on a label of it, or on all of {}, still stands.",
                 run.tenant.slug),
        sentence("What is due then goes with the cleaner's next looks, and does <b>not come back</b>."),
    ]  # fmt: skip


_EFFECTS: dict[str, Callable[[Run, int], list[SafeString]]] = {
    "pause": _pausing,
    "resume": _resuming,
    "retry": _retrying,
    "recheck": _rechecking,
    "migrate": _migrating,
    "revert": _reverting,
    "pin": _pinning,
    "unpin": _unpinning,
    "reject": _cancelling,
    "ask_second": _asking_second,
    "extend": _extending,
    "add_budget": _adding_budget,
    "cancel": _cancelling,
    "compensate": _compensating,
    "place_hold": _holding,
    "lift_hold": _lifting,
}
