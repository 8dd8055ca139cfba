"""The database connections of Django code in a worker: few, lent to the thread that uses one, given back soon."""

from __future__ import annotations

import sys

from django.db import close_old_connections, connections

BACKEND = "durableops.engine.bounded"


def limit_connections() -> None:
    """From now on, Django's connections of this process come from a bounded stock. For a process that just forked."""
    for alias in connections:
        connections[alias].close()
        del connections[alias]
        connections.settings[alias]["ENGINE"] = BACKEND


def let_go() -> None:
    """Give back what this thread has, unless it is in the middle of a transaction. Costs nothing without one."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["ENGINE"] != BACKEND:
            close_old_connections()
            return
        if connection.connection is not None and not connection.in_atomic_block:
            connection.close()


def in_transaction() -> bool:
    """Whether this thread's code is inside a transaction of its own."""
    return any(connection.in_atomic_block for connection in connections.all(initialized_only=True))


def open_connections() -> int:
    """How many Django connections this process has just now."""
    backend = sys.modules.get(f"{BACKEND}.base")
    return 0 if backend is None else int(backend.LENDER.open_connections)
