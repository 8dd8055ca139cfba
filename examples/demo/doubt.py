"""The demo's second scene: a month-end in a ledger that loses answers, left in the inbox for a person to settle.

The ledger books the second invoice and drops the connection: whoever looks finds the entry, so it happened. Once that
is settled it drops the fourth before anything was booked: it did not happen, and sending it again books it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from durableops.engine import commands, settling
from durableops.engine.settlements import Settlement
from durableops.engine.start import start
from examples.demo import record
from examples.demo.stage import StageError
from examples.ledger_desk.client import LedgerClient
from runs.models import Doubt, Run
from runs.states import TERMINAL, State

WORKFLOW = "month-end"
MONTH = "October"
INVOICES = {"2026-101": 11_900, "2026-102": 48_000, "2026-103": 5_950, "2026-104": 23_800, "2026-105": 7_140}
ANSWER_LOST, REQUEST_LOST = "2026-102", "2026-104"
IN_DOUBT_WITHIN_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Left:
    """What is left for a person."""

    run_id: UUID
    doubt_id: int
    text: str
    """What the entry says that may or may not be there."""


def text_of(number: str) -> str:
    """The text by which an invoice is found in the ledger."""
    return f"invoice {number} of {MONTH}"


def clear_leftovers() -> list[int]:
    """Give up on what an earlier demo left in doubt: its ledger is gone, and it would hold the queue of this one."""
    tenant, because = record.tenant(), "a new demo begins, with a new ledger"
    for run in Run.objects.filter(labels__contains=record.LABELS, workflow=WORKFLOW, cancel_requested=False).exclude(
        state__in=TERMINAL
    ):
        commands.cancel(run.pk, tenant=tenant, actor=record.ACTOR, reason=because)
    found = Doubt.objects.filter(tenant=tenant, run__labels__contains=record.LABELS, settled_at=None)
    left = list(found.order_by("id").values_list("pk", flat=True))
    for doubt_id in left:
        settling.settle(
            doubt_id, tenant=tenant, actor=record.ACTOR, reason=because, settlement=Settlement(how="give_up")
        )
    return left


def set_faults(ledger: LedgerClient) -> None:
    """Have the ledger lose one answer and one request."""
    ledger.set_fault(kind="drop", title=text_of(ANSWER_LOST))
    ledger.set_fault(kind="drop", when="before", title=text_of(REQUEST_LOST))


def leave(ledger: LedgerClient) -> Left:
    """Start the month-end, and wait until it is in doubt about its second invoice."""
    set_faults(ledger)
    run_id = start(
        WORKFLOW, {"month": MONTH, "invoices": INVOICES}, tenant=record.tenant(), actor=record.ACTOR,
        labels=record.LABELS,
    ).run_id  # fmt: skip
    end = time.monotonic() + IN_DOUBT_WITHIN_SECONDS
    while (run := Run.objects.get(pk=run_id)).state != State.IN_DOUBT:
        if run.is_terminal or time.monotonic() > end:
            raise StageError(
                f"run {run_id} is {run.state}{f' ({run.error_message})' if run.error_message else ''}; it was to be in "
                "doubt about an invoice by now. Its page, and Systems for its queue, say why it is not."
            )
        time.sleep(0.1)
    doubt = Doubt.objects.select_related("effect").get(run=run_id, settled_at=None)
    return Left(run_id=run_id, doubt_id=doubt.pk, text=doubt.effect.resource)


def booked_twice(ledger: LedgerClient) -> int:
    """Entries beyond the first of their text. Nothing of the engine's makes one."""
    texts = Counter(entry.text for entry in ledger.entries())
    return texts.total() - len(texts)
