"""How our tools talk to the ledger: its address, an entry, its reversal, and a look."""

from __future__ import annotations

import os
from typing import Any

from durableops import Call, Fatal

ADDRESS_VARIABLE = "LEDGER_DESK_URL"


def ledger_address() -> str:
    """Where the ledger is. From the environment, not from the run: it may move while runs wait."""
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if not address:
        raise Fatal(f"{ADDRESS_VARIABLE} is not set; give the workers the address that examples.ledger_desk prints.")
    return address.rstrip("/")


def book(call: Call, *, account: str, amount: int, text: str) -> dict[str, Any]:
    """Book one entry and return it. Sent twice, it would be booked twice."""
    body = {"account": account, "amount": amount, "text": text}
    entry: dict[str, Any] = call.request("POST", f"{ledger_address()}/entries", json=body).json()
    return entry


def take_back(call: Call, *, entry: str, text: str) -> dict[str, Any]:
    """Book the opposite of an entry and return that."""
    address = f"{ledger_address()}/entries/{entry}/reversal"
    reversal: dict[str, Any] = call.request("POST", address, json={"text": text}).json()
    return reversal


def find(call: Call, *, text: str) -> list[dict[str, Any]]:
    """The entries with exactly this text, newest first."""
    found: list[dict[str, Any]] = call.request("GET", f"{ledger_address()}/search", params={"text": text}).json()[
        "entries"
    ]
    return found
