"""The way of one request through a service: record it, strike, work, record the outcome; sockets live in web.py."""

from __future__ import annotations

import math
import sqlite3
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from examples.serving.faults import Arrival, Fault, FaultBook
from examples.serving.journal import Journal
from examples.serving.messages import Answer, problem
from examples.serving.storage import finish


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request that is on record."""

    request_id: int
    answer: Answer | None = None
    """The answer to give at once; None when the work is still to be done."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer and how it is to be sent."""

    request_id: int
    answer: Answer | None
    """None: close the connection without a word."""
    send_seconds: float = 0.0
    """Spread the bytes over this time."""


class Service[A: Arrival](ABC):
    """A request log, and the faults that are set. What a request is worth, and what it does, a subclass says."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.faults = FaultBook()
        self._journal = Journal(connection)

    @abstractmethod
    def receive(self, connection: sqlite3.Connection, arrival: A, *, fault: str, refused: bool) -> Received:
        """Put a request on record; one that is `refused` does nothing else."""

    @abstractmethod
    def work(self, connection: sqlite3.Connection, arrival: A, *, request_id: int, at: float) -> Answer:
        """Do what was asked and close the request, in the caller's transaction."""

    def close(self) -> None:
        """Let held requests go and commit what is in hand."""
        self.faults.release_all()
        self._journal.close()

    def handle(self, arrival: A) -> Reply:
        """Answer one request, as it and the faults that are set demand."""
        fault = self.faults.strike(arrival)
        received = self._journal.record(
            lambda connection: self.receive(
                connection,
                arrival,
                fault=f"{fault.wanted.kind} {fault.wanted.when}" if fault else "",
                refused=bool(fault and fault.refuses),
            )
        )
        if fault and fault.refuses:
            return self._refuse(received.request_id, fault)
        if fault and fault.wanted.when == "before":
            self._pause(fault)
        answer = received.answer or self._journal.record(
            lambda connection: self.work(connection, arrival, request_id=received.request_id, at=time.time())
        )
        if fault and fault.wanted.when == "after":
            return self._spoil(received.request_id, fault, answer)
        return Reply(request_id=received.request_id, answer=answer)

    def note_client_gone(self, request_id: int) -> None:
        """Record that an answer found nobody to read it."""
        self._journal.record(
            lambda connection: connection.execute("UPDATE requests SET client_gone = 1 WHERE id = ?", (request_id,))
        )

    def _refuse(self, request_id: int, fault: Fault) -> Reply:
        self._pause(fault)
        answer, outcome = _refusal(fault)
        self._journal.record(
            lambda connection: finish(
                connection, request_id, outcome=outcome, status=answer.status if answer else None, at=time.time()
            )
        )
        return Reply(request_id=request_id, answer=answer)

    def _spoil(self, request_id: int, fault: Fault, answer: Answer) -> Reply:
        kind = fault.wanted.kind
        if kind == "slow":
            return Reply(request_id=request_id, answer=answer, send_seconds=fault.wanted.seconds)
        if kind in ("drop", "limit", "error", "refuse"):
            return Reply(request_id=request_id, answer=_refusal(fault)[0])
        self._pause(fault)
        return Reply(request_id=request_id, answer=answer)

    def _pause(self, fault: Fault) -> None:
        if fault.wanted.kind == "hold":
            self.faults.hold(fault)
        elif fault.wanted.kind in ("delay", "timeout"):
            fault.released.wait(fault.wanted.seconds)


def _refusal(fault: Fault) -> tuple[Answer | None, str]:
    """The answer instead of the right one, and the outcome it goes by in the log."""
    if fault.wanted.kind == "limit":
        headers = {"Retry-After": str(math.ceil(fault.wanted.retry_after))}
        return problem(429, "too many requests; ask again later", headers), "limited"
    if fault.wanted.kind == "error":
        return problem(500, "the service failed; nothing is known about this request"), "failed"
    if fault.wanted.kind == "refuse":
        return problem(422, "the service will not do this; asking again changes nothing"), "refused"
    return None, "dropped"
