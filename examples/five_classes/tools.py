"""One tool of each class. They tell the other side the text of what they want, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx  # noqa: F401 - loaded before workers fork: a child that replaces a killed one has it at once

from durableops import Call, Retry, tool
from examples.desk import post_ticket
from examples.ledger import find
from runs.models import DrillReport

TIMEOUT_SECONDS = 1.5
NOTES = "effects: notes of a local tool"
"""A local tool needs a table of ours; the one of the drills' reports has no constraint that would hide a duplicate."""
PATIENT = Retry(max_attempts=8, first_delay=0.1, factor=2, max_delay=1)


@tool(safety="read", name="effects.look", timeout=TIMEOUT_SECONDS, retry=PATIENT, resource="text")
def look(call: Call, *, text: str) -> int:
    """Count the ledger's entries with a text."""
    return len(find(call, text=text))


@tool(safety="local", name="effects.note", timeout=TIMEOUT_SECONDS, resource="text")
def note(call: Call, *, text: str) -> int:
    """Add a row to a table of ours."""
    return DrillReport.objects.create(
        drill=NOTES, passed=True, seed=0, seconds=0.0, report={"run": call.run_id, "text": text}
    ).pk


@tool(
    safety="keyed", name="effects.open", timeout=TIMEOUT_SECONDS, retry=PATIENT, key_window=timedelta(hours=24),
    resource="text", resource_id="id",
)  # fmt: skip
def open_ticket(call: Call, *, text: str) -> dict[str, Any]:
    """Open a ticket; the desk opens one for each key."""
    return {"id": post_ticket(call, title=text, details={})["id"]}


TOOLS = {"read": look, "local": note, "keyed": open_ticket}
