"""Opening doubts: the pieces of SQL with which whoever leaves an effect without an outcome says so.

An effect that becomes `in_doubt` gets its open row in `runs_doubt` and an event on its run in the same statement, so
that the three never disagree. Why it is in doubt stands on the effect while it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from runs.transitions import Cursor

BLOCKED = """EXISTS (
    SELECT 1 FROM runs_doubt d JOIN runs_effect x ON x.id = d.effect_id
    WHERE d.run_id = {run}.id AND d.settled_at IS NULL AND (x.scope = 'tenant' OR x.id > (
        SELECT c.effects_through FROM runs_checkpoint c WHERE c.run_id = {run}.id AND c.seq = {run}.head_seq))
)"""
"""Whether a run may not go on before somebody settled a doubt: one of the step (or page) it is in. Those that a step
went on without stay listed and block nothing."""

RETURNING = (
    "e.id, e.tenant_id, e.run_id, e.step_id, e.fence, e.tool, e.resource, e.key, e.state, e.scope,"
    " e.error_class AS cause, e.error_message AS why"
)
"""What a query that moves effects must return, so that `opened` can go on with it."""


def opened(moved: str) -> str:
    """Two more queries of a statement: the doubts and the events of the effects that query `moved` put in doubt."""
    return f"""
        {moved}_doubts AS (
            INSERT INTO runs_doubt (effect_id, tenant_id, run_id, cause, why, since)
            SELECT m.id, m.tenant_id, m.run_id, m.cause, m.why, now() FROM {moved} m WHERE m.state = 'in_doubt'
            ON CONFLICT (effect_id) WHERE settled_at IS NULL DO NOTHING
        ), {moved}_told AS (
            INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, actor, reason,
                data)
            SELECT m.run_id, now(), 'effect_in_doubt', '', '', m.step_id, 0, m.fence, '',
                format('%%s for %%L: %%s', m.tool, m.resource, m.why),
                jsonb_build_object('effect', m.id, 'tool', m.tool, 'key', m.key, 'cause', m.cause)
            FROM {moved} m WHERE m.state = 'in_doubt' ORDER BY m.id
        )"""


def left(*, of: str, only: str, because: str, cause: str) -> str:
    """The assignment of what becomes of effects that nobody is at any more, for the rows `of` selects.

    On the wire, or about to be: in doubt. Without a turn yet: withdrawn, certainly not sent. Messages of an outbox go
    on without their run.
    """
    return f"""
        UPDATE runs_effect e SET state = CASE WHEN e.state = 'queued' THEN 'withdrawn' ELSE 'in_doubt' END,
            completed_at = CASE WHEN e.state = 'queued' THEN now() END,
            error_class = CASE WHEN e.state = 'queued' THEN 'NotSent' ELSE {cause} END,
            error_message = CASE WHEN e.state = 'queued' THEN 'it was never sent: ' || {because}
                ELSE 'its outcome is unknown: ' || {because} END
        FROM {of}
        WHERE e.state IN ('intended', 'queued') AND e.safety <> 'outbox' AND {only}
        RETURNING {RETURNING}"""


_LEAVE = f"""
WITH moved AS (
    {
    left(
        of="(SELECT 1) AS once",
        only="e.run_id = ANY(%(runs)s) AND (%(ended)s OR (e.state = 'intended' AND e.safety = 'legacy'))",
        because="%(because)s",
        cause="%(cause)s",
    )
}
), {opened("moved")}
SELECT id, scope FROM moved"""


def leave_effects(
    cursor: Cursor, runs: Sequence[UUID], *, ended: bool, cause: str, because: str
) -> list[tuple[int, str]]:
    """Say what becomes of the effects that runs leave behind when they leave a worker's hand.

    Returns the effects that were left, each with its scope.

    Of runs that have `ended` that is everything without an outcome; of others the legacy calls on the wire: a keyed one
    is sent again with its key when its step is entered again, and what waits for its turn goes on waiting.
    Needs the runs' rows locked in the same transaction.
    """
    if not runs:
        return []
    cursor.execute(_LEAVE, {"runs": list(runs), "ended": ended, "cause": cause, "because": because})
    found: list[tuple[int, str]] = cursor.fetchall()
    return found
