"""Clocks of whole runs: deadlines, and how long a run may stand in the queue. Each meets the policy on the run's row.

Runs in somebody's hand are ended by their holder; what gives more time, or asks for it, waits until it let go of them.
"""

from __future__ import annotations

from uuid import UUID

from durableops.engine import questions
from durableops.engine.database import Database
from durableops.engine.endings import DEADLINE_CAME
from durableops.engine.family import cancel_children, close_waits, nudge_parent
from durableops.limits.clocks import CAUSES, Clock, Phase, phase_of_wait
from runs.models.wait import WAIT_KINDS
from runs.states import PARKED
from runs.transitions import Cursor, fire_many

BATCH = 200
_PARKED = ", ".join(f"'{s}'" for s in sorted(PARKED))
_OVERDUE = f"r.deadline_at <= now() AND r.state IN ({_PARKED})"
_QUEUED_TOO_LONG = "r.queue_expires_at <= now() AND r.state = 'queued'"
_BATCH_OF = "{due} AND r.{column} = '{policy}' ORDER BY r.id LIMIT " + str(BATCH) + " FOR NO KEY UPDATE SKIP LOCKED"
A_DEADLINE_HAS_COME = f"EXISTS (SELECT 1 FROM runs_run r WHERE {_OVERDUE} AND r.deadline_policy <> 'asked')"
A_QUEUE_CLOCK_HAS_COME = f"EXISTS (SELECT 1 FROM runs_run r WHERE {_QUEUED_TOO_LONG})"

# What a waiting run waits for, its newest open wait says; what a run in hand did when its deadline came, its holder.
_WAIT = """(SELECT {what} FROM runs_wait w WHERE w.run_id = b.id AND w.state = 'open' AND w.clock = ''
    ORDER BY w.id DESC LIMIT 1)"""
_DOUBT = """(SELECT 'tool ' || e.tool FROM runs_doubt d JOIN runs_effect e ON e.id = d.effect_id
    WHERE d.run_id = b.id AND d.settled_at IS NULL ORDER BY d.id DESC LIMIT 1)"""
_OF_RUN = "(SELECT {what} FROM runs_run x WHERE x.id = b.id)"
_HANDED_BACK = _OF_RUN.format(what=f"CASE WHEN x.wake_cause = '{DEADLINE_CAME}{Phase.CALLING}' THEN x.wake_detail END")


def _phases(say: dict[Phase, str]) -> str:
    """What a parked run was doing, as SQL; `say` gives the word for each phase."""
    cause = _OF_RUN.format(what="x.wake_cause")
    handed_back = " ".join(
        f"WHEN '{DEADLINE_CAME}{phase}' THEN '{say[phase]}'" for phase in (Phase.COMPUTING, Phase.CALLING)
    )
    kinds = " ".join(f"WHEN '{kind}' THEN '{say[phase_of_wait(kind)]}'" for kind in WAIT_KINDS)
    return f"""CASE b.state
        WHEN 'queued' THEN CASE {cause} {handed_back} ELSE '{say[Phase.QUEUED]}' END
        WHEN 'in_doubt' THEN '{say[Phase.IN_DOUBT]}' WHEN 'in_review' THEN '{say[Phase.IN_REVIEW]}'
        ELSE CASE {_WAIT.format(what="w.kind")} {kinds} ELSE '{say[Phase.WAITING_SYSTEM]}' END END"""


_DEADLINE = f"""jsonb_strip_nulls(jsonb_build_object('clock', 'run_deadline',
    'trigger', 'the run''s deadline came while it was ' || b.state,
    'limit_seconds', {_OF_RUN.format(what="extract(epoch FROM x.deadline_at - x.created_at)::float8")},
    'elapsed_seconds', {_OF_RUN.format(what="extract(epoch FROM now() - x.created_at)::float8")},
    'phase', {_phases({phase: phase.value for phase in Phase})},
    'cause', {_phases({phase: cause.value for phase, cause in CAUSES[Clock.RUN_DEADLINE].items()})},
    'whom', CASE b.state WHEN 'waiting' THEN {_WAIT.format(what="w.kind || ' ' || w.name")}
        WHEN 'in_doubt' THEN {_DOUBT} WHEN 'queued' THEN {_HANDED_BACK} END,
    'next_state', {{next_state}}))"""
_QUEUE = f"""jsonb_build_object('clock', 'queue_wait', 'trigger', 'it stood in the queue and nobody took it',
    'limit_seconds', {_OF_RUN.format(what="x.queue_seconds")},
    'elapsed_seconds', {_OF_RUN.format(what="extract(epoch FROM now() - x.queue_expires_at) + x.queue_seconds")},
    'phase', 'queued', 'cause', '{CAUSES[Clock.QUEUE_WAIT][Phase.QUEUED]}', 'next_state', {{next_state}})"""
_ERROR = "error_class = '{name}', error_fingerprint = '{clock}', error_message = '{why}'"
# A clock that fires and moves nothing: the run stays where it is, with more time or with none to come.
_STAYS = """
WITH b AS MATERIALIZED (
    SELECT r.id, r.state, r.fence, r.step_id, r.step_attempts FROM runs_run r WHERE {pick}
), told AS (
    INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, actor, reason, data)
    SELECT b.id, now(), '{event}', '', '', b.step_id, b.step_attempts, b.fence, 'upkeep', '{reason}', {data} FROM b
) UPDATE runs_run r SET {sets} FROM b WHERE r.id = b.id
RETURNING r.id"""
_PASSED = "the run''s deadline has passed"
_ONCE_MORE = _STAYS.format(
    pick=_BATCH_OF.format(due=_OVERDUE, column="deadline_policy", policy="extend"), event="run_deadline",
    reason="the run''s deadline came; it was given once more as long, by its policy",
    data=_DEADLINE.format(next_state="b.state"),
    sets="deadline_at = now() + (r.deadline_at - r.created_at), deadline_policy = 'fail'",
)  # fmt: skip
_LONGER_IN_QUEUE = _STAYS.format(
    pick=_BATCH_OF.format(due=_QUEUED_TOO_LONG, column="queue_policy", policy="extend"), event="queue_wait",
    reason="it may stand in the queue once more as long, by its policy", data=_QUEUE.format(next_state="'queued'"),
    sets="queue_expires_at = now() + r.queue_seconds * interval '1 second', queue_policy = 'fail'",
)  # fmt: skip
_NOTED = _STAYS.format(
    pick=_BATCH_OF.format(due=_QUEUED_TOO_LONG, column="queue_policy", policy="continue"), event="queue_wait",
    reason="it goes on standing in the queue, by its policy", data=_QUEUE.format(next_state="'queued'"),
    sets="queue_expires_at = NULL",
)  # fmt: skip
_WAITS_FOR_A_PERSON = "r.state NOT IN ('queued', 'running')"
_ASK_WHERE_IT_IS = _STAYS.format(
    pick=_BATCH_OF.format(due=f"{_OVERDUE} AND {_WAITS_FOR_A_PERSON}", column="deadline_policy", policy="ask"),
    event="run_deadline", reason="the run''s deadline came; a person is asked",
    data=_DEADLINE.format(next_state="b.state"), sets="deadline_policy = 'asked'",
)  # fmt: skip
_FIRED = """
SELECT DISTINCT ON (e.run_id) e.run_id, e.data, coalesce(nullif(e.from_state, ''), r.state)
FROM runs_event e JOIN runs_run r ON r.id = e.run_id
WHERE e.run_id = ANY(%s) AND e.event IN ('ask', 'run_deadline') ORDER BY e.run_id, e.id DESC"""


def fire_deadlines(database: Database) -> int:
    """Let a batch of runs whose deadline has come meet its policy. Returns how many."""
    error = _ERROR.format(name="DeadlinePassed", clock="run_deadline", why=_PASSED)
    done = _end(database, "time_out", due=_OVERDUE, column="deadline_policy", policy="fail", sets=error,
                reason="the run's deadline has passed", data=_DEADLINE.format(next_state="'timed_out'"))  # fmt: skip
    done += _end(database, "cancel", due=_OVERDUE, column="deadline_policy", policy="cancel", sets="",
                 reason="the run's deadline has passed, and its policy is to cancel it",
                 data=_DEADLINE.format(next_state="'cancelled'"))  # fmt: skip
    done += len(database.fetch(_ONCE_MORE))
    with database.transaction() as cursor:
        cursor.execute(_ASK_WHERE_IT_IS)
        asked = [row[0] for row in cursor.fetchall()]
        asked += [
            fired.run_id
            for fired in fire_many(
                "ask", cursor, pick=_BATCH_OF.format(due=f"{_OVERDUE} AND r.state = 'queued'",
                                                     column="deadline_policy", policy="ask"),
                sets="deadline_policy = 'asked'", reason="the run's deadline came; a person is asked",
                data=_DEADLINE.format(next_state="'waiting'"),
            )
        ]  # fmt: skip
        _ask(cursor, asked)
    return done + len(asked)


def fire_queue_waits(database: Database) -> int:
    """Let a batch of runs that have stood in the queue too long meet its policy. Returns how many."""
    why = "it stood in the queue for longer than it may"
    error = _ERROR.format(name="QueueWaitPassed", clock="queue_wait", why=why)
    done = _end(database, "time_out", due=_QUEUED_TOO_LONG, column="queue_policy", policy="fail", sets=error,
                reason=why, data=_QUEUE.format(next_state="'timed_out'"))  # fmt: skip
    done += _end(database, "cancel", due=_QUEUED_TOO_LONG, column="queue_policy", policy="cancel", sets="",
                 reason=f"{why}, and its policy is to cancel it",
                 data=_QUEUE.format(next_state="'cancelled'"))  # fmt: skip
    done += len(database.fetch(_LONGER_IN_QUEUE)) + len(database.fetch(_NOTED))
    with database.transaction() as cursor:
        asked = fire_many(
            "ask", cursor, pick=_BATCH_OF.format(due=_QUEUED_TOO_LONG, column="queue_policy", policy="ask"),
            reason=f"{why}; a person is asked", data=_QUEUE.format(next_state="'waiting'"),
        )  # fmt: skip
        _ask(cursor, [fired.run_id for fired in asked])
    return done + len(asked)


def _end(
    database: Database, event: str, *, due: str, column: str, policy: str, sets: str, reason: str, data: str
) -> int:
    """End a batch of runs with one policy, and everything below them."""
    pick = _BATCH_OF.format(due=due, column=column, policy=policy)
    with database.transaction() as cursor:
        ended = fire_many(event, cursor, pick=pick, sets=sets, reason=reason, data=data)
        close_waits(cursor, [fired.run_id for fired in ended])
        for fired in ended:
            cancel_children(cursor, fired.run_id, actor="upkeep", reason=f"its parent ended: {reason}")
    for fired in ended:
        if fired.parent_id is not None:
            nudge_parent(database, fired.run_id)
    return len(ended)


def _ask(cursor: Cursor, runs: list[UUID]) -> None:
    """Put the questions of clocks that have just fired, as their events say."""
    if not runs:
        return
    cursor.execute(_FIRED, [runs])
    for run_id, data, was in cursor.fetchall():
        questions.put(cursor, run_id, data, was=was)
