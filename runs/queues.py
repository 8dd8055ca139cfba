"""The controlled queues of legacy systems: one call at a time on the wire, in the order of their places.

Who dispatches, frees or asks who is next holds the system's row, which comes after the rows of runs in the order of
locks; what is read after it was locked is read anew. So of a call that ends and a run that goes to wait for its turn,
whoever comes second sees what the first did. The unique index on `holds_system` stands behind it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runs import sharing
from runs.fenced import SWITCHED_OFF
from runs.transitions import Cursor, TransitionRefused, fire

TURN_SECONDS = 10.0
"""How long a run that is not waiting may keep others behind its place before they go past it: it was woken and not
taken by a worker yet, or is in a worker's hand and busy with something else."""

_LOCK = "SELECT s.paused, s.paused_by FROM runs_system s WHERE s.name = %(system)s FOR NO KEY UPDATE"


def able(r: str) -> str:
    """Whether run `r` of queued call `o` may take its turn: nobody waits behind the place of one that may not."""
    return f"""NOT {r}.paused AND NOT {r}.cancel_requested AND coalesce({r}.deadline_at > now(), true)
    AND NOT {SWITCHED_OFF.format(run=r)}
    AND (({r}.state IN ('running', 'queued') AND {r}.state_since > now() - {TURN_SECONDS} * interval '1 second')
        OR ({r}.state = 'waiting' AND EXISTS (SELECT 1 FROM runs_wait w
            WHERE w.run_id = {r}.id AND w.state = 'open' AND w.kind = 'turn' AND w.name = o.system
              AND w.correlation = '')))"""


_QUEUED = "o.system = {system} AND o.state = 'queued' AND o.safety = 'legacy'"

_DISPATCH = f"""
UPDATE runs_effect e SET state = 'intended', holds_system = true, fence = r.fence, intended_at = now(),
    send_before = now() + %(seconds)s * interval '1 second',
    quiet_after = now() + 2 * %(seconds)s * interval '1 second', error_class = '', error_message = ''
FROM runs_run r
WHERE e.id = %(effect)s AND r.id = e.run_id
  -- On the wire already: the answer to the commit that dispatched it was lost, and nothing has been sent.
  AND (e.state = 'queued' OR e.state = 'intended')
  AND NOT EXISTS (SELECT 1 FROM runs_effect h WHERE h.system = e.system AND h.holds_system AND h.id <> e.id)
  AND NOT EXISTS (
    SELECT 1 FROM runs_effect o JOIN runs_run b ON b.id = o.run_id
    WHERE {_QUEUED.format(system="e.system")} AND o.queue_order < e.queue_order AND o.run_id <> e.run_id
      AND {able("b")})
RETURNING e.id"""
_HOLDER = "SELECT h.id, h.run_id, h.state FROM runs_effect h WHERE h.system = %(system)s AND h.holds_system"
_NEXT = f"""
SELECT o.run_id, r.state FROM runs_effect o JOIN runs_run r ON r.id = o.run_id
WHERE {_QUEUED.format(system="%(system)s")} AND {able("r")} ORDER BY o.queue_order LIMIT 1"""
_TAKE = "SELECT 1 FROM runs_run r WHERE r.id = %s AND r.state = 'waiting' FOR NO KEY UPDATE SKIP LOCKED"
_CLOSE = """
UPDATE runs_wait SET state = 'answered', answered_at = now(), answered_by = ''
WHERE run_id = %s AND kind = 'turn' AND name = %s AND correlation = '' AND state = 'open'"""
_ASKERS = """
SELECT r.id, w.id, w.name FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
WHERE w.kind = 'turn' AND w.state = 'open' AND r.state = 'waiting' AND w.correlation = %(asked)s
  AND w.name = (SELECT e.tool FROM runs_effect e WHERE e.id = %(effect)s)
ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED"""
_CLOSE_ASKED = "UPDATE runs_wait SET state = 'answered', answered_at = now() WHERE id = %s AND state = 'open'"
_OF_RUN = """
SELECT DISTINCT o.system FROM runs_effect o
WHERE o.run_id = ANY(%s) AND o.state = 'queued' AND o.safety = 'legacy'"""
_STUCK = """
SELECT s.name FROM runs_system s
WHERE NOT s.paused AND EXISTS (
    SELECT 1 FROM runs_effect o WHERE o.system = s.name AND o.state = 'queued' AND o.safety = 'legacy')
  AND NOT EXISTS (SELECT 1 FROM runs_effect h WHERE h.system = s.name AND h.holds_system)
ORDER BY s.name"""


def dispatch(cursor: Cursor, *, system: str, effect_id: int, seconds: float) -> tuple[bool, Any]:
    """Put a queued call on the wire if it is its turn. Returns whether it is, and otherwise who holds the system.

    The holder is (effect, run, state), or None when nobody does: the system is paused, or others come first. `seconds`
    is how long from now it may be sent, and how long its answer may then take. Needs the run's row locked.
    """
    cursor.execute(_LOCK, {"system": system})
    paused = cursor.fetchone()
    if paused is not None and not paused[0]:
        cursor.execute(_DISPATCH, {"effect": effect_id, "seconds": seconds})
        if cursor.fetchone() is not None:
            return True, None
    cursor.execute(_HOLDER, {"system": system})
    return False, cursor.fetchone()


def wake_next(cursor: Cursor, system: str) -> UUID | None:
    """Wake the run whose turn it is, if it waits for it and nothing holds the system. Returns which was woken.

    One whose row somebody else has locked is left to the sweep. Needs a transaction.
    """
    cursor.execute(_LOCK, {"system": system})
    paused = cursor.fetchone()
    if paused is None or paused[0]:
        return None
    cursor.execute(_HOLDER, {"system": system})
    if cursor.fetchone() is not None:
        return None
    cursor.execute(_NEXT, {"system": system})
    found = cursor.fetchone()
    if found is None or found[1] != "waiting":
        return None
    return found[0] if _wake(cursor, found[0], system) else None


def asked(effect_id: int) -> str:
    """How the wait of a run names the effect of another run that it asks for."""
    return f"effect:{effect_id}"


def wake_askers(cursor: Cursor, effect_id: int) -> list[UUID]:
    """Wake every run that waits for what becomes of this effect of another run. Needs a transaction.

    One whose row somebody else has locked is left to the sweep.
    """
    cursor.execute(_ASKERS, {"asked": asked(effect_id), "effect": effect_id})
    found = cursor.fetchall()
    for run_id, wait_id, tool in found:
        cursor.execute(_CLOSE_ASKED, [wait_id])
        _fire_wake(cursor, run_id, detail=f"what it asked of {tool} has an outcome", data={"effect": effect_id})
    return [row[0] for row in found]


_LEFT_ASKING = f"""
SELECT w.run_id, w.correlation FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
JOIN runs_effect e ON e.id = substring(w.correlation FROM 8)::bigint JOIN runs_run o ON o.id = e.run_id
WHERE w.kind = 'turn' AND w.state = 'open' AND w.correlation LIKE 'effect:%%' AND r.state = 'waiting' AND (
    e.state NOT IN ('queued', 'intended', 'in_doubt')
    OR (({sharing.FREE.format(effect="e")}) AND NOT EXISTS (
        SELECT 1 FROM runs_wait f JOIN runs_run b ON b.id = f.run_id
        WHERE f.kind = 'turn' AND f.state = 'open' AND f.correlation = w.correlation AND f.name = w.name
          AND b.state = 'waiting' AND f.id < w.id)))
ORDER BY w.run_id LIMIT %(limit)s"""
_SEE = f"""
SELECT w.id, w.name FROM runs_wait w JOIN runs_effect e ON e.id = %(effect)s JOIN runs_run o ON o.id = e.run_id
WHERE w.run_id = %(run)s AND w.kind = 'turn' AND w.correlation = %(asked)s AND w.state = 'open'
  AND (e.state NOT IN ('queued', 'intended', 'in_doubt') OR ({sharing.FREE.format(effect="e")}))"""


def wake_asker(cursor: Cursor, run_id: UUID, asked: str) -> bool:
    """Wake a run that waits for another one's effect, if that has an outcome or nobody is at it. Its row is locked."""
    cursor.execute(_SEE, {"run": run_id, "asked": asked, "effect": int(asked.partition(":")[2])})
    found = cursor.fetchone()
    if found is None:
        return False
    cursor.execute(_CLOSE_ASKED, [found[0]])
    return _fire_wake(cursor, run_id, detail=f"what it asked of {found[1]} has an outcome, or nobody is at it", data={})


def left_asking(cursor: Cursor, *, limit: int) -> list[tuple[UUID, str]]:
    """Runs that wait for what another one does, although it has an outcome; and one for each that nobody is at."""
    cursor.execute(_LEFT_ASKING, {"limit": limit})
    found: list[tuple[UUID, str]] = cursor.fetchall()
    return found


def wake_asker_if_free(cursor: Cursor, run_id: UUID, asked: str) -> bool:
    """The same as `wake_asker`, for whoever has not locked the run. Needs a transaction."""
    cursor.execute(_TAKE, [run_id])
    return cursor.fetchone() is not None and wake_asker(cursor, run_id, asked)


def _wake(cursor: Cursor, run_id: UUID, system: str) -> bool:
    cursor.execute(_TAKE, [run_id])
    if cursor.fetchone() is None:
        return False
    cursor.execute(_CLOSE, [run_id, system])
    return _fire_wake(cursor, run_id, detail=f"it is its turn at {system}", data={"system": system})


def _fire_wake(cursor: Cursor, run_id: UUID, *, detail: str, data: dict[str, Any]) -> bool:
    cursor.execute("SELECT clock_timestamp()")
    sets = {"wake_cause": "turn", "wake_detail": detail, "woken_at": cursor.fetchone()[0], "lost_at": None}
    try:
        fire("wake", run_id, using=cursor, reason=detail, data={"cause": "turn", **data}, sets=sets)
    except TransitionRefused:
        return False
    return True


def systems_of(cursor: Cursor, runs: list[UUID]) -> list[str]:
    """The systems in whose queues these runs have a place, in the order in which their rows are locked."""
    cursor.execute(_OF_RUN, [runs])
    return sorted(row[0] for row in cursor.fetchall())


def stuck(cursor: Cursor) -> list[str]:
    """Systems that nothing holds and nobody paused, and in whose queues somebody stands."""
    cursor.execute(_STUCK)
    return [row[0] for row in cursor.fetchall()]
