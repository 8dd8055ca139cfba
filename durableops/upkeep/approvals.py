"""The clocks of open questions: they remind and pass upwards, and decide nothing. The expiry is the wait's own."""

from __future__ import annotations

from uuid import UUID

from durableops.engine.database import Database
from durableops.limits.clocks import Clock, Firing, Phase
from runs.transitions import Cursor, record_event

BATCH = 200
_CLOCK = "a.decided_at IS NULL AND (a.remind_at IS NOT NULL OR a.escalate_at IS NOT NULL)"
IS_DUE = f"EXISTS (SELECT 1 FROM runs_approval a WHERE {_CLOCK} AND least(a.remind_at, a.escalate_at) <= now())"
NEXT = f"(SELECT min(least(a.remind_at, a.escalate_at)) FROM runs_approval a WHERE {_CLOCK})"
# A question that is no longer open has no clocks: it expired, or its run ended.
_FIRE = f"""
UPDATE runs_approval a SET
    reminders = a.reminders + (due.open AND due.remind)::int,
    remind_at = CASE WHEN NOT due.open THEN NULL WHEN due.remind THEN now() + a.remind_seconds * interval '1 second'
        ELSE a.remind_at END,
    escalated_at = CASE WHEN due.open AND due.escalate THEN now() ELSE a.escalated_at END,
    escalated_by = CASE WHEN due.open AND due.escalate THEN 'upkeep' ELSE a.escalated_by END,
    delegated_to = CASE WHEN due.open AND due.escalate THEN '' ELSE a.delegated_to END,
    delegated_by = CASE WHEN due.open AND due.escalate THEN '' ELSE a.delegated_by END,
    delegated_at = CASE WHEN due.open AND due.escalate THEN NULL ELSE a.delegated_at END,
    escalate_at = CASE WHEN NOT due.open OR due.escalate THEN NULL ELSE a.escalate_at END
FROM (
    SELECT a.wait_id, w.state = 'open' AS open, coalesce(a.remind_at <= now(), false) AS remind,
        coalesce(a.escalate_at <= now(), false) AS escalate, w.name, w.step_id, r.state, r.fence, r.step_attempts,
        extract(epoch FROM now() - w.opened_at)::float8 AS elapsed
    FROM runs_approval a JOIN runs_wait w ON w.id = a.wait_id JOIN runs_run r ON r.id = a.run_id
    WHERE {_CLOCK} AND least(a.remind_at, a.escalate_at) <= now()
    ORDER BY least(a.remind_at, a.escalate_at), a.wait_id LIMIT %s FOR NO KEY UPDATE OF a SKIP LOCKED
) due WHERE a.wait_id = due.wait_id AND a.decided_at IS NULL
RETURNING a.run_id, a.wait_id, due.open, due.remind, due.escalate, due.name, due.step_id, due.state, due.fence,
    due.step_attempts, due.elapsed, a.remind_seconds, a.escalate_seconds, a.escalate_to, a.reminders"""


def fire_clocks(database: Database) -> int:
    """Fire the reminders and escalations that are due, each as an event on its run. Returns how many questions."""
    with database.transaction() as cursor:
        cursor.execute(_FIRE, [BATCH])
        fired = cursor.fetchall()
        for run, wait, is_open, remind, escalate, *facts in fired:
            if is_open and remind:
                _tell(cursor, "approval_reminder", run, wait, *facts)
            if is_open and escalate:
                _tell(cursor, "approval_escalation", run, wait, *facts)
    return len(fired)


def _tell(
    cursor: Cursor, event: str, run: UUID, wait: int, name: str, step: str, state: str, fence: int, attempts: int,
    elapsed: float, remind: float | None, escalate: float | None, to: str, reminders: int,
) -> None:  # fmt: skip
    is_reminder = event == "approval_reminder"
    firing = Firing(
        clock=Clock.APPROVAL, limit_seconds=remind if is_reminder else escalate,
        trigger=f"approval {name!r} is still open", elapsed_seconds=elapsed, phase=Phase.WAITING_PERSON,
        next_state=state, whom=f"approval {name}",
    )  # fmt: skip
    then = f"reminder {reminders}" if is_reminder else f"{to}s may decide now, too"
    record_event(
        cursor, run, event, reason=f"{firing.trigger}: {then}.", step_id=step, attempt=attempts, fence=fence,
        data={**firing.as_data(), "wait": wait, "name": name},
    )  # fmt: skip
