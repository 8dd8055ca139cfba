"""How our tools talk to the ticket desk: its address, and what each of its answers means to the engine."""

from __future__ import annotations

import os
from typing import Any

import httpx

from durableops import Call, Fatal, Refused, RetryLater

ADDRESS_VARIABLE = "TICKET_DESK_URL"
BUSY_SECONDS = 0.5


def desk_address() -> str:
    """Where the desk is. From the environment, not from the run: a desk may move while runs wait."""
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if not address:
        raise Fatal(f"{ADDRESS_VARIABLE} is not set; give the workers the address that examples.ticket_desk prints.")
    return address.rstrip("/")


def post_ticket(call: Call, *, title: str, details: dict[str, Any]) -> dict[str, Any]:
    """Open one ticket about `call.resource` and return the desk's answer.

    Raises RetryLater when the desk asks for patience, Refused when it will not have the ticket, and httpx errors when
    nothing is known: the engine then sends the same key again.
    """
    body = {"reference": call.resource, "title": title, "details": details}
    response = call.request("POST", f"{desk_address()}/tickets", json=body)
    if response.status_code in (409, 429):
        raise RetryLater(_patience(response), f"the desk answered {response.status_code}: {_detail(response)}")
    if 400 <= response.status_code < 500:
        raise Refused(f"the desk answered {response.status_code}: {_detail(response)}")
    response.raise_for_status()
    ticket: dict[str, Any] = response.json()
    return ticket


def _patience(response: httpx.Response) -> float:
    """Seconds from `Retry-After`; the header may also hold a date, which this desk never sends."""
    if response.status_code == 409:
        # Our own earlier request is still being worked on: that is over in a moment, not in the desk's whole second.
        return BUSY_SECONDS
    text = response.headers.get("Retry-After", "")
    return float(text) if text.replace(".", "", 1).isdecimal() else 1.0


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
