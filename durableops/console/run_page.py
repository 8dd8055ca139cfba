"""What the page of one run shows: each function reads one part, bounded, and says when there is more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Q
from django.db.models.fields.json import KT

from durableops import clock
from durableops.console import actions, payloads, story, timeline
from durableops.console.access import Access
from durableops.console.words import length
from runs.models import (
    Artifact,
    AuditEntry,
    Checkpoint,
    Decision,
    IdempotencyRecord,
    LogLine,
    PauseSwitch,
    Receipt,
    Run,
    RunEvent,
    Wait,
    Worker,
)
from runs.states import State

EVENTS_DRAWN = 3000
CHECKPOINTS_DRAWN = 3000
EFFECTS_COUNTED = 20_000
RECEIPTS_SHOWN = 50
COUNT_CAP = 10_000

TABS = (
    ("timeline", "Timeline"),
    ("events", "Events"),
    ("checkpoints", "Checkpoints"),
    ("effects", "Effects"),
    ("decisions", "Decisions"),
    ("logs", "Logs"),
    ("audit", "Audit"),
)


def head(run: Run, access: Access) -> dict[str, Any]:
    """The header: why it is here, what wakes it, what may be done."""
    waits = list(Wait.objects.filter(run=run, state="open").order_by("-id")[:20]) if not run.is_terminal else []
    facts = story.Facts(
        run=run, now=clock.now(), waits=waits, switches=_switches(run), workers=_workers(run),
        parked_because=_parked_because(run),
    )  # fmt: skip
    steps = plan_steps(run)
    return {
        "run": run,
        "story": story.tell(facts),
        "buttons": actions.buttons(run, access),
        "approvals": actions.approvals(run, waits, access),
        "sight": access.sees_payloads(run.tenant_id),
        "steps": steps,
        "step_number": steps.index(run.step_id) + 1 if run.step_id in steps else 0,
        "steps_done": len(steps)
        if run.state == State.SUCCEEDED
        else max(0, steps.index(run.step_id))
        if run.step_id in steps
        else 0,
        "now": facts.now,
        "wait": waits[0] if waits and run.state == State.WAITING else None,
        "deadline_left": (run.deadline_at - facts.now).total_seconds() if run.deadline_at else None,
        "counts": counts(run),
    }


def plan_steps(run: Run) -> list[str]:
    """The plan's step ids in order; a plan that cannot be read has none."""
    plan = run.plan.plan if isinstance(run.plan.plan, dict) else {}
    found = plan.get("steps", [])
    return [str(step["id"]) for step in found if isinstance(step, dict) and "id" in step]


def _switches(run: Run) -> list[PauseSwitch]:
    if run.is_terminal:
        return []
    here = Q(scope="all") | Q(scope="tenant", tenant=run.tenant_id)
    here |= Q(scope="workflow", workflow=run.workflow) & (Q(tenant=None) | Q(tenant=run.tenant_id))
    return list(PauseSwitch.objects.filter(here)[:5])


def _workers(run: Run) -> list[Worker]:
    if run.state != State.QUEUED:
        return []
    return list(Worker.objects.filter(ended_at=None).only("id", "versions")[:200])


def _parked_because(run: Run) -> str:
    if run.state != State.IN_REVIEW:
        return ""
    parked = RunEvent.objects.filter(run=run, event="park").order_by("-id").values_list("reason", flat=True).first()
    return parked or ""


def counts(run: Run) -> dict[str, str]:
    """How many rows each tab has, counted up to a cap, in one statement."""
    tables = {
        "events": "runs_event", "checkpoints": "runs_checkpoint", "effects": "runs_effect",
        "decisions": "runs_decision", "logs": "runs_log_line",
    }  # fmt: skip
    parts = ", ".join(
        f"(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE run_id = %(run)s LIMIT %(cap)s) x)"
        for table in tables.values()
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {parts}", {"run": run.pk, "cap": COUNT_CAP + 1})
        row = cursor.fetchone()
    return {name: f"{COUNT_CAP:,}+" if n > COUNT_CAP else f"{n:,}" for name, n in zip(tables, row, strict=True)}


def timeline_tab(run: Run, access: Access) -> dict[str, Any]:
    """The drawing, the receipts, the clocks that fired, the effects by tool."""
    events = list(
        RunEvent.objects.filter(run=run)
        .annotate(clock=KT("data__clock"), tool=KT("data__tool"), cause=KT("data__cause"), limit=KT("data__limit_seconds"),
                  elapsed=KT("data__elapsed_seconds"), next_state=KT("data__next_state"))
        .defer("data")
        .order_by("-id")[:EVENTS_DRAWN]
    )[::-1]  # fmt: skip
    receipts = list(Receipt.objects.filter(run=run).order_by("-number")[:RECEIPTS_SHOWN])
    clocks = [event for event in events if event.event in timeline.CLOCKS]  # type: ignore[attr-defined]
    return {
        "drawing": _drawing(run, events, receipts, clocks),
        "receipts": receipts,
        "clocks": clocks[::-1][:RECEIPTS_SHOWN],
        "late": [event for event in events if event.event == "late_result_rejected"][::-1][:RECEIPTS_SHOWN],
        "cut": len(events) == EVENTS_DRAWN,
        "tools": effects_by_tool(run),
        "traceback": traceback_of(run) if run.state == State.FAILED else "",
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
        timeline.Commit(at=at, step_id=step, next_step=following)
        for at, kind, step, following in Checkpoint.objects.filter(run=run)
        .order_by("-seq")
        .values_list("at", "kind", "step_id", "next_step")[:CHECKPOINTS_DRAWN]
        if kind in ("step", "finish") and step
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
    return payloads.mask_text(found) if isinstance(found, str) else ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A page of rows, with where the next one begins."""

    rows: Sequence[Any]
    older: int | None = None
    newer: bool = False


PER_PAGE = 100


def _part(rows: Sequence[Any], key: str, before: int | None) -> Part:
    more = len(rows) > PER_PAGE
    shown = rows[:PER_PAGE]
    return Part(rows=shown, older=getattr(shown[-1], key) if more else None, newer=before is not None)


def events_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = RunEvent.objects.filter(run=run).defer("data").order_by("-id")
    rows = rows.filter(id__lt=before) if before else rows
    return {"part": _part(list(rows[: PER_PAGE + 1]), "id", before)}


def checkpoints_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = Checkpoint.objects.filter(run=run).order_by("-seq").defer("state", "output").select_related("plan")
    rows = rows.filter(seq__lt=before) if before is not None else rows
    return {"part": _part(list(rows[: PER_PAGE + 1]), "seq", before)}


def effects_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = IdempotencyRecord.objects.filter(run=run).order_by("-id").defer("slot", "result")
    rows = rows.filter(id__lt=before) if before else rows
    part = _part(list(rows[: PER_PAGE + 1]), "id", before)
    sight = access.sees_payloads(run.tenant_id)
    for row in part.rows:
        row.shown = payloads.show("request", row.request_summary, sight=sight) if row.request_summary else None
    return {"part": part}


def decisions_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = Decision.objects.filter(run=run).order_by("-id")
    rows = rows.filter(id__lt=before) if before else rows
    part = _part(list(rows[: PER_PAGE + 1]), "id", before)
    for row in part.rows:
        row.shown = payloads.show("result", row.result, sight=access.sees_payloads(run.tenant_id))
    answered = Wait.objects.filter(run=run, kind="approval").order_by("-id")[:50]
    return {"part": part, "answered": answered, "artifacts": Artifact.objects.filter(run=run).order_by("-id")[:50]}


def logs_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = LogLine.objects.filter(run=run).order_by("-id")
    rows = rows.filter(id__lt=before) if before else rows
    part = _part(list(rows[: PER_PAGE + 1]), "id", before)
    sight = access.sees_payloads(run.tenant_id)
    for row in part.rows:
        row.shown = payloads.mask(row.fields) if sight and isinstance(row.fields, dict) else {}
        row.hidden = bool(row.fields) and not sight
    return {"part": part, "traceback": traceback_of(run) if run.error_class else ""}


def audit_tab(run: Run, access: Access, before: int | None) -> dict[str, Any]:
    rows = AuditEntry.objects.filter(target_kind="run", target_id=str(run.pk), tenant=run.tenant_id).order_by("-id")
    rows = rows.filter(id__lt=before) if before else rows
    return {"part": _part(list(rows[: PER_PAGE + 1]), "id", before)}


_TAB_READERS = {
    "events": events_tab, "checkpoints": checkpoints_tab, "effects": effects_tab, "decisions": decisions_tab,
    "logs": logs_tab, "audit": audit_tab,
}  # fmt: skip


def tab(name: str, run: Run, access: Access, before: int | None) -> dict[str, Any]:
    """What one tab shows; an unknown one is the timeline."""
    reader = _TAB_READERS.get(name)
    return reader(run, access, before) if reader else timeline_tab(run, access)


def receipt_sentence(receipt: Receipt) -> str:
    """One resume in words."""
    noticed, running = receipt.detection_seconds, receipt.recovery_seconds
    parts = []
    if noticed is not None and running is not None:
        parts.append(f"Noticed after {length(noticed)}, running again after {length(running)}.")
    reused, again = receipt.reused_effects, receipt.repeated_effects
    parts.append(f"Reused {reused:,} recorded {'call' if reused == 1 else 'calls'}.")
    if again:
        parts.append(f"{again:,} without an outcome sent again with the old {'key' if again == 1 else 'keys'}.")
    if receipt.entered_again:
        parts.append(f"Step {receipt.step_id} was entered again from its last commit.")
    return " ".join(parts)
