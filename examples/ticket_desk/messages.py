"""What the desk reads and writes: the checked request, the answer, and nothing about sockets or storage."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

MAX_BODY_BYTES = 256 * 1024
MAX_TITLE_CHARACTERS = 500


class BadRequest(Exception):
    """The request cannot be understood; the message says what was wanted."""


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


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A status, a JSON text and extra headers."""

    status: int
    body: str
    headers: dict[str, str] = field(default_factory=dict)


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Answer:
    """An error as problem details."""
    return Answer(status=status, body=json.dumps({"status": status, "detail": detail}), headers=headers or {})


def json_answer(value: Any, *, status: int = 200) -> Answer:
    """Any JSON value as an answer."""
    return Answer(status=status, body=json.dumps(value))


def read_arrival(body: bytes, *, key: str, received_at: float) -> Arrival:
    """Check the body of `POST /tickets`. Raises BadRequest."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRequest('the body is not an object; wanted {"reference": …, "title": …}')
    details = fields.get("details", {})
    if not isinstance(details, dict):
        raise BadRequest("details is not an object")
    return Arrival(
        key=key,
        body_hash=hashlib.sha256(body).hexdigest(),
        received_at=received_at,
        reference=_text(fields, "reference"),
        title=_text(fields, "title"),
        details=details,
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{name} is missing or empty; wanted a text")
    if not value.isprintable() and not _is_unicode(value):
        raise BadRequest(f"{name} has lone surrogates; wanted Unicode text")
    if len(value) > MAX_TITLE_CHARACTERS:
        raise BadRequest(f"{name} has {len(value)} characters; at most {MAX_TITLE_CHARACTERS} are taken")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def answer_of_ticket(ticket_id: int, arrival: Arrival) -> Answer:
    """The 201 answer; it is stored and replayed word for word."""
    ticket = {
        "id": f"T-{ticket_id}",
        "reference": arrival.reference,
        "title": arrival.title,
        "details": arrival.details,
    }
    return json_answer(ticket, status=201)
