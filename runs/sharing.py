"""Effects that belong to a whole tenant: whose they are just now, and taking one over from a run that is gone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runs.transitions import Cursor, record_event

COMING_SECONDS = 10.0
"""How long a run that was at an effect is waited for before another one that asks for the same takes it over."""

OWNER = f"""CASE WHEN o.state = 'running' AND o.fence = {{effect}}.fence THEN 'alive'
    WHEN o.state IN ('queued', 'running') AND NOT o.paused
        AND o.state_since > now() - {COMING_SECONDS} * interval '1 second' THEN 'coming'
    ELSE 'gone' END"""
"""What the run `o` that made an effect has to do with it just now."""

FORGOTTEN = "coalesce({effect}.window_ends_at <= now(), false)"
# Nobody is at it, and the other side still remembers the key: whoever asks for it may send it again.
FREE = f"""{{effect}}.safety = 'keyed' AND NOT {FORGOTTEN}
    AND ({{effect}}.state = 'in_doubt' OR ({{effect}}.state = 'intended' AND {OWNER} = 'gone'))"""

_TAKE_OVER = f"""
UPDATE runs_effect e SET state = 'intended', run_id = r.id, step_id = %(step)s, fence = r.fence, error_class = '',
    error_message = ''
FROM runs_run r, runs_run o
WHERE r.id = %(run)s AND e.id = %(effect)s AND e.run_id = %(from)s AND o.id = e.run_id AND e.fence = %(fence)s
  AND {FREE.format(effect="e")}
RETURNING e.attempts, e.key"""
_ANSWERED = """
UPDATE runs_doubt SET settled_at = now(), settled_as = 'sent_again', settled_by = 'engine'
WHERE effect_id = %s AND settled_at IS NULL"""


def take_over(cursor: Cursor, *, effect_id: int, run_id: UUID, step_id: str, from_run: UUID, fence: int) -> bool:
    """Make an effect that nobody is at this run's own, to be repeated with its key. False when somebody was quicker.

    `fence` is the one it was last intended under: a run that comes back to its effect changes it. Needs a transaction
    with the run's row locked.
    """
    params: dict[str, Any] = {"effect": effect_id, "run": run_id, "step": step_id, "from": from_run}
    cursor.execute(_TAKE_OVER, params | {"fence": fence})
    taken = cursor.fetchone()
    if taken is None:
        return False
    cursor.execute(_ANSWERED, [effect_id])
    record_event(
        cursor, run_id, "effect_taken_over", step_id=step_id,
        reason=f"run {from_run} began it and is not at it any more.",
        data={"effect": effect_id, "key": taken[1], "from_run": str(from_run), "attempts_before": taken[0]},
    )  # fmt: skip
    return True
