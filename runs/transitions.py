"""`fire()` and the set-based moves of upkeep: with `fenced` and `claiming`, the only writers of a run's state.

All of them are one statement that locks the row, compares the state with the table in `states`, writes the new
state and inserts the event. Statements of a run's holder live in `fenced`, the claim in `claiming`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from django.db import connection

from runs.states import TERMINAL, TRANSITIONS, State, sources


class Cursor(Protocol):
    """What a statement needs: a DB-API cursor of Django or of psycopg."""

    def execute(self, query: Any, params: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...


class TransitionRefused(Exception):
    """The event does not fit the run as it is. Nothing was changed."""

    def __init__(self, *, event: str, run_id: UUID, state: str, fence: int | None) -> None:
        self.event, self.run_id, self.state, self.fence = event, run_id, state, fence
        wanted = " or ".join(sources(event))
        super().__init__(f"run {run_id} is {state or 'missing'}; '{event}' needs {wanted}.")


@dataclass(frozen=True, kw_only=True)
class Fired:
    """A move that happened."""

    run_id: UUID
    from_state: str
    to_state: str
    tenant_id: int
    parent_id: UUID | None


SOON_SECONDS = 0.5
"""A queued run that is due later than this is kept out of the claim's sight until upkeep brings it in."""


def sets_for(target: State) -> str:
    """The assignments every move to `target` shares. A queued run is due `delay` seconds from now."""
    return ", ".join(
        [
            f"state = '{target}'",
            "state_since = now()",
            # Whatever ends a hold gives its places back. The claim says which ones it took.
            *([] if target is State.RUNNING else ["worker_id = NULL", "slot = NULL", "resource_slot = NULL"]),
            "due_at = now() + %(delay)s * interval '1 second'" if target is State.QUEUED else "due_at = NULL",
            f"deferred = %(delay)s > {SOON_SECONDS}" if target is State.QUEUED else "deferred = false",
            "finished_at = now()" if target in TERMINAL else "finished_at = NULL",
            # The clock of the queue begins when it could be claimed.
            "queue_expires_at = now() + (%(delay)s + queue_seconds) * interval '1 second'"
            if target is State.QUEUED
            else "queue_expires_at = NULL",
        ]
    )


@lru_cache(maxsize=256)
def statement(event: str, *, pick: str, sets: str = "", guard: str = "true", data: str = "%(data)s::jsonb") -> str:
    """One statement that fires `event` for the rows `pick` locks (a WHERE … with its FOR UPDATE clause on `r`).

    `sets` are further assignments, `guard` a condition on the locked row `b`, `data` the event's data as SQL.
    """
    edge = TRANSITIONS[event]
    allowed = ", ".join(f"'{s}'" for s in sources(event))
    return f"""
        WITH before AS MATERIALIZED (
            SELECT r.id, r.state, r.fence, r.step_id, r.step_attempts, r.worker_id, r.recoveries, r.tenant_id,
            r.parent_id
            FROM runs_run r WHERE {pick}
        ), moved AS (
            UPDATE runs_run r SET {sets_for(edge.target)}{", " + sets if sets else ""}
            FROM before b
            WHERE r.id = b.id AND b.state IN ({allowed}) AND ({guard})
            RETURNING r.id, r.state
        ), history AS (
            INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id,
                                    actor, reason, data)
            SELECT b.id, now(), '{event}', b.state, m.state, b.step_id, b.step_attempts, b.fence, b.worker_id,
                   %(actor)s, %(reason)s, {data}
            FROM moved m JOIN before b ON b.id = m.id
        )
        SELECT b.id, b.state, b.fence, m.state, b.tenant_id, b.parent_id
        FROM before b LEFT JOIN moved m ON m.id = b.id
    """


def fire(
    event: str,
    run_id: UUID,
    *,
    using: Cursor | None = None,
    fence: int | None = None,
    delay: float = 0.0,
    actor: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
) -> Fired:
    """Move one run along `event`, with its history row, in one statement.

    `fence` is compared under the row's lock when given. `sets` names further columns of the run and their values.
    Raises `TransitionRefused` when the run is missing, is in another state, or is held under another fence.
    """
    extra = dict(sets or {})
    text = statement(
        event,
        pick="r.id = %(run)s FOR NO KEY UPDATE",
        sets=", ".join(f"{_column(event, name)} = %(set_{name})s" for name in sorted(extra)),
        guard="true" if fence is None else "b.fence = %(fence)s",
    )
    params = {
        "run": run_id,
        "fence": fence,
        "delay": delay,
        "actor": actor,
        "reason": reason,
        "data": json.dumps(dict(data or {})),
        **{f"set_{name}": value for name, value in extra.items()},
    }
    if using is None:
        with connection.cursor() as cursor:
            return _fire(cursor, text, params, event, run_id)
    return _fire(using, text, params, event, run_id)


def _fire(cursor: Cursor, text: str, params: dict[str, Any], event: str, run_id: UUID) -> Fired:
    cursor.execute(text, params)
    row = cursor.fetchone()
    if row is None or row[3] is None:
        raise TransitionRefused(event=event, run_id=run_id, state=row[1] if row else "", fence=row[2] if row else None)
    return Fired(run_id=row[0], from_state=row[1], to_state=row[3], tenant_id=row[4], parent_id=row[5])


def fire_many(
    event: str,
    cursor: Cursor,
    *,
    pick: str,
    params: Mapping[str, Any] | None = None,
    sets: str = "",
    reason: str = "",
    data: str = "'{}'::jsonb",
) -> list[Fired]:
    """Move every run that `pick` locks (it must end in an ordered, bounded FOR NO KEY UPDATE … SKIP LOCKED)."""
    text = statement(event, pick=pick, sets=sets, data=data)
    cursor.execute(text, {"delay": 0.0, "actor": "upkeep", "reason": reason, **(params or {})})
    return [
        Fired(run_id=r[0], from_state=r[1], to_state=r[3], tenant_id=r[4], parent_id=r[5])
        for r in cursor.fetchall()
        if r[3] is not None
    ]


def record_event(
    cursor: Cursor,
    run_id: UUID,
    event: str,
    *,
    actor: str = "",
    reason: str = "",
    step_id: str = "",
    attempt: int = 0,
    fence: int = 0,
    worker_id: UUID | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add a history row that moves nothing: a refused late result, a clock that fired, a flag a person set."""
    cursor.execute(
        "INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor,"
        " reason, data) VALUES (%s, now(), %s, '', '', %s, %s, %s, %s, %s, %s, %s::jsonb)",
        [run_id, event, step_id, attempt, fence, worker_id, actor, reason, json.dumps(dict(data or {}))],
    )


_SETTABLE = frozenset(
    {
        "paused",
        "paused_by",
        "cancel_requested",
        "cancel_requested_by",
        "cancel_reason",
        "deadline_at",
        "deadline_policy",
        "wake_cause",
        "wake_detail",
        "lost_at",
        "woken_at",
        "step_attempts",
        "recoveries",
        "error_class",
        "error_message",
        "error_fingerprint",
    }
)


# Only the move that begins a new lineage says where the run is; otherwise its holder's commits do.
_POSITION = frozenset({"lineage", "head_seq", "state_seq", "step_id", "step_entries", "cursor", "isolated", "resource"})


def _column(event: str, name: str) -> str:
    if name not in _SETTABLE and not (event == "branch" and name in _POSITION):
        raise ValueError(f"column {name!r} is not set by a transition; add it to the list if it should be.")
    return name
