"""The desk's handling of one ticket request: record, strike, work, record; sockets live in web.py."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from examples.ticket_desk import store
from examples.ticket_desk.faults import Fault, FaultBook
from examples.ticket_desk.journal import Journal
from examples.ticket_desk.messages import Answer, Arrival, problem


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer and how it is to be sent."""

    request_id: int
    answer: Answer | None
    """None: close the connection without a word."""
    send_seconds: float = 0.0
    """Spread the bytes over this time."""


class Desk:
    """Tickets, keys, the request log, and the faults that are set."""

    def __init__(self, data: Path, *, key_retention_seconds: float) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.path = data / "desk.sqlite3"
        self.faults = FaultBook()
        self._key_retention_seconds = key_retention_seconds
        connection = store.open_for_writing(self.path)
        store.forget_unfinished(connection)
        self._journal = Journal(connection)

    def close(self) -> None:
        """Let held requests go and commit what is in hand."""
        self.faults.release_all()
        self._journal.close()

    def handle(self, arrival: Arrival) -> Reply:
        """Answer one ticket request, as its key and the faults that are set demand."""
        fault = self.faults.strike(arrival)
        received = self._journal.record(
            lambda connection: store.receive(
                connection,
                arrival,
                fault=f"{fault.wanted.kind} {fault.wanted.when}" if fault else "",
                claim=not (fault and fault.refuses),
                key_retention_seconds=self._key_retention_seconds,
            )
        )
        if fault and fault.refuses:
            return self._refuse(received.request_id, fault)
        if fault and fault.wanted.when == "before":
            self._pause(fault)
        answer = received.answer or self._work(arrival, received.request_id)
        if fault and fault.wanted.when == "after":
            return self._spoil(received.request_id, fault, answer)
        return Reply(request_id=received.request_id, answer=answer)

    def note_client_gone(self, request_id: int) -> None:
        """Record that an answer found nobody to read it."""
        self._journal.record(lambda connection: store.note_client_gone(connection, request_id))

    def _work(self, arrival: Arrival, request_id: int) -> Answer:
        return self._journal.record(
            lambda connection: store.open_ticket(connection, arrival, request_id=request_id, at=time.time())
        )

    def _refuse(self, request_id: int, fault: Fault) -> Reply:
        answer, outcome = _refusal(fault)
        self._journal.record(
            lambda connection: store.finish(
                connection, request_id, outcome=outcome, status=answer.status if answer else None, at=time.time()
            )
        )
        return Reply(request_id=request_id, answer=answer)

    def _spoil(self, request_id: int, fault: Fault, answer: Answer) -> Reply:
        kind = fault.wanted.kind
        if kind == "slow":
            return Reply(request_id=request_id, answer=answer, send_seconds=fault.wanted.seconds)
        if kind in ("drop", "limit", "error"):
            return Reply(request_id=request_id, answer=_refusal(fault)[0])
        self._pause(fault)
        return Reply(request_id=request_id, answer=answer)

    def _pause(self, fault: Fault) -> None:
        if fault.wanted.kind == "hold":
            self.faults.hold(fault)
        elif fault.wanted.kind in ("delay", "timeout"):
            fault.released.wait(fault.wanted.seconds)


def _refusal(fault: Fault) -> tuple[Answer | None, str]:
    """The answer instead of the ticket's, and the outcome it goes by in the log."""
    if fault.wanted.kind == "limit":
        headers = {"Retry-After": str(math.ceil(fault.wanted.retry_after))}
        return problem(429, "too many requests; ask again later", headers), "limited"
    if fault.wanted.kind == "error":
        return problem(500, "the desk failed; nothing is known about this request"), "failed"
    return None, "dropped"
