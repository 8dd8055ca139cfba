"""What the page of one run shows: each function reads one part, bounded, and says when there is more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from durableops import clock
from durableops.access import READS
from durableops.authoring import registry
from durableops.console import actions, asking, budgets, payloads, retention, story
from durableops.console.access import WHO, Access
from durableops.console.budgets import Budget
from durableops.console.plans import made_plans, own_steps, plan_steps
from durableops.console.run_timeline import timeline_tab, traceback_of
from durableops.engine import gates
from durableops.engine.compensation.owing import UNDOABLE
from durableops.engine.compensation.ways import ways
from durableops.engine.retention import kept
from durableops.masking import mask
from runs.models import (
    Artifact,
    AuditEntry,
    Checkpoint,
    Compensation,
    Decision,
    Doubt,
    IdempotencyRecord,
    LogLine,
    PauseSwitch,
    Prompt,
    Run,
    RunEvent,
    Wait,
    Worker,
)
from runs.states import State

COUNT_CAP = 10_000

TABS = (
    ("timeline", "Timeline"),
    ("events", "Events"),
    ("checkpoints", "Checkpoints"),
    ("effects", "Effects"),
    ("decisions", "Decisions"),
    ("artifacts", "Artifacts"),
    ("logs", "Logs"),
    ("audit", "Audit"),
)


def head(run: Run, access: Access) -> dict[str, Any]:
    """The header: why it is here, what wakes it, what may be done."""
    asked = Wait.objects.filter(run=run, state="open").select_related("approval").order_by("-id")
    waits = list(asked[:20]) if not run.is_terminal else []
    steps, (found, prompts, spent, queue) = plan_steps(run, own_steps([run]).get(run.pk)), counts(run)
    facts = story.Facts(
        run=run, now=clock.now(), waits=waits, switches=_switches(run), workers=_workers(run),
        parked_because=_parked_because(run), before=gates.read_before(queue),
    )  # fmt: skip
    return {
        "run": run,
        "story": story.tell(facts),
        "buttons": actions.buttons(
            run,
            access,
            undoable=found["undoable"] != "0",
            budgeted=any(not one.period for one in spent),
            held=found["holds"] != "0",
        ),
        "budgets": spent,
        "questions": actions.questions(run, waits, access),
        "sendable": actions.sendable(run, waits, access),
        "awaited_files": actions.awaited_files(run, waits, access),
        "extendable": actions.extendable(run, waits, access),
        "sight": access.sees_payloads(run.tenant_id),
        "steps": steps,
        "step_number": steps.index(run.step_id) + 1 if run.step_id in steps else 0,
        "steps_done": _steps_done(run, steps),
        "now": facts.now,
        "wait": waits[0] if waits and run.state == State.WAITING else None,
        "deadline_left": (run.deadline_at - facts.now).total_seconds() if run.deadline_at else None,
        "counts": found,
        "prompts": retention.prompts_line(run, prompts),
    }


def _steps_done(run: Run, steps: list[str]) -> int:
    if run.state == State.SUCCEEDED:
        return len(steps)
    return steps.index(run.step_id) if run.step_id in steps else 0


def _switches(run: Run) -> list[PauseSwitch]:
    if run.is_terminal:
        return []
    here = Q(scope="all") | Q(scope="tenant", tenant=run.tenant_id)
    here |= Q(scope="workflow", workflow=run.workflow) & (Q(tenant=None) | Q(tenant=run.tenant_id))
    return list(PauseSwitch.objects.filter(here)[:5])


def _workers(run: Run) -> list[Worker]:
    if run.is_terminal or (run.state != State.QUEUED and not run.pinned):
        return []
    return list(Worker.objects.filter(ended_at=None).only("id", "versions", "plans")[:200])


def _parked_because(run: Run) -> str:
    if run.state != State.IN_REVIEW:
        return ""
    parked = RunEvent.objects.filter(run=run, event="park").order_by("-id").values_list("reason", flat=True).first()
    return parked or ""


def counts(run: Run) -> tuple[dict[str, str], Any, list[Budget], Any]:
    """How many rows each tab has, counted up to a cap, what retention says of its raw prompts, its budgets, and what
    stands before it in the queue. In one statement.
    """
    tables = {
        "events": "runs_event", "checkpoints": "runs_checkpoint", "effects": "runs_effect",
        "decisions": "runs_decision", "artifacts": "runs_artifact", "logs": "runs_log_line",
    }  # fmt: skip
    parts = ", ".join(
        f"(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE run_id = %(run)s LIMIT %(cap)s) x)"
        for table in tables.values()
    )
    undoing = {
        "compensations": "(SELECT count(*) FROM runs_compensation WHERE run_id = %(run)s)",
        "owed": "(SELECT count(*) FROM runs_compensation WHERE run_id = %(run)s AND state NOT IN ('done', 'waived'))",
        "doubts": "(SELECT count(*) FROM (SELECT 1 FROM runs_doubt WHERE run_id = %(run)s AND settled_at IS NULL"
        " LIMIT %(cap)s) x)",
        "holds": "(SELECT count(*) FROM runs_legal_hold h WHERE h.lifted_at IS NULL AND h.tenant_id = %(tenant)s"
        " AND h.run_id = %(run)s)",
        "undoable": _UNDOABLE if run.is_terminal else "0",
    }
    params: dict[str, Any] = {
        "run": run.pk,
        "tenant": run.tenant_id,
        "cap": COUNT_CAP + 1,
        "tools": [way.of for way in ways()],
    }
    params["known"] = [tool.name for tool in registry.tools()]
    params |= {"tenant": run.tenant_id, "spends": not run.is_terminal or run.state == State.EXHAUSTED}
    more = (*undoing.values(), retention.OF_PROMPTS, budgets.OF_RUN, gates.BEFORE_RUN)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {parts}, {', '.join(more)}", params)
        *row, prompts, spent, queue = cursor.fetchone()
    names = [*tables, *undoing]
    shown = {name: f"{COUNT_CAP:,}+" if n > COUNT_CAP else f"{n:,}" for name, n in zip(names, row, strict=True)}
    return shown, prompts, budgets.read(spent), queue


# Whether anything is left that could be undone.
_UNDOABLE = f"""(SELECT count(*) FROM (
    SELECT 1 FROM runs_effect e LEFT JOIN runs_compensation c ON c.effect_id = e.id
    WHERE e.run_id = %(run)s AND {UNDOABLE}
    AND (e.tool = ANY(%(tools)s::text[]) OR (e.safety <> 'read' AND e.tool <> ALL(%(known)s::text[])))
    AND coalesce(c.state, 'owed') = 'owed' LIMIT 1) x)"""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which rows of a tab are wanted: those before one (older pages), or those up to one (somebody reads them)."""

    before: int | None = None
    upto: int | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A page of rows, with where the next one begins."""

    rows: Sequence[Any]
    older: int | None = None
    newer: bool = False
    newest: int | None = None
    """The newest row shown, which a live update may be asked to stay at."""
    news: int = 0
    """How many rows came after it, counted up to a cap."""


PER_PAGE = 100
NEWS_CAP = 1000
UNDONE_SHOWN = 50
DOUBTS_SHOWN = 50


def _part(found: QuerySet[Any], key: str, window: Window) -> Part:
    """The newest rows, those before one, or those up to one with a count of what came since."""
    rows, news = found.order_by(f"-{key}"), 0
    if window.before is not None:
        rows = rows.filter(**{f"{key}__lt": window.before})
    elif window.upto is not None:
        news = found.filter(**{f"{key}__gt": window.upto}).order_by()[:NEWS_CAP].count()
        rows = rows.filter(**{f"{key}__lte": window.upto})
    wanted = list(rows[: PER_PAGE + 1])
    shown = wanted[:PER_PAGE]
    return Part(
        rows=shown, older=getattr(shown[-1], key) if len(wanted) > PER_PAGE else None,
        newer=window.before is not None, newest=getattr(shown[0], key) if shown else None, news=news,
    )  # fmt: skip


def events_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    return {"part": _part(RunEvent.objects.filter(run=run).defer("data"), "id", window)}


def checkpoints_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    rows = Checkpoint.objects.filter(run=run).defer("state", "output").select_related("plan")
    return {"part": _part(rows, "seq", window), **actions.going_back(run, access)}


def effects_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    part = _part(IdempotencyRecord.objects.filter(run=run).defer("slot", "result"), "id", window)
    sight = access.sees_payloads(run.tenant_id)
    for row in part.rows:
        row.shown = payloads.show("request", row.request_summary, sight=sight) if row.request_summary else None
    undone = Compensation.objects.filter(run=run).select_related("effect").defer("effect__result")
    doubts = Doubt.objects.filter(run=run, settled_at=None).select_related("effect").defer("effect__result")
    return {
        "part": part, "undone": undone.order_by("-effect_id")[:UNDONE_SHOWN],
        "doubts": doubts.order_by("id")[:DOUBTS_SHOWN],
    }  # fmt: skip


def decisions_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    earlier = Decision.objects.filter(
        run=OuterRef("run"), step_id=OuterRef("step_id"), name=OuterRef("name"), author_key=OuterRef("author_key"),
        id__lt=OuterRef("id"),
    )  # fmt: skip
    part = _part(Decision.objects.filter(run=run).annotate(changed=Exists(earlier)), "id", window)
    for row in part.rows:
        row.shown = payloads.show("result", row.result, sight=access.sees_payloads(run.tenant_id))
    answered: list[Any] = list(
        Wait.objects.filter(run=run, kind="approval").select_related("approval").order_by("-id")[:50]
    )
    for wait in answered:
        wait.told = asking.told(wait, sight=access.sees_payloads(run.tenant_id))
    raw = Prompt.objects.filter(run=run).defer("sealed").order_by("-id")[: PER_PAGE + 1]
    return {
        "part": part, "answered": answered, "prompts": raw[:PER_PAGE], "more_prompts": len(raw) > PER_PAGE,
        "made_plans": made_plans(run), "reads_prompts": access.reads_prompts(run.tenant_id),
    }  # fmt: skip


def artifacts_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    part = _part(Artifact.objects.filter(run=run), "id", window)
    for row in part.rows:
        may_read = access.may_read(row.readable_by, run.tenant_id)
        row.why_not = "" if may_read else f"needs {WHO[READS[row.readable_by]]} of {run.tenant.slug}"
    found = kept.of_run(run)
    return {"part": part, "kept": found, "kept_bytes": sum(one.bytes for one in found)}


def logs_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    part = _part(LogLine.objects.filter(run=run), "id", window)
    sight = access.sees_payloads(run.tenant_id)
    for row in part.rows:
        row.shown = mask(row.fields) if sight and isinstance(row.fields, dict) else {}
        row.hidden = bool(row.fields) and not sight
    return {"part": part, "traceback": traceback_of(run) if run.error_class and sight else ""}


def audit_tab(run: Run, access: Access, window: Window) -> dict[str, Any]:
    rows = AuditEntry.objects.filter(target_kind="run", target_id=str(run.pk), tenant=run.tenant_id)
    return {"part": _part(rows, "id", window)}


_TAB_READERS = {
    "events": events_tab, "checkpoints": checkpoints_tab, "effects": effects_tab, "decisions": decisions_tab,
    "artifacts": artifacts_tab, "logs": logs_tab, "audit": audit_tab,
}  # fmt: skip


def tab(name: str, run: Run, access: Access, window: Window) -> dict[str, Any]:
    """What one tab shows; an unknown one is the timeline."""
    reader = _TAB_READERS.get(name)
    return reader(run, access, window) if reader else timeline_tab(run, access)
