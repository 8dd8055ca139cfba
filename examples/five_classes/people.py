"""What people do in the drill: they look into the ledger and say what became of a call; and time, which passes."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from django.db.models.functions import Now

from durableops.engine.settlements import Settlement
from durableops.engine.settling import settle
from durableops.errors import TransitionRefused
from durableops.upkeep.drills.company import tenant
from examples.ledger_desk.client import LedgerClient
from runs.models import Doubt, Wait

PERSON = "somebody who looked into the ledger"


def settle_what_can_be(ledger: LedgerClient) -> None:
    """Settle every open doubt by what the ledger holds; what may still be on its way there is left for later."""
    waiting = list(Doubt.objects.filter(tenant=tenant(), settled_at=None).select_related("effect"))
    if not waiting:
        return
    entries = {entry.text: entry.id for entry in ledger.entries()}
    for doubt in waiting:
        text = doubt.effect.request_summary["text"]
        happened = Settlement(how="happened", downstream_id=entries.get(text, ""), evidence=f"entry {text!r} is there")
        did_not = Settlement(how="did_not", evidence=f"there is no entry {text!r}")
        with suppress(TransitionRefused):
            settle(
                doubt.pk,
                tenant=tenant(),
                actor=PERSON,
                reason="a drill",
                settlement=happened if text in entries else did_not,
            )


def hurry(runs: list[UUID]) -> None:
    """Let the time come for which these runs sleep: they look now and then whether a message was delivered."""
    Wait.objects.filter(run__in=runs, kind="time", state="open", due_at__gt=Now()).update(due_at=Now())
