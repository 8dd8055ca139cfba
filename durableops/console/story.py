"""Why a run is where it is, since when, and what will wake it: sentences made from facts. Nothing here queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.safestring import SafeString

from durableops.conf import get_conf
from durableops.console.words import POLICY, count_of, length, moment, seconds_between, sentence
from durableops.engine.deciding import is_plain, terms_of, who
from durableops.engine.gates import Before
from durableops.masking import mask_text
from runs.models import PauseSwitch, Run, Wait, Worker
from runs.states import State

LIMBO_AFTER_SECONDS = get_conf().version_patience_seconds + 5
"""Newer workers take over what they can within the patience and a poll or two."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the sentences are made from."""

    run: Run
    now: datetime
    waits: Sequence[Wait] = ()
    """Open waits, newest first."""
    switches: Sequence[PauseSwitch] = ()
    """Those that stand in the run's way."""
    workers: Sequence[Worker] = ()
    """Living workers; asked for while one is to take it: queued, or sooner or later for a pinned run."""
    parked_because: str = ""
    before: Before = field(default_factory=Before)
    """What stands before it while it is queued."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """One line of what happens next, or of what stands in the way."""

    icon: str
    text: SafeString


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run's header."""

    why: SafeString
    gates: list[Hint] = field(default_factory=list)
    """What keeps it from running, besides its state."""
    next: list[Hint] = field(default_factory=list)


def tell(facts: Facts) -> Story:
    """The header of a run in any state."""
    teller = _TELLERS.get(facts.run.state, _unknown)
    why, following = teller(facts)
    return Story(why=why, gates=_gates(facts), next=following)


def _at(at: datetime | None, facts: Facts) -> str:
    return moment(at, now=facts.now)


def _step_of(run: Run) -> str:
    return run.step_id or "its first step"


def _queued(facts: Facts) -> tuple[SafeString, list[Hint]]:
    run = facts.run
    if run.due_at is not None and run.due_at > facts.now:
        left = length(seconds_between(facts.now, run.due_at))
        cause = mask_text(run.wake_detail) or "It is not due yet"
        why = sentence("{}. It is tried again <b>in {}</b>, at {}.", cause, left, _at(run.due_at, facts))
    elif run.started_at is None:
        why = sentence("In the queue since {}. <b>The next free worker</b> starts it.", _at(run.state_since, facts))
    else:
        why = sentence(
            "Ready to go on with <b>{}</b> since {}{}. <b>The next free worker</b> takes it.",
            _step_of(run), _at(run.state_since, facts), f": {mask_text(run.wake_detail)}" if run.wake_detail else "",
        )  # fmt: skip
    return why, [
        Hint(icon="play", text=sentence("<b>A worker takes it:</b> it goes on at checkpoint {}.", run.head_seq)),
        Hint(icon="check", text=sentence("Committed steps do not run again; recorded calls answer from the record.")),
    ]


def _running(facts: Facts) -> tuple[SafeString, list[Hint]]:
    run = facts.run
    holder = f"{run.worker.host}, process {run.worker.pid}" if run.worker else "a worker"
    why = sentence(
        "Step <b>{}</b> is running on {} since {}{}.",
        _step_of(run), holder, _at(run.state_since, facts),
        f", attempt {run.step_attempts + 1}" if run.step_attempts else "",
    )  # fmt: skip
    if run.cancel_requested:
        why = sentence("{} {} asked it to stop; <b>it ends at its next commit</b>.", why, run.cancel_requested_by)
    elif run.paused:
        why = sentence("{} {} asked it to pause; <b>it is handed back at its next commit</b>.", why, run.paused_by)
    return why, [
        Hint(icon="check", text=sentence("<b>The step ends:</b> its result is committed and the next one begins.")),
        Hint(icon="rotate-ccw", text=sentence(
            "<b>The worker dies:</b> another goes on at checkpoint {}; calls on record are not sent again.",
            run.head_seq)),
    ]  # fmt: skip


def _waiting(facts: Facts) -> tuple[SafeString, list[Hint]]:
    if not facts.waits:
        return sentence("Waits since {}, and no open wait is on record: nothing wakes it.",
                           _at(facts.run.state_since, facts)), []  # fmt: skip
    wait = facts.waits[0]
    why = sentence("{}{}", _WAITS.get(wait.kind, _waits_event)(wait, facts), _expiry(wait, facts))
    following = []
    if wait.kind == "approval":
        following += [
            Hint(icon="check", text=sentence("<b>Approved:</b> “{}” goes on. Nothing is sent again.", wait.step_id)),
            Hint(icon="x", text=sentence("<b>Refused:</b> the step is told; by default the run ends cancelled.")),
        ]
    if wait.expires_at:
        following.append(Hint(icon="clock", text=sentence(
            "<b>Nobody answers:</b> {} at {}.", POLICY.get(wait.on_timeout, wait.on_timeout),
            _at(wait.expires_at, facts))))  # fmt: skip
    if facts.run.effects_avoided or facts.run.resumes:
        following.append(Hint(icon="rotate-ccw", text=sentence(
            "{} so far; {} answered from the record.", count_of(facts.run.resumes, "resume"),
            count_of(facts.run.effects_avoided, "call"))))  # fmt: skip
    return why, following


def _waits_approval(wait: Wait, facts: Facts) -> SafeString:
    terms = terms_of(wait)
    verb, again = "approve" if is_plain(terms) else "decide", f", round {terms.round}" if terms.round > 1 else ""
    return sentence("Waits for <b>{} to {} “{}”</b>{}, since {}. A decision wakes it",
                       who(terms), verb, wait.name, again, _at(wait.opened_at, facts))  # fmt: skip


def _waits_event(wait: Wait, facts: Facts) -> SafeString:
    what = "a file" if wait.kind == "file" else "the event"
    about = f" for {wait.correlation}" if wait.correlation else ""
    return sentence("Waits for <b>{} “{}”</b>{}, since {}. Its arrival wakes it", what, wait.name, about,
                       _at(wait.opened_at, facts))  # fmt: skip


def _waits_time(wait: Wait, facts: Facts) -> SafeString:
    left = length(seconds_between(facts.now, wait.due_at)) if wait.due_at else "a moment"
    return sentence("Sleeps until <b>{}</b>, {} from now. The clock wakes it", _at(wait.due_at, facts), left)


def _waits_poll(wait: Wait, facts: Facts) -> SafeString:
    return sentence("Asks <b>{}</b> in turns, {} so far. The next turn, at <b>{}</b>, wakes it",
                       wait.name, wait.turns, _at(wait.due_at, facts))  # fmt: skip


def _waits_children(wait: Wait, facts: Facts) -> SafeString:
    return sentence("Waits for <b>its child runs of {}</b>, since {}. The last one to end wakes it",
                       wait.name, _at(wait.opened_at, facts))  # fmt: skip


def _waits_turn(wait: Wait, facts: Facts) -> SafeString:
    if wait.correlation:
        return sentence("Another run does the same thing with <b>{}</b> just now, since {}. Its outcome wakes it",
                        wait.name, _at(wait.opened_at, facts))  # fmt: skip
    return sentence("Waits for <b>its turn at {}</b>, since {}: calls go there one at a time. Its turn wakes it",
                    wait.name, _at(wait.opened_at, facts))  # fmt: skip


_WAITS: dict[str, Callable[[Wait, Facts], SafeString]] = {
    "approval": _waits_approval,
    "time": _waits_time,
    "poll": _waits_poll,
    "children": _waits_children,
    "turn": _waits_turn,
}


def _expiry(wait: Wait, facts: Facts) -> SafeString:
    """Until when, and what then; the run's own deadline may come first."""
    deadline = facts.run.deadline_at
    if wait.expires_at and (deadline is None or wait.expires_at <= deadline):
        return sentence("; without one by <b>{}</b> {}.", _at(wait.expires_at, facts),
                           POLICY.get(wait.on_timeout, wait.on_timeout))  # fmt: skip
    if deadline:
        return sentence("; the run's deadline, <b>{}</b>, comes first.", _at(deadline, facts))
    return sentence("{}", "." if wait.kind in ("time", "poll") else ". It has no timeout.")


def _in_doubt(facts: Facts) -> tuple[SafeString, list[Hint]]:
    return sentence(
        "<b>An effect may or may not have happened</b>, since {}, and nothing is left to do without knowing. "
        "A person settles it.", _at(facts.run.state_since, facts),
    ), [Hint(icon="info", text=sentence("It is listed under Effects, where a person settles it."))]  # fmt: skip


def _in_review(facts: Facts) -> tuple[SafeString, list[Hint]]:
    because = mask_text(facts.parked_because) or "today's code cannot read its checkpoint"
    why = sentence("Parked since {}: <b>{}</b>. Once the code is put right, <b>Recheck</b> wakes it.",
                   _at(facts.run.state_since, facts), because)  # fmt: skip
    kept = sentence("The checkpoint stays as it is; nothing was read with new assumptions.")
    return why, [Hint(icon="info", text=kept)]


def _ended(facts: Facts) -> tuple[SafeString, list[Hint]]:
    run = facts.run
    took = length(seconds_between(run.started_at or run.created_at, run.finished_at))
    at = _at(run.finished_at, facts)
    error = mask_text(run.error_message or run.error_class)[:400] or "no reason was recorded"
    if run.state == State.SUCCEEDED:
        why = sentence("<b>Succeeded</b> at {} after {}.", at, took)
    elif run.state == State.CANCELLED:
        by = f" by {run.cancel_requested_by}" if run.cancel_requested_by else ""
        reason = mask_text(run.cancel_reason)
        why = sentence("<b>Cancelled</b>{} at {}{}", by, at, f": {reason}" if reason else ".")
    elif run.state == State.TIMED_OUT:
        why = sentence("<b>Timed out</b> at {} in step {}: {}", at, run.step_id, error)
    elif run.state == State.EXHAUSTED:
        why = sentence("<b>Ended with its budget spent</b> at {}: {}", at, error)
    else:
        why = sentence("Step <b>{}</b> failed for good at {}: {}", run.step_id, at, error)
    following = []
    if run.state in (State.FAILED, State.TIMED_OUT, State.EXHAUSTED):
        again = sentence("<b>Retried:</b> reopened at checkpoint {}; committed steps do not run again.", run.head_seq)
        following.append(Hint(icon="rotate-ccw", text=again))
    return why, [*following, Hint(icon="circle-slash", text=sentence("Nothing wakes it by itself: it has ended."))]


def _unknown(facts: Facts) -> tuple[SafeString, list[Hint]]:
    return sentence("It is in a state this console does not know: <b>{}</b>.", facts.run.state), []


_TELLERS: dict[str, Callable[[Facts], tuple[SafeString, list[Hint]]]] = {
    State.QUEUED: _queued,
    State.RUNNING: _running,
    State.WAITING: _waiting,
    State.IN_DOUBT: _in_doubt,
    State.IN_REVIEW: _in_review,
    State.SUCCEEDED: _ended,
    State.FAILED: _ended,
    State.CANCELLED: _ended,
    State.TIMED_OUT: _ended,
    State.EXHAUSTED: _ended,
}


def _gates(facts: Facts) -> list[Hint]:
    run = facts.run
    if run.is_terminal:
        return []
    gates = []
    if run.paused:
        gates.append(Hint(icon="pause", text=sentence("Paused by <b>{}</b>; Resume lets it go on.", run.paused_by)))
    for switch in facts.switches:
        scope = {"all": "Everything is", "tenant": "This tenant is"}.get(switch.scope, "This workflow is")
        told = sentence("{} paused by <b>{}</b> since {}: {}", scope, switch.actor, _at(switch.at, facts),
                        mask_text(switch.reason))  # fmt: skip
        gates.append(Hint(icon="pause", text=told))
    if (run.state == State.QUEUED or (run.pinned and facts.workers)) and (gate := _no_worker(facts)):
        gates.append(gate)
    return gates + _full_caps(facts)


def _full_caps(facts: Facts) -> list[Hint]:
    """Caps of its tenant, and of what its step uses, under which it may not start just now."""
    since = {closed.gate: f", since {_at(closed.since, facts)}" for closed in facts.before.closed}
    gates, cap = [], facts.before.cap
    if cap is not None and cap.running >= cap.most:
        told = sentence("<b>Its tenant is at its cap</b>: {} of at most {} run, and {} wait{}.", cap.running, cap.most,
                        cap.waiting, since.get("quota.tenant", ""))  # fmt: skip
        gates.append(Hint(icon="hourglass", text=told))
    for closed in facts.before.closed:
        if closed.gate == "quota.resource":
            told = sentence("<b>{} is at its cap</b>: {} runs of all tenants wait for it{}.", closed.name, closed.held,
                            since[closed.gate])  # fmt: skip
            gates.append(Hint(icon="hourglass", text=told))
    return gates


def _limbo_after(run: Run) -> str:
    seconds = LIMBO_AFTER_SECONDS
    if run.state != State.QUEUED:
        return f"; once it is queued, it counts as limbo after {seconds:g} s"
    return f"; queued for more than {seconds:g} s like this, it counts as limbo"


def _no_worker(facts: Facts) -> Hint | None:
    """Whether some living worker can run this version at all."""
    run = facts.run
    if not facts.workers:
        return Hint(icon="server", text=sentence("<b>No worker is alive.</b> Start one: manage.py worker."))
    # A worker that does not say what it has may have it.
    if any(worker.plans is None or run.plan_id in worker.plans for worker in facts.workers):
        return None
    same = any(run.version in worker.versions.get(run.workflow, []) for worker in facts.workers)
    return Hint(icon="server", text=sentence(
        "No worker for v{}: none of {} living workers has <b>{} v{}</b>{}{}.", run.version, len(facts.workers),
        run.workflow, run.version, " as it was when this run was recorded" if same else "",
        (", to which it is pinned" if run.pinned else "") + _limbo_after(run)))  # fmt: skip
