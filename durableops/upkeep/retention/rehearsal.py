"""Rehearsals: what a rule would change, found by setting it and taking it back before anybody can see it.

Runs are looked at oldest first and up to a number: what the rule would do is the cleaner's own judgement of them, with
the rule and without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from durableops import clock
from durableops.engine.retention import rules
from durableops.upkeep.retention.preview import Preview, look_at
from runs.models import Tenant
from runs.states import TERMINAL

MOST = 1000
"""Runs that are looked at."""

# Of each tenant and state the oldest, along the index of the runs list.
_OLDEST = """
SELECT x.id FROM runs_tenant t CROSS JOIN unnest(%(states)s::text[]) s(state) CROSS JOIN LATERAL (
    SELECT r.id, r.created_at, r.workflow FROM runs_run r WHERE r.tenant_id = t.id AND r.state = s.state
    ORDER BY r.created_at, r.id LIMIT %(most)s
) x
WHERE (%(tenant)s::int IS NULL OR t.id = %(tenant)s) AND (%(workflow)s = '' OR x.workflow = %(workflow)s)
ORDER BY x.created_at, x.id LIMIT %(most)s"""


class OfRequest:
    """Django's connection, as previews ask it."""

    def fetch(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(query, params)
            return list(cursor.fetchall())


@dataclass(frozen=True, kw_only=True)
class Change:
    """What would be different of one class of one workflow."""

    workflow: str
    data_class: str
    rows: int
    """More than would go without the rule; fewer, if negative."""
    bytes: int
    sample: list[str]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What one rule would change."""

    runs: int
    """Finished runs that were looked at, the oldest of those it concerns."""
    complete: bool
    """False when there may be more of them."""
    changes: list[Change]


def rehearse(
    subject: str, *, keeps: str, seconds: int | None = None, tenant: Tenant | None, workflow: str = ""
) -> Rehearsal:
    """What setting such a rule would do to what is there today. Nothing of it stays. Raises InputRefused."""
    database = OfRequest()
    place = {"tenant": tenant and tenant.pk, "workflow": workflow, "states": sorted(TERMINAL), "most": MOST}
    with transaction.atomic():
        ids = [row[0] for row in database.fetch(_OLDEST, place)]
        as_of = clock.db_now()
        before = look_at(database, as_of, ids)
        rules.set_rule(
            subject, keeps=keeps, seconds=seconds, tenant=tenant, workflow=workflow, actor="rehearsal",
            reason="a rehearsal, which is taken back",
        )  # fmt: skip
        after = look_at(database, as_of, ids)
        transaction.set_rollback(True)
    return Rehearsal(runs=len(ids), complete=len(ids) < MOST, changes=_changes(before, after))


def _changes(before: Preview, after: Preview) -> list[Change]:
    old = {(one.workflow, one.data_class): one for one in before.goes}
    new = {(one.workflow, one.data_class): one for one in after.goes}
    found = []
    for place in sorted(old.keys() | new.keys()):
        was, will = old.get(place), new.get(place)
        rows = (will.rows if will else 0) - (was.rows if was else 0)
        size = (will.bytes if will else 0) - (was.bytes if was else 0)
        if rows or size:
            sample = will.sample if will else was.sample if was else []
            found.append(Change(workflow=place[0], data_class=place[1], rows=rows, bytes=size, sample=sample))
    return found
