"""What the ledger reads and writes: the checked request, the entry, and nothing about sockets or storage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from examples.serving.messages import BadRequest, read_object, read_text

Kind = Literal["post", "reverse", "search"]
MAX_AMOUNT = 10**12
ENTRY_ID = re.compile(r"E-(\d{1,15})")


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One request that the ledger works on."""

    kind: Kind
    received_at: float
    """Seconds since the epoch."""
    text: str
    """What the entry is for, in the sender's own words. The only thing by which anybody can find it again."""
    account: str = ""
    amount: int = 0
    """In cents."""
    entry: int = 0
    """The entry to reverse."""
    key: str = ""
    """The `Idempotency-Key` it came with. Noted, and worth nothing."""

    @property
    def title(self) -> str:
        """What faults choose by."""
        return self.text


def read_entry(body: bytes, *, key: str, received_at: float) -> Arrival:
    """Check the body of `POST /entries`. Raises BadRequest."""
    fields = read_object(body, wanted='{"account": …, "amount": …, "text": …}')
    amount = fields.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < abs(amount) <= MAX_AMOUNT:
        raise BadRequest(f"amount is {amount!r}; wanted a whole number of cents that is not 0")
    return Arrival(
        kind="post",
        received_at=received_at,
        text=read_text(fields, "text"),
        account=read_text(fields, "account"),
        amount=amount,
        key=key,
    )


def read_reversal(body: bytes, *, entry: str, key: str, received_at: float) -> Arrival:
    """Check the body of `POST /entries/E-1/reversal`. Raises BadRequest."""
    fields = read_object(body, wanted='{"text": …}')
    return Arrival(
        kind="reverse", received_at=received_at, text=read_text(fields, "text"), entry=entry_number(entry), key=key
    )


def entry_number(text: str) -> int:
    """The number in `E-1`. Raises BadRequest."""
    found = ENTRY_ID.fullmatch(text)
    if found is None:
        raise BadRequest(f"{text!r} is no entry; wanted E- and a number")
    return int(found[1])


def entry_as_json(row: dict[str, Any]) -> dict[str, Any]:
    """An entry as everybody sees it."""
    reverses = row["reverses"]
    return {
        "id": f"E-{row['id']}",
        "account": row["account"],
        "amount": row["amount"],
        "text": row["text"],
        "reverses": f"E-{reverses}" if reverses else None,
    }
