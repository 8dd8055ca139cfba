"""The ledger: every request counts, whatever came before it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from examples.ledger_desk import store
from examples.ledger_desk.messages import Arrival
from examples.serving.messages import Answer
from examples.serving.service import Received, Service
from examples.serving.storage import open_for_writing


class Book(Service[Arrival]):
    """Entries, the request log, and the faults that are set."""

    def __init__(self, data: Path) -> None:
        path = data / "ledger.sqlite3"
        connection = open_for_writing(path, store.SCHEMA)
        store.forget_unfinished(connection)
        super().__init__(path, connection)

    def receive(self, connection: sqlite3.Connection, arrival: Arrival, *, fault: str, refused: bool) -> Received:
        """Put the request on record. Nothing tells whether it was here before."""
        del refused
        return Received(request_id=store.receive(connection, arrival, fault=fault))

    def work(self, connection: sqlite3.Connection, arrival: Arrival, *, request_id: int, at: float) -> Answer:
        """Book, reverse or look."""
        return store.work(connection, arrival, request_id=request_id, at=at)
