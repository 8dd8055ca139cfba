"""The thread of upkeep that executes bulk actions, apart from the rounds: a long one delays no timer and no reaper."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from durableops.conf import get_conf
from durableops.engine import reviewing as reviewing  # its bulk verb is known by being imported
from durableops.engine.bulk.executing import execute_batch
from durableops.engine.database import Database

logger = logging.getLogger("durableops.bulk")
BATCH = 50
PATIENCE_SECONDS = 1.0
"""After a batch that settled nothing: what is left is locked by somebody, or the database is away."""
ABANDONED_AFTER = "1 day"

_ABANDONED = f"""
DELETE FROM runs_bulk_item WHERE bulk_id IN (
    SELECT b.id FROM runs_bulk b WHERE b.state = 'preview' AND b.created_at < now() - interval '{ABANDONED_AFTER}'
    ORDER BY b.created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING bulk_id"""


class BulkThread(threading.Thread):
    """Sleeps until somebody says that there is something to execute."""

    def __init__(self) -> None:
        super().__init__(name="bulk", daemon=True)
        self._poked = threading.Event()
        self._over = threading.Event()

    def poke(self) -> None:
        """There is a running bulk action."""
        self._poked.set()

    def end(self, timeout: float = 5.0) -> None:
        """Stop after the run in hand."""
        self._over.set()
        self._poked.set()
        if self.is_alive():
            self.join(timeout)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._poked.wait()
                self._poked.clear()
                threads = max(1, get_conf().bulk_threads)
                with ThreadPoolExecutor(threads, thread_name_prefix="bulk") as pool:
                    while not self._over.is_set() and any(list(pool.map(_batch, range(threads)))):
                        pass
                self._over.wait(PATIENCE_SECONDS)
        finally:
            connection.close()


def _batch(_: int) -> int:
    """Some runs of each running action, beside the other threads: what one of them has in hand, the others leave."""
    try:
        return execute_batch(BATCH)
    except (OperationalError, InterfaceError) as error:
        logger.warning("bulk actions wait for the database: %s", str(error).splitlines()[0])
    except DatabaseError:
        logger.exception("a bulk action met an error of the database")
    finally:
        connection.close()
    return 0


def forget_previews(database: Database) -> int:
    """Remove a preview that nobody started within a day. Returns how many were removed."""
    with database.transaction() as cursor:
        cursor.execute(_ABANDONED)
        gone = sorted({row[0] for row in cursor.fetchall()})
        if gone:
            cursor.execute("DELETE FROM runs_bulk WHERE id = ANY(%s) AND state = 'preview'", [gone])
    return len(gone)
