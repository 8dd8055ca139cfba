"""The backend: Django's own, whose connections come from the process's lender and go back to it."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base

from durableops.conf import get_conf
from durableops.engine.bounded.lender import Lender

LENDER = Lender(get_conf().step_connections)
"""Made when Django first loads this module, which is after the fork."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's connection of one thread."""

    def get_new_connection(self, conn_params: Any) -> psycopg.Connection[Any]:
        make = super().get_new_connection
        return LENDER.lend(lambda: make(conn_params))

    def _close(self) -> None:
        if self.connection is not None:
            with self.wrap_database_errors:
                LENDER.take_back(self.connection)
