"""A workflow of one step, and what became of its run: for tests of a single wait or call."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from durableops import Retry, State, step, workflow
from durableops.engine.inbound import send_event
from runs.models import Checkpoint, IdempotencyRecord, Run

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
ONCE = Retry(max_attempts=1)
HOUR = timedelta(hours=1)


class Nothing(State):
    n: int = 0


def one_step(function, *, name="one", retry=AT_ONCE, of_step=None, **options):
    body = step(id="a", **{"retry": retry} | (of_step or {}))(function)
    workflow(name=name, version=1, state=Nothing, **options)(type("One", (), {"a": body}))


def effects(run: Run) -> list[IdempotencyRecord]:
    return list(IdempotencyRecord.objects.filter(run=run).order_by("id"))


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


def send(engine, payload=None, **options):
    return send_event("go", tenant=engine.tenant, actor="desk", payload=payload, **options)
