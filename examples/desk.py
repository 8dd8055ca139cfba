"""How our tools talk to the ticket desk: its address, and one request."""

from __future__ import annotations

import os
from typing import Any

from durableops import Call, Fatal

ADDRESS_VARIABLE = "TICKET_DESK_URL"


def desk_address() -> str:
    """Where the desk is. From the environment, not from the run: a desk may move while runs wait."""
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if not address:
        raise Fatal(f"{ADDRESS_VARIABLE} is not set; give the workers the address that examples.ticket_desk prints.")
    return address.rstrip("/")


def post_ticket(call: Call, *, title: str, details: dict[str, Any]) -> dict[str, Any]:
    """Open one ticket about `call.resource` and return the desk's answer.

    `call.request` tells what other answers mean: refused, later, or unknown; then the engine sends the same key again.
    """
    body = {"reference": call.resource, "title": title, "details": details}
    ticket: dict[str, Any] = call.request("POST", f"{desk_address()}/tickets", json=body).json()
    return ticket
