"""Previews: what would go as of one moment, what would stay and why; and whether the cleaner then did just that.

Asked of the same functions that the cleaner's steps ask, so the two can only differ by what happened in between: runs
that were reopened or held, rules that were changed, another cleaner that was quicker. Which of these, is said.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from durableops.engine.database import Database
from durableops.errors import DurableOpsError
from durableops.upkeep.retention.cleaner import Between, Cleaned, Cleaner
from runs.models import Cleanup, LegalHold, Relook, RetentionPreview, RetentionRule, Tenant

BATCH = 200
SAMPLES = 3

_NEXT = """
SELECT r.id, coalesce(r.retain_at, r.finished_at) FROM runs_run r
WHERE {which} AND (%(tenant)s::int IS NULL OR r.tenant_id = %(tenant)s)
ORDER BY {column}, r.id LIMIT %(limit)s"""
_NEW = _NEXT.format(
    which="r.finished_at IS NOT NULL AND r.retain_at IS NULL AND r.finished_at <= %(as_of)s"
    " AND (r.finished_at, r.id) > (%(at)s, %(id)s)",
    column="r.finished_at",
)
_DUE = _NEXT.format(
    which="r.retain_at <= %(as_of)s AND (r.retain_at, r.id) > (%(at)s, %(id)s)", column="r.retain_at"
)  # fmt: skip
_VERDICTS = """
SELECT v.run_id, v.data_class, v.workflow, v.seconds, v.rule, v.held, v.erasure, v.goes, v.due_at <= %(as_of)s
FROM runs_retention_verdicts(%(ids)s, %(as_of)s) v WHERE NOT v.cleaned AND v.due_at <= %(as_of)s"""
_COUNTS = "SELECT run_id, data_class, rows, bytes FROM runs_retention_counts(%s, %s::jsonb)"


class PreviewNotFound(DurableOpsError):
    """There is no such preview of retention in this tenant."""

    code = "preview.not_found"
    http_status = 404


class Fetches(Protocol):
    """What asks: the engine's connection, or the one of a request."""

    def fetch(self, query: str, params: Any = None) -> list[tuple[Any, ...]]: ...


@dataclass(kw_only=True)
class Going:
    """What would go of one class of one workflow."""

    workflow: str
    data_class: str
    seconds: int | None = None
    rule: int = 0
    runs: int = 0
    rows: int = 0
    bytes: int = 0
    sample: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Staying:
    """What is due by its age and stays, for one reason."""

    workflow: str
    data_class: str
    why: str
    runs: int = 0
    sample: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Preview:
    """The figures of one preview."""

    as_of: datetime
    goes: list[Going]
    stays: list[Staying]
    runs: int
    """Runs that were looked at."""
    complete: bool
    """False when there are more than were looked at."""

    def as_json(self) -> dict[str, Any]:
        return {
            "as_of": self.as_of.isoformat(),
            "runs": self.runs,
            "complete": self.complete,
            "goes": [vars(one) for one in self.goes],
            "stays": [vars(one) for one in self.stays],
            "rows": sum(one.rows for one in self.goes),
            "bytes": sum(one.bytes for one in self.goes),
        }


def look(database: Fetches, as_of: datetime, *, tenant: Tenant | None = None, most: int | None = None) -> Preview:
    """Look at every run that is due as of a moment, or at most so many. Nothing is locked and nothing is changed."""
    found = _Found()
    looked_at, complete = 0, True
    for statement in (_NEW, _DUE):
        at: Any = "-infinity"
        last = UUID(int=0)
        while most is None or looked_at < most:
            limit = BATCH if most is None else min(BATCH, most - looked_at)
            place = {"as_of": as_of, "at": at, "id": last, "limit": limit, "tenant": tenant and tenant.pk}
            rows = database.fetch(statement, place)
            if not rows:
                break
            found.add(database, as_of, [row[0] for row in rows])
            looked_at += len(rows)
            last, at = rows[-1]
        else:
            complete = False
    return found.preview(as_of, looked_at=looked_at, complete=complete)


def look_at(database: Fetches, as_of: datetime, ids: list[UUID]) -> Preview:
    """Look at these runs alone, whether they are due for a look or not."""
    found = _Found()
    for start in range(0, len(ids), BATCH):
        found.add(database, as_of, ids[start : start + BATCH])
    return found.preview(as_of, looked_at=len(ids), complete=True)


class _Found:
    """What was found so far, by workflow and class."""

    def __init__(self) -> None:
        self._goes: dict[tuple[str, str], Going] = {}
        self._stays: dict[tuple[str, str, str], Staying] = {}

    def preview(self, as_of: datetime, *, looked_at: int, complete: bool) -> Preview:
        return Preview(
            as_of=as_of,
            goes=sorted(self._goes.values(), key=lambda one: (one.workflow, one.data_class)),
            stays=sorted(self._stays.values(), key=lambda one: (one.workflow, one.data_class, one.why)),
            runs=looked_at,
            complete=complete,
        )

    def add(self, database: Fetches, as_of: datetime, ids: list[UUID]) -> None:
        verdicts = database.fetch(_VERDICTS, {"ids": ids, "as_of": as_of})
        going = [
            {"run": str(run), "data_class": name, "erased": erasure is not None}
            for run, name, _workflow, _seconds, _rule, _held, erasure, may_go, _due in verdicts
            if may_go
        ]
        counted = {
            (run, name): (rows, size) for run, name, rows, size in database.fetch(_COUNTS, [ids, json.dumps(going)])
        }
        for run, name, workflow, seconds, rule, held, _erasure, may_go, _due in verdicts:
            rows, size = counted.get((run, name), (0, 0)) if may_go else (0, 0)
            if rows:
                one = self._goes.setdefault((workflow, name), Going(workflow=workflow, data_class=name))
                one.seconds, one.rule = seconds, rule
                one.runs, one.rows, one.bytes = one.runs + 1, one.rows + rows, one.bytes + int(size)
                _sample(one.sample, run)
            for why in held:
                kept = self._stays.setdefault(
                    (workflow, name, why), Staying(workflow=workflow, data_class=name, why=why)
                )
                kept.runs += 1
                _sample(kept.sample, run)


def _sample(sample: list[str], run: UUID) -> None:
    if len(sample) < SAMPLES:
        sample.append(str(run))


def store(preview: Preview, *, tenant: Tenant | None, by: str) -> RetentionPreview:
    """Keep a preview, so that a run of the cleaner can be compared with it."""
    newest = RetentionRule.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    return RetentionPreview.objects.create(
        made_by=by, as_of=preview.as_of, tenant=tenant, rule=newest, figures=preview.as_json()
    )


def execute(database: Database, stored: RetentionPreview, *, by: str, between: Between = lambda: True) -> Cleaned:
    """Clean as of the moment a preview was made for, and write down what became of it and what was different."""
    began = database.fetch("SELECT clock_timestamp()")[0][0]
    done = Cleaner(database, by=by).clean(stored.as_of, between)
    stored.ran_at = began
    stored.outcome = {
        "rows": done.rows,
        "bytes": done.bytes,
        "files": done.files,
        "skipped": done.skipped[:100],
        "busy": done.busy,
        "different": differences(stored),
        "because": reasons(stored),
    }
    stored.save(update_fields=["ran_at", "outcome"])
    return done


def differences(stored: RetentionPreview) -> list[dict[str, Any]]:
    """Where what went since the preview is not what it said, by workflow and class."""
    said: Counter[tuple[str, str]] = Counter()
    for one in stored.figures["goes"]:
        said[one["workflow"], one["data_class"]] += one["rows"]
    went: Counter[tuple[str, str]] = Counter()
    # A later cleaner removes more: what became due after the preview is not its affair.
    since = Cleanup.objects.filter(at__gte=stored.made_at, runs__gt=0)
    if stored.tenant_id is not None:
        since = since.filter(tenant=stored.tenant_id)
    for workflow, name, rows in since.values_list("workflow", "data_class", "rows"):
        went[workflow, name] += rows
    return [
        {"workflow": workflow, "data_class": name, "said": said[workflow, name], "went": went[workflow, name]}
        for workflow, name in sorted(said | went)
        if said[workflow, name] != went[workflow, name]
    ]


def reasons(stored: RetentionPreview) -> list[str]:
    """What happened since the preview that may be why."""
    found: dict[str, int] = defaultdict(int)
    found["rules were set"] = RetentionRule.objects.filter(pk__gt=stored.rule).count()
    found["legal holds were placed"] = LegalHold.objects.filter(placed_at__gt=stored.made_at).count()
    found["legal holds were lifted"] = LegalHold.objects.filter(lifted_at__gt=stored.made_at).count()
    found["requests to look again were followed"] = Relook.objects.filter(done_at__gt=stored.made_at).count()
    others = Cleanup.objects.filter(at__gte=stored.made_at).exclude(cutoff__lte=stored.as_of).count()
    found["another cleaner removed what became due later"] = others
    return [f"{number} {what}" for what, number in found.items() if number]
