"""The versions of workflows as they stand: who still needs one, who can run it, and how its runs get to the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from durableops.authoring import registry
from durableops.errors import WorkflowNotFound
from runs.states import OPEN

PLANS_SHOWN = 300
LOOKED_AT = 10_000
"""Open runs of a plan that are looked at, oldest first, for how many are of somebody's tenants."""
_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN))
_PLANS = f"""
SELECT p.id, p.workflow, p.version, p.first_seen_at,
    EXISTS (SELECT 1 FROM runs_run r WHERE r.plan_id = p.id AND r.state IN ({_OPEN})),
    (SELECT count(*) FROM (
        SELECT r.tenant_id FROM runs_run r WHERE r.plan_id = p.id AND r.state IN ({_OPEN}) ORDER BY r.id LIMIT %(most)s
     ) x WHERE x.tenant_id = ANY(%(tenants)s)),
    (SELECT count(*) FROM (
        SELECT r.tenant_id, r.state FROM runs_run r WHERE r.plan_id = p.id AND r.state IN ({_OPEN})
        ORDER BY r.id LIMIT %(most)s) x WHERE x.tenant_id = ANY(%(tenants)s) AND x.state = 'in_review'),
    (SELECT count(*) FROM runs_worker w WHERE w.ended_at IS NULL AND w.plans @> to_jsonb(p.id)),
    (SELECT count(*) FROM runs_plan_source s WHERE s.plan_id = p.id)
FROM (SELECT * FROM runs_workflow_plan ORDER BY id DESC LIMIT %(plans)s) p
ORDER BY p.workflow, p.version DESC, p.id DESC"""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One plan that was recorded of a workflow."""

    plan_id: int
    workflow: str
    version: int
    first_seen_at: object
    needed: bool
    """Whether any open run has it, of whichever tenant: if not, it is drained."""
    open: int
    """Open runs of the tenants that somebody sees, among those looked at."""
    in_review: int
    workers: int
    sources: int
    """How many texts of its code workers had: more than one is a change without a version."""
    ahead: str
    """How its runs get to the newest version here."""

    @property
    def stranded(self) -> bool:
        """Whether runs need it and nobody can run it."""
        return self.needed and not self.workers

    @property
    def capped(self) -> bool:
        return self.open >= LOOKED_AT


def versions(tenants: Sequence[int]) -> list[Version]:
    """The plans that were recorded last, by workflow, newest version first."""
    with connection.cursor() as cursor:
        cursor.execute(_PLANS, {"tenants": list(tenants), "most": LOOKED_AT, "plans": PLANS_SHOWN})
        rows = cursor.fetchall()
    names = ("plan_id", "workflow", "version", "first_seen_at", "needed", "open", "in_review", "workers", "sources")
    return [Version(**dict(zip(names, row, strict=True)), ahead=_ahead(row[1], row[2])) for row in rows]


def _ahead(workflow: str, version: int) -> str:
    try:
        newest = registry.workflow(workflow, None)
    except WorkflowNotFound:
        return "no code here knows it"
    if version >= newest.version:
        return "" if version == newest.version else f"newer than the code here, v{newest.version}"
    chain = registry.chain(workflow, version, newest.version)
    if not chain:
        return f"no migration to v{newest.version}: its runs are reviewed"
    path = " → ".join(f"v{one}" for one in (version, *(each.to_version for each in chain)))
    return f"{path}, {newest.migrate.replace('_', ' ')}"
