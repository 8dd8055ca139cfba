"""Timers: sleeps and polls that are due, waits that expire. All on the database's clock. Of runs: `clocks`."""

from __future__ import annotations

from uuid import UUID

from durableops.engine import questions
from durableops.engine.database import Database
from durableops.engine.family import cancel_children, close_waits, nudge_parent
from durableops.engine.waking import Closing, close_wait
from durableops.limits.clocks import Clock, Firing, phase_of_wait
from runs.transitions import Cursor, fire, fire_many, record_event

BATCH = 200

# Of what is due, so many of each tenant in a round: ten thousand sleeps of one tenant that end in one moment are spread
# over some rounds, and the only one of another is not behind them.
OF_EACH = BATCH
_EVERY_TENANT_IN_TURN = """
    WITH RECURSIVE turn AS (
        (SELECT x.tenant_id FROM {table} x WHERE {open} ORDER BY x.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT x.tenant_id FROM {table} x WHERE {open} AND x.tenant_id > t.tenant_id
                ORDER BY x.tenant_id LIMIT 1)
        FROM turn t WHERE t.tenant_id IS NOT NULL
    ) SELECT c.id FROM turn t CROSS JOIN LATERAL (
        SELECT {wanted} AS id FROM {table} x WHERE {open} AND x.tenant_id = t.tenant_id AND x.due_at <= now()
        ORDER BY x.due_at LIMIT {of_each}
    ) c WHERE t.tenant_id IS NOT NULL"""
_DUE_WAITS = _EVERY_TENANT_IN_TURN.format(
    table="runs_wait", open="x.state = 'open' AND x.due_at IS NOT NULL", wanted="x.run_id", of_each=OF_EACH
)
_DUE_RUNS = _EVERY_TENANT_IN_TURN.format(
    table="runs_run", open="x.state = 'queued' AND x.deferred", wanted="x.id", of_each=OF_EACH
)
_DUE = f"r.state = 'waiting' AND r.id IN ({_DUE_WAITS}) ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED"
_SETTLE_DUE = """
UPDATE runs_wait SET due_at = NULL, state = CASE WHEN kind = 'time' THEN 'answered' ELSE state END,
    answered_at = CASE WHEN kind = 'time' THEN now() ELSE answered_at END
WHERE run_id = ANY(%s) AND state = 'open' AND due_at <= now()"""


def wake_due(database: Database) -> int:
    """Wake a batch of runs whose sleep or poll turn is due. Returns how many."""
    with database.transaction() as cursor:
        woken = fire_many(
            "wake",
            cursor,
            pick=_DUE,
            sets="wake_cause = 'timer', wake_detail = 'its time has come', woken_at = now(), lost_at = NULL",
            reason="its time has come",
            data="jsonb_build_object('cause', 'timer')",
        )
        if woken:
            cursor.execute(_SETTLE_DUE, [[fired.run_id for fired in woken]])
    return len(woken)


_BRING_IN = f"""
UPDATE runs_run SET deferred = false WHERE id IN (
    SELECT r.id FROM runs_run r WHERE r.state = 'queued' AND r.deferred AND r.id IN ({_DUE_RUNS})
    ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED)"""


def bring_in(database: Database) -> int:
    """Let claims see a batch of queued runs whose time has come. Returns how many."""
    with database.cursor() as cursor:
        cursor.execute(_BRING_IN)
        return cursor.rowcount


_EXPIRED = """
SELECT w.id, w.run_id FROM runs_wait w WHERE w.state = 'open' AND w.expires_at <= now()
ORDER BY w.expires_at LIMIT %s"""
_WAIT = """
SELECT w.kind, w.name, w.on_timeout, w.step_id, extract(epoch FROM w.expires_at - w.opened_at)::float8,
    extract(epoch FROM now() - w.opened_at)::float8, r.state, r.step_attempts, r.fence, w.clock
FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
WHERE w.id = %s AND w.state = 'open' AND w.expires_at <= now()"""
_LOCK = "SELECT 1 FROM runs_run r WHERE r.id = %s FOR NO KEY UPDATE"
_EXTEND = """
UPDATE runs_wait SET expires_at = greatest(now(), expires_at + (expires_at - opened_at)), on_timeout = 'raise'
WHERE id = %s"""
_ASKED = "UPDATE runs_wait SET expires_at = NULL, on_timeout = 'asked' WHERE id = %s"
_ENDS = {"cancel": "cancelled", "fail": "timed_out"}


def expire_waits(database: Database) -> int:
    """Fire the clocks of waits that have expired, each by its own policy. Returns how many were looked at."""
    rows = database.fetch(_EXPIRED, [BATCH])
    for wait_id, run_id in rows:
        with database.transaction() as cursor:
            ended = _expire(cursor, wait_id, run_id)
        if ended:
            nudge_parent(database, run_id)
    return len(rows)


def _expire(cursor: Cursor, wait_id: int, run_id: UUID) -> bool:
    """Expire one wait; the run's row is locked first. Returns whether the run ended with it."""
    # Two statements: one that locks and reads at once would, after having waited for an answer to commit, still see
    # the wait as it was before, and end a run whose wait was answered in time.
    cursor.execute(_LOCK, [run_id])
    cursor.execute(_WAIT, [wait_id])
    row = cursor.fetchone()
    if row is None:
        return False
    kind, name, policy, step_id, limit, elapsed, state, attempts, fence, clock = row
    if clock:
        return questions.answer(cursor, run_id, wait_id, yes=False, by="nobody's answer")
    ends = policy in _ENDS and state == "waiting"
    after = {**_ENDS, "extend": state, "ask": state} if state == "waiting" else {"extend": state, "ask": state}
    firing = Firing(
        clock=Clock.WAIT_TIMEOUT,
        limit_seconds=limit,
        trigger=f"{kind} {name!r} was not answered",
        elapsed_seconds=elapsed,
        phase=phase_of_wait(kind),
        next_state=after.get(policy, "queued"),
        whom=f"{kind} {name}",
        more={"wait": wait_id, "kind": kind, "name": name, "policy": policy},
    )
    means = {"extend": "it is waited for once more as long", "ask": "a person is asked"}
    detail = f"{kind} {name!r} expired; " + (
        f"{policy}, by its policy" if ends else means.get(policy, "the step goes on")
    )
    record_event(
        cursor, run_id, "wait_timeout", reason=detail, step_id=step_id, attempt=attempts, fence=fence,
        data=firing.as_data(),
    )  # fmt: skip
    if policy == "extend":
        cursor.execute(_EXTEND, [wait_id])
        return False
    if policy == "ask":
        cursor.execute(_ASKED, [wait_id])
        questions.put(cursor, run_id, firing.as_data(), was=state, about=wait_id)
        return False
    if kind == "children":
        cancel_children(cursor, run_id, actor="upkeep", reason=f"its parent waits no longer: {detail}", of_wait=wait_id)
    if not ends:
        closing = Closing(state="expired", cause="wait_timeout", detail=detail)
        close_wait(cursor, run_id=run_id, wait_id=wait_id, closing=closing)
        return False
    cursor.execute("UPDATE runs_wait SET state = 'expired', answered_at = now() WHERE id = %s", [wait_id])
    fire("cancel" if policy == "cancel" else "expire", run_id, using=cursor, actor="upkeep", reason=detail)
    close_waits(cursor, [run_id])
    cancel_children(cursor, run_id, actor="upkeep", reason=f"its parent ended: {detail}")
    return True
