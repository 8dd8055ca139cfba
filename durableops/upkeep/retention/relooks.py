"""Looking again: after a rule, a hold or a request changed, the runs that it concerns are due for a look at once."""

from __future__ import annotations

from typing import Any

from durableops.engine.database import Database

BATCH = 2000

_NEXT = """
SELECT l.id, l.tenant_id, l.workflow, l.run_id, l.label, l.value, l.at, l.after_at, l.after_id FROM runs_relook l
WHERE l.done_at IS NULL ORDER BY l.id LIMIT 1 FOR UPDATE SKIP LOCKED"""
_ONE_RUN = "UPDATE runs_run SET retain_at = %(at)s WHERE id = %(run)s AND retain_at > %(at)s"
# Walked along the index of looks, backwards: what is moved to the front is behind us. Rows are chosen by it alone, a
# bounded number, and filtered after; those that somebody holds are due for a look by themselves soon enough.
_BATCH = """
WITH seen AS MATERIALIZED (
    SELECT r.id, r.retain_at, r.tenant_id, r.workflow, r.labels FROM runs_run r
    WHERE r.retain_at > %(at)s AND (r.retain_at, r.id) < (%(after_at)s, %(after_id)s)
    ORDER BY r.retain_at DESC, r.id DESC LIMIT %(batch)s
), mine AS MATERIALIZED (
    SELECT r.id FROM runs_run r JOIN seen s ON s.id = r.id
    WHERE (%(tenant)s::int IS NULL OR s.tenant_id = %(tenant)s)
      AND (%(workflow)s = '' OR s.workflow = %(workflow)s)
      AND (%(label)s = '' OR s.labels ->> %(label)s = %(value)s)
    ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED
), moved AS (
    UPDATE runs_run r SET retain_at = %(at)s FROM mine m WHERE r.id = m.id AND r.retain_at > %(at)s RETURNING r.id
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM seen),
    (SELECT s.retain_at::text FROM seen s ORDER BY s.retain_at, s.id LIMIT 1),
    (SELECT s.id FROM seen s ORDER BY s.retain_at, s.id LIMIT 1)"""


def look_again_at_all(database: Database) -> None:
    """Follow every request that is there."""
    while look_again(database):
        pass


def look_again(database: Database) -> bool:
    """Take one batch of one request. Returns whether there was anything to do."""
    with database.transaction() as cursor:
        cursor.execute(_NEXT)
        row = cursor.fetchone()
        if row is None:
            return False
        id_, tenant, workflow, run, label, value, at, after_at, after_id = row
        place: dict[str, Any] = {"at": at, "tenant": tenant, "workflow": workflow, "label": label, "value": value}
        if run is not None:
            cursor.execute(_ONE_RUN, {"at": at, "run": run})
            cursor.execute("UPDATE runs_relook SET done_at = now() WHERE id = %s", [id_])
            return True
        place |= {"after_at": after_at or "infinity", "after_id": after_id or "f" * 32, "batch": BATCH}
        cursor.execute(_BATCH, place)
        answer = cursor.fetchone()
        assert answer is not None
        _moved, seen, last_at, last_id = answer
        if seen < BATCH:
            cursor.execute("UPDATE runs_relook SET done_at = now() WHERE id = %s", [id_])
        else:
            cursor.execute(
                "UPDATE runs_relook SET after_at = %s, after_id = %s WHERE id = %s", [last_at, last_id, id_]
            )  # fmt: skip
    return True
