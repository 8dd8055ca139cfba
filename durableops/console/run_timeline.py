"""The first tab of a run: drawing, receipts, clocks that fired, effects by tool. Each read is bounded and says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models.fields.json import KT

from durableops import clock
from durableops.console import timeline
from durableops.console.access import Access
from durableops.console.plans import plan_steps
from durableops.console.words import count_of, length
from durableops.masking import mask_text
from runs.models import Checkpoint, Receipt, Run, RunEvent
from runs.states import State

EVENTS_DRAWN = 2000
CHECKPOINTS_DRAWN = 3000
EFFECTS_COUNTED = 20_000
RECEIPTS_SHOWN = 50


def timeline_tab(run: Run, access: Access) -> dict[str, Any]:
    """The drawing, the receipts, the clocks that fired, the effects by tool."""
    events = list(
        RunEvent.objects.filter(run=run)
        .annotate(tool=KT("data__tool"), cause=KT("data__cause"))
        .defer("data")
        .order_by("-id")[:EVENTS_DRAWN]
    )[::-1]  # fmt: skip
    receipts = list(Receipt.objects.filter(run=run).order_by("-number")[:RECEIPTS_SHOWN])
    clocks = [event for event in events if event.event in timeline.CLOCKS]
    return {
        "drawing": _drawing(run, events, receipts, clocks),
        "receipts": receipts,
        "clocks": clocks[::-1][:RECEIPTS_SHOWN],
        "late": [event for event in events if event.event == "late_result_rejected"][::-1][:RECEIPTS_SHOWN],
        "cut": len(events) == EVENTS_DRAWN,
        "tools": effects_by_tool(run),
        "traceback": traceback_of(run) if run.state == State.FAILED and access.sees_payloads(run.tenant_id) else "",
    }


def _drawing(
    run: Run, events: Sequence[RunEvent], receipts: Sequence[Receipt], clocks: Sequence[RunEvent]
) -> timeline.Drawing | None:
    moves = [
        timeline.Move(at=e.at, event=e.event, to_state=e.to_state, step_id=e.step_id or (plan_steps(run) or [""])[0])
        for e in events
        if e.to_state
    ]
    commits = [
        timeline.Commit(at=at, step_id=step, next_step=following, page=kind == "page")
        for at, kind, step, following in Checkpoint.objects.filter(run=run)
        .order_by("-seq")
        .values_list("at", "kind", "step_id", "next_step")[:CHECKPOINTS_DRAWN]
        if kind != "start" and step
    ][::-1]
    now = clock.now()
    return timeline.draw(
        plan_steps(run), timeline.spans_of(moves, commits, now=run.finished_at or now), now=now,
        clocks=[(e.at, e.step_id, e.reason) for e in clocks],
        resumes=[(r.number, r.resumed_at, cause_words(r.cause)) for r in receipts[::-1]
                 if r.cause in INTERRUPTIONS],
    )  # fmt: skip


INTERRUPTIONS = ("worker_lost", "worker_stopped", "step_timeout", "operator", "deploy", "retry")
_CAUSES = {"slice": "gave way to others", "pause": "was paused", "timer": "its time came"}


def cause_words(cause: str) -> str:
    """A receipt's cause in words."""
    return _CAUSES.get(cause, cause.replace("_", " ") or "resumed")


@dataclass(frozen=True, kw_only=True)
class ToolRow:
    """What a run did with one tool."""

    tool: str
    safety: str
    recorded: int
    reused: int
    repeated: int
    outcomes: dict[str, int]


_BY_TOOL = """
SELECT tool, safety, state, count(*), sum(reused), sum(greatest(attempts - 1, 0))
FROM (SELECT tool, safety, state, reused, attempts FROM runs_effect WHERE run_id = %s ORDER BY id LIMIT %s) e
GROUP BY tool, safety, state ORDER BY tool, state"""


def effects_by_tool(run: Run) -> dict[str, Any]:
    """Effects counted by tool and outcome, over the first so many."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_TOOL, [run.pk, EFFECTS_COUNTED])
        rows = cursor.fetchall()
    by_tool: dict[tuple[str, str], list[Any]] = {}
    for tool, safety, state, number, reused, repeated in rows:
        known = by_tool.setdefault((tool, safety), [0, 0, 0, {}])
        known[0], known[1], known[2] = known[0] + number, known[1] + reused, known[2] + repeated
        known[3][state] = number
    counted = sum(known[0] for known in by_tool.values())
    return {
        "rows": [ToolRow(tool=t, safety=s, recorded=k[0], reused=k[1], repeated=k[2], outcomes=k[3])
                 for (t, s), k in by_tool.items()],
        "capped": counted >= EFFECTS_COUNTED,
        "cap": EFFECTS_COUNTED,
    }  # fmt: skip


def traceback_of(run: Run) -> str:
    """The newest traceback on record."""
    found = (
        RunEvent.objects.filter(run=run, event__in=["fail", "retry_later"], data__has_key="traceback")
        .order_by("-id")
        .values_list("data__traceback", flat=True)
        .first()
    )
    return mask_text(found) if isinstance(found, str) else ""


def receipt_sentence(receipt: Receipt) -> str:
    """One resume in words."""
    noticed, running = receipt.detection_seconds, receipt.recovery_seconds
    parts = []
    if noticed is not None and running is not None:
        parts.append(f"Noticed after {length(noticed)}, running again after {length(running)}.")
    if receipt.reused_effects:
        parts.append(f"Reused {count_of(receipt.reused_effects, 'recorded call')}.")
    if again := receipt.repeated_effects:
        parts.append(f"{count_of(again, 'call')} without an outcome sent again, with the old key.")
    if receipt.entered_again:
        parts.append(f"Step {receipt.step_id} was entered again from its last commit.")
    return " ".join(parts) or "Nothing ran again."
