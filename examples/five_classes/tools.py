"""One tool of each class, and the tool that undoes it. They tell the other side a text, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx  # noqa: F401 - loaded before workers fork: a child that replaces a killed one has it at once

from durableops import Call, Retry, tool
from durableops.authoring.definitions import ToolDefinition
from durableops.authoring.undoing import DoneEffect
from examples.desk import desk_address
from examples.five_classes.cells import WAYS, Row
from examples.ledger import book, find, take_back
from runs.models import DrillReport

TIMEOUT_SECONDS = 1.5
NOTES = "effects: notes of a local tool"
"""A local tool needs a table of ours; the one of the drills' reports has no constraint that would hide a duplicate."""
PATIENT = Retry(max_attempts=8, first_delay=0.1, factor=2, max_delay=1)
ACCOUNT, CENTS = "drill", 100


def text_to_undo(effect: DoneEffect) -> dict[str, Any]:
    """What an undoing tool is told."""
    return {"text": f"undo {effect.resource}"}


def entry_to_undo(effect: DoneEffect) -> dict[str, Any]:
    """The ledger wants to know the entry, too."""
    return {"text": f"undo {effect.resource}", "entry": effect.downstream_id}


@tool(safety="read", name="effects.look", timeout=TIMEOUT_SECONDS, retry=PATIENT, resource="text")
def look(call: Call, *, text: str) -> int:
    """Count the ledger's entries with a text."""
    return len(find(call, text=text))


@tool(safety="local", name="effects.unnote", timeout=TIMEOUT_SECONDS)
def unnote(call: Call, *, text: str) -> int:
    """Add a row that takes another back."""
    return _note(call, text)


@tool(
    safety="local", name="effects.note", timeout=TIMEOUT_SECONDS, resource="text",
    compensate=unnote, undo_request=text_to_undo,
)  # fmt: skip
def note(call: Call, *, text: str) -> int:
    """Add a row to a table of ours."""
    return _note(call, text)


def _note(call: Call, text: str) -> int:
    return DrillReport.objects.create(drill=NOTES, passed=True, seed=0, seconds=0.0, report={"text": text}).pk


KEYED: dict[str, Any] = {"timeout": TIMEOUT_SECONDS, "retry": PATIENT, "key_window": timedelta(hours=24)}


@tool(safety="keyed", name="effects.close", resource_id="id", **KEYED)
def close_ticket(call: Call, *, text: str) -> dict[str, Any]:
    """Open a ticket that takes another back."""
    return _open(call, text)


@tool(
    safety="keyed", name="effects.open", resource="text", resource_id="id", compensate=close_ticket,
    undo_request=text_to_undo, **KEYED,
)  # fmt: skip
def open_ticket(call: Call, *, text: str) -> dict[str, Any]:
    """Open a ticket; the desk opens one for each key."""
    return _open(call, text)


OUTBOX: dict[str, Any] = {"timeout": TIMEOUT_SECONDS, "retry": PATIENT, "destination": "effects-desk"}


@tool(safety="outbox", name="effects.unsend", **OUTBOX)
def unsend(call: Call, *, text: str) -> dict[str, Any]:
    """Send a message that takes another back."""
    return _open(call, text)


@tool(safety="outbox", name="effects.send", resource="text", compensate=unsend, undo_request=text_to_undo, **OUTBOX)
def send(call: Call, *, text: str) -> dict[str, Any]:
    """Send a message to the desk."""
    return _open(call, text)


def _open(call: Call, text: str) -> dict[str, Any]:
    ticket = {"reference": text, "title": text}
    return {"id": call.request("POST", f"{desk_address()}/tickets", json=ticket).json()["id"]}


def _legacy(way: str) -> ToolDefinition:
    """The two tools of a ledger; each row has one of its own, so that a doubt of one row holds up no other."""
    options: dict[str, Any] = {
        "safety": "legacy", "system": Row(safety="legacy", way=way).system, "timeout": TIMEOUT_SECONDS,
        "resource_id": "id",
    }  # fmt: skip

    @tool(name=f"effects.reverse_{way}", **options)
    def reverse(call: Call, *, text: str, entry: str) -> dict[str, Any]:
        return {"id": take_back(call, entry=entry, text=text)["id"]}

    @tool(name=f"effects.post_{way}", resource="text", compensate=reverse, undo_request=entry_to_undo, **options)
    def post(call: Call, *, text: str) -> dict[str, Any]:
        return {"id": book(call, account=ACCOUNT, amount=CENTS, text=text)["id"]}

    return post


LEGACY = {way: _legacy(way) for way in WAYS}


def tool_of(row: Row) -> ToolDefinition:
    """What the cells of a row call."""
    plain: dict[str, Any] = {"read": look, "local": note, "keyed": open_ticket, "outbox": send}
    found: ToolDefinition = plain.get(row.safety) or LEGACY[row.way]
    return found
