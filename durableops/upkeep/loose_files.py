"""Files in the storage that nothing names and nothing will: half-written ones, and those that are to be removed."""

from __future__ import annotations

from durableops import failpoints
from durableops.artifacts import storage
from durableops.engine.database import Database
from durableops.failpoints import Point

BATCH = 50

# Once the run is not in that worker's hand, whatever that hand still says is refused by the fence: nothing will ever
# name the file. A row that somebody is just completing is locked, and left for the next look.
_DOOM_LEFT = """
UPDATE runs_loose_file f SET doomed = true WHERE f.id IN (
    SELECT l.id FROM runs_loose_file l
    WHERE NOT l.doomed AND coalesce(l.abandon_after < now(), true) AND NOT EXISTS (
        SELECT 1 FROM runs_run r WHERE r.id = l.run_id AND r.state = 'running' AND r.worker_id = l.worker_id)
    ORDER BY l.id LIMIT %s FOR UPDATE SKIP LOCKED)"""


def remove_some(database: Database) -> int:
    """Remove a batch of them. Returns how many are gone.

    The row goes after the file: a crash in between removes the file a second time, which does nothing.
    """
    with database.transaction() as cursor:
        cursor.execute(_DOOM_LEFT, [BATCH])
    rows = database.fetch("SELECT id, path FROM runs_loose_file WHERE doomed ORDER BY id LIMIT %s", [BATCH])
    for _, path in rows:
        failpoints.reach(Point.BEFORE_FILE_REMOVED)
        storage.remove(path)
        failpoints.reach(Point.AFTER_FILE_REMOVED)
    if rows:
        database.fetch("DELETE FROM runs_loose_file WHERE id = ANY(%s) AND doomed", [[id_ for id_, _ in rows]])
    return len(rows)
