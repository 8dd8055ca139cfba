"""A workflow of one step, and what became of its run: for tests of a single wait."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from durableops import Retry, State, step, workflow
from durableops.engine.inbound import send_event
from runs.models import Checkpoint, Run

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
HOUR = timedelta(hours=1)


class Nothing(State):
    n: int = 0


def one_step(function, **options):
    step_options = {"retry": AT_ONCE} | options.pop("of_step", {})
    workflow(name="one", version=1, state=Nothing, **options)(
        type("One", (), {"a": step(id="a", **step_options)(function)})
    )


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


def send(engine, payload=None, **options):
    return send_event("go", tenant=engine.tenant, actor="desk", payload=payload, **options)
