"""The desk's addresses."""

from __future__ import annotations

import re
import time
from typing import Literal

from examples.serving.messages import Answer, json_answer
from examples.serving.service import Reply
from examples.serving.storage import as_page
from examples.serving.web import Asked, Route
from examples.ticket_desk import store
from examples.ticket_desk.messages import read_arrival

MAX_PAGE = 10_000


def post_ticket(asked: Asked) -> Reply:
    """Open a ticket."""
    key = asked.header("Idempotency-Key")
    return asked.service.handle(read_arrival(asked.body, key=key, received_at=time.time()))


def get_rows(asked: Asked) -> Answer:
    """A page of the request log or of the tickets: `after` is the last id seen, `limit` at most 10,000."""
    after, limit = asked.number("after", 0), min(asked.number("limit", 1000), MAX_PAGE)
    table: Literal["tickets", "requests"] = "tickets" if asked.match[1] == "tickets" else "requests"
    return json_answer(as_page(table, store.page_of(asked.service.path, table, after=after, limit=limit), limit=limit))


def get_stats(asked: Asked) -> Answer:
    """Totals."""
    return json_answer(store.stats(asked.service.path))


ROUTES: list[Route] = [
    ("POST", re.compile("/tickets"), post_ticket),
    ("GET", re.compile("/(tickets|requests)"), get_rows),
    ("GET", re.compile("/stats"), get_stats),
]
