"""The desk: what one ticket request is worth, and what it does."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from examples.serving.messages import Answer
from examples.serving.service import Received, Service
from examples.serving.storage import open_for_writing
from examples.ticket_desk import store
from examples.ticket_desk.messages import Arrival


class Desk(Service[Arrival]):
    """Tickets, keys, the request log, and the faults that are set."""

    def __init__(self, data: Path, *, key_retention_seconds: float) -> None:
        path = data / "desk.sqlite3"
        self._key_retention_seconds = key_retention_seconds
        connection = open_for_writing(path, store.SCHEMA)
        store.forget_unfinished(connection)
        super().__init__(path, connection)

    def receive(self, connection: sqlite3.Connection, arrival: Arrival, *, fault: str, refused: bool) -> Received:
        """Put the request on record and, unless it is refused, take its key."""
        return store.receive(
            connection, arrival, fault=fault, claim=not refused, key_retention_seconds=self._key_retention_seconds
        )

    def work(self, connection: sqlite3.Connection, arrival: Arrival, *, request_id: int, at: float) -> Answer:
        """Open the ticket."""
        return store.open_ticket(connection, arrival, request_id=request_id, at=at)
