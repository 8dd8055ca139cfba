"""The ledger's addresses."""

from __future__ import annotations

import re
import time

from examples.ledger_desk import store
from examples.ledger_desk.messages import Arrival, read_entry, read_reversal
from examples.ledger_desk.page import page
from examples.serving.messages import Answer, BadRequest, json_answer
from examples.serving.service import Reply
from examples.serving.storage import as_page
from examples.serving.web import Asked, Route

MAX_PAGE = 10_000
SHOWN = 200
KEY = "Idempotency-Key"


def post_entry(asked: Asked) -> Reply:
    """Book an entry."""
    return asked.service.handle(read_entry(asked.body, key=asked.header(KEY), received_at=time.time()))


def post_reversal(asked: Asked) -> Reply:
    """Book the opposite of an entry."""
    return asked.service.handle(
        read_reversal(asked.body, entry=asked.match[1], key=asked.header(KEY), received_at=time.time())
    )


def search(asked: Asked) -> Reply:
    """Entries with exactly this `text`, newest first. A request like any other: faults strike it too."""
    text = asked.text("text")
    if not text:
        raise BadRequest("text is missing; wanted ?text=…")
    return asked.service.handle(Arrival(kind="search", received_at=time.time(), text=text, key=asked.header(KEY)))


def get_rows(asked: Asked) -> Answer:
    """A page of the request log or of the entries: `after` is the last id seen, `limit` at most 10,000."""
    after, limit = asked.number("after", 0), min(asked.number("limit", 1000), MAX_PAGE)
    look = store.entries_page if asked.match[1] == "entries" else store.requests_page
    return json_answer(as_page(asked.match[1], look(asked.service.path, after=after, limit=limit), limit=limit))


def get_stats(asked: Asked) -> Answer:
    """Totals."""
    return json_answer(store.stats(asked.service.path))


def get_page(asked: Asked) -> Answer:
    """For people."""
    path = asked.service.path
    body = page(store.newest_entries(path, limit=SHOWN), total=store.stats(path)["entries"], limit=SHOWN)
    return Answer(status=200, body=body, content_type="text/html; charset=utf-8")


ROUTES: list[Route] = [
    ("POST", re.compile("/entries"), post_entry),
    ("POST", re.compile("/entries/([^/]+)/reversal"), post_reversal),
    ("GET", re.compile("/search"), search),
    ("GET", re.compile("/(entries|requests)"), get_rows),
    ("GET", re.compile("/stats"), get_stats),
    ("GET", re.compile("/"), get_page),
]
