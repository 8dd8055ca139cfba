"""What the desk reads and writes: the checked request and its answer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from examples.serving.messages import Answer, BadRequest, json_answer, read_object, read_text


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One `POST /tickets`, read and checked."""

    key: str
    """The `Idempotency-Key`, or empty: then every request opens a ticket."""
    body_hash: str
    """sha256 of the bytes as they came."""
    received_at: float
    """Seconds since the epoch."""
    reference: str
    """What the ticket is about, in the sender's own words: an order number, an airport code."""
    title: str
    details: dict[str, Any]


def read_arrival(body: bytes, *, key: str, received_at: float) -> Arrival:
    """Check the body of `POST /tickets`. Raises BadRequest."""
    fields = read_object(body, wanted='{"reference": …, "title": …}')
    details = fields.get("details", {})
    if not isinstance(details, dict):
        raise BadRequest("details is not an object")
    return Arrival(
        key=key,
        body_hash=hashlib.sha256(body).hexdigest(),
        received_at=received_at,
        reference=read_text(fields, "reference"),
        title=read_text(fields, "title"),
        details=details,
    )


def answer_of_ticket(ticket_id: int, arrival: Arrival) -> Answer:
    """The 201 answer; it is stored and replayed word for word."""
    ticket = {
        "id": f"T-{ticket_id}",
        "reference": arrival.reference,
        "title": arrival.title,
        "details": arrival.details,
    }
    return json_answer(ticket, status=201)
