"""Sessions that a stopped process left in the middle of a pipeline, with locks on rows that everybody else needs.

`idle_in_transaction_session_timeout` ends a session that stands still between two statements of a transaction. One that
was sent statements and not yet told to go on is active for the server, whatever it waits for, and would keep its locks
for as long as its process stands still (C017).
"""

from __future__ import annotations

import logging

from durableops.conf import get_conf
from durableops.engine.database import Database

logger = logging.getLogger("durableops.upkeep")

_END = """
SELECT a.application_name, extract(epoch FROM clock_timestamp() - a.query_start)::float8, pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
  AND a.application_name LIKE 'durableops %%' AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.query_start < clock_timestamp() - make_interval(secs => %s)"""


def end(database: Database) -> int:
    """End those that have waited for their process longer than a lease. Returns how many. Raises ConnectionLost.

    A process that still lives, and only was that slow, takes it for a lost connection: it finds out what became of its
    commit and goes on.
    """
    found = database.fetch(_END, [get_conf().lease_seconds])
    for name, seconds, _ in found:
        logger.warning(
            "a session of %r was ended: its process left it in the middle of a commit for %.1f s", name, seconds
        )
    return len(found)
