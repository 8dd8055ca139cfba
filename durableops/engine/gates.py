"""Gates as people read them: what keeps a queued run from running, since when, and what held runs back lately."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from durableops.engine.quota_view import Cap
from runs.gates import OPEN_SECONDS, subjects_of
from runs.models import Run
from runs.states import State

MOST = 20
MOST_ROWS = 10_000
MOST_RUNS = 10_000
BEFORE_RUN = f"""(SELECT jsonb_build_object(
    'closed', (SELECT jsonb_agg(jsonb_build_array(g.gate, g.subject, g.since, g.held) ORDER BY g.gate, g.subject)
        FROM runs_gate g
        WHERE g.subject = ANY({subjects_of("r")}) AND g.seen_at > now() - interval '{OPEN_SECONDS} s'),
    'cap', (SELECT jsonb_build_array(p.running_cap,
            (SELECT count(*) FROM (SELECT 1 FROM runs_run h WHERE h.tenant_id = p.tenant_id AND h.state = 'running'
                LIMIT {MOST_RUNS}) x),
            (SELECT count(*) FROM (SELECT 1 FROM runs_run h WHERE h.tenant_id = p.tenant_id AND h.state = 'queued'
                AND NOT h.paused AND NOT h.deferred AND h.due_at <= now() LIMIT {MOST_RUNS}) x))
        FROM runs_quota_policy p
        WHERE p.tenant_id = r.tenant_id AND p.running_cap IS NOT NULL AND r.due_at <= now()))
    FROM runs_run r WHERE r.id = %(run)s AND r.state = 'queued')"""
"""A column of JSON: what stands before a queued run. It asks for `run`; `read_before` reads it."""
LATELY = f"""
SELECT x.gate, x.subject, t.slug, p.workflow, p.version, x.since, x.held, x.seconds FROM (
    SELECT g.gate, g.subject, max(g.tenant_id) AS tenant_id,
        max(g.since) FILTER (WHERE g.seen_at > now() - interval '{OPEN_SECONDS} s') AS since,
        max(g.held) FILTER (WHERE g.seen_at > now() - interval '{OPEN_SECONDS} s') AS held,
        sum(extract(epoch FROM g.seen_at - greatest(g.since, now() - %(hours)s * interval '1 hour')))::float8 AS seconds
    FROM (
        SELECT * FROM runs_gate
        WHERE seen_at > now() - %(hours)s * interval '1 hour' AND (tenant_id IS NULL OR tenant_id = ANY(%(tenants)s))
        ORDER BY seen_at DESC LIMIT {MOST_ROWS}) g
    GROUP BY 1, 2
) x LEFT JOIN runs_tenant t ON t.id = x.tenant_id
LEFT JOIN runs_workflow_plan p
    ON p.id = CASE WHEN x.gate = 'workers.version' THEN split_part(x.subject, ':', 2)::bigint END
ORDER BY x.since IS NULL, x.held DESC NULLS LAST, x.seconds DESC, x.gate, x.subject LIMIT {MOST}"""
"""What held runs of `tenants` back within `hours`, closed gates first; `read_lately` reads the rows as JSON."""


@dataclass(frozen=True, kw_only=True)
class Closed:
    """A gate that is closed before a run just now."""

    gate: str
    subject: str
    since: datetime
    held: int
    """How many runs stand before it, counted up to a cap."""

    @property
    def name(self) -> str:
        """Of the resource or workflow; "" where the gate says enough."""
        return _name(self.subject)


@dataclass(frozen=True, kw_only=True)
class Lately:
    """What one gate did within some hours."""

    gate: str
    name: str
    """Whom it concerns; "" is everybody."""
    since: datetime | None
    """Since when it is closed; None if it is open."""
    held: int
    seconds: float
    """How long it was closed."""

    @property
    def words(self) -> str:
        return WORDS[self.gate]


WORDS = {
    "quota.tenant": "its tenant’s cap",
    "quota.resource": "the cap of a shared resource",
    "switch.all": "everything is paused",
    "switch.tenant": "its tenant is paused",
    "switch.workflow": "its workflow is paused",
    "workers.none": "no worker is alive",
    "workers.version": "no worker has its version",
}


@dataclass(frozen=True, kw_only=True)
class Before:
    """What stands before a queued run, as upkeep saw it within the last seconds, and its tenant's cap as it is."""

    closed: list[Closed] = field(default_factory=list)
    cap: Cap | None = None


def before(run: Run) -> Before:
    """What stands before a run; nothing unless it is queued."""
    if run.state != State.QUEUED:
        return Before()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {BEFORE_RUN}", {"run": run.pk})
        return read_before(cursor.fetchone()[0])


def read_before(column: Any) -> Before:
    """What `BEFORE_RUN` answered."""
    found = _document(column) or {}
    closed = [
        Closed(gate=gate, subject=subject, since=datetime.fromisoformat(since), held=held)
        for gate, subject, since, held in found.get("closed") or ()
    ]
    cap = found.get("cap")
    return Before(closed=closed, cap=Cap(most=cap[0], running=cap[1], waiting=cap[2]) if cap else None)


def read_lately(column: Any) -> list[Lately]:
    """What the rows of `LATELY` say, as one array."""
    found = []
    for row in _document(column) or ():
        since = None if row["since"] is None else datetime.fromisoformat(row["since"])
        about = f"{row['workflow']} v{row['version']}" if row["workflow"] else _name(row["subject"])
        name = " · ".join(one for one in (row["slug"], about) if one)
        found.append(Lately(gate=row["gate"], name=name, since=since, held=row["held"] or 0, seconds=row["seconds"]))
    return found


def _name(subject: str) -> str:
    kind, _, name = subject.partition(":")
    return name if kind == "resource" else name.partition(":")[2] if kind == "workflow" else ""


def _document(column: Any) -> Any:
    return json.loads(column) if isinstance(column, str) else column
