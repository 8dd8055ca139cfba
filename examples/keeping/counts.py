"""What there is of each class of each run: counted where it lies, and not by asking what is to be proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import connection
from django.db.models import Sum

from examples.keeping.cells import CLASSES, ROW, Cell
from runs.models import Cleanup, Tenant

Counts = Mapping[UUID, Mapping[str, int]]
"""Of each run, how many rows of each class."""

_PARTS = (
    ("temp_file", "runs_artifact", "data_class = 'temp_file'"),
    ("deliverable", "runs_artifact", "data_class = 'deliverable'"),
    ("raw_prompt", "runs_prompt", "true"),
    ("effect_body", "runs_effect", "result IS NOT NULL"),
    ("effect_summary", "runs_effect", "request_summary <> '{}'::jsonb"),
    ("decision", "runs_decision", "true"),
    ("checkpoint", "runs_checkpoint", "kind NOT IN ('start', 'finish')"),
    ("checkpoint", "runs_lineage", "true"),
    ("input", "runs_checkpoint", "kind = 'start'"),
    ("input", "runs_wait", "answer IS NOT NULL OR question <> ''"),
    ("deliverable", "runs_checkpoint", "kind = 'finish'"),
    ("event", "runs_event", "true"),
    ("event", "runs_log_line", "true"),
    ("event", "runs_receipt", "true"),
    ("event", "runs_review", "true"),
    (ROW, "runs_effect", "true"),
)
_COUNTS = " UNION ALL ".join(
    [
        f"SELECT run_id, '{name}', count(*) FROM {table} WHERE run_id = ANY(%(ids)s) AND ({where}) GROUP BY 1"
        for name, table, where in _PARTS
    ]
    + [f"SELECT id, '{ROW}', 1 FROM runs_run WHERE id = ANY(%(ids)s)"]
)
WHOLE_ROWS = (
    "runs_run", "runs_prompt", "runs_decision", "runs_checkpoint", "runs_lineage", "runs_event", "runs_log_line",
    "runs_receipt", "runs_review", "runs_artifact",
)  # fmt: skip
"""Tables whose rows are only ever removed, so that what is not there any more has gone."""
_BY_TABLE = " UNION ALL ".join(
    f"SELECT '{table}', count(*) FROM {table} t"
    f" {'' if table == 'runs_run' else 'JOIN runs_run r ON r.id = t.run_id'}"
    f" WHERE {'t' if table == 'runs_run' else 'r'}.tenant_id = ANY(%(tenants)s)"
    for table in WHOLE_ROWS
)
_NOT_WHOLE = """
SELECT r.id FROM runs_run r WHERE r.id = ANY(%(ids)s) AND NOT EXISTS (
    SELECT 1 FROM runs_checkpoint h JOIN runs_checkpoint s ON s.run_id = h.run_id AND s.seq = h.state_seq
    WHERE h.run_id = r.id AND h.seq = r.head_seq AND s.state IS NOT NULL)"""


def count(ids: Collection[UUID]) -> dict[UUID, dict[str, int]]:
    """Count them all."""
    found: dict[UUID, dict[str, int]] = {run: dict.fromkeys(CLASSES, 0) for run in ids}
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, {"ids": list(ids)})
        for run, name, number in cursor.fetchall():
            found[run][name] += number
    return found


def by_table(tenants: Collection[Tenant]) -> Counter[str]:
    """How many rows each table has of the runs of these tenants."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_TABLE, {"tenants": [one.pk for one in tenants]})
        return Counter(dict(cursor.fetchall()))


def recorded(tenants: Collection[Tenant], since: datetime) -> Counter[str]:
    """How many rows of each of these tables have gone since, by the record."""
    rows = Cleanup.objects.filter(tenant__in=tenants, at__gte=since, kind__in=WHOLE_ROWS)
    return Counter(dict(rows.values_list("kind").annotate(Sum("rows"))))


def without_checkpoint(ids: Collection[UUID]) -> set[UUID]:
    """Those of these runs whose present position, or the state it names, is not there."""
    with connection.cursor() as cursor:
        cursor.execute(_NOT_WHOLE, {"ids": list(ids)})
        return {row[0] for row in cursor.fetchall()}


def wrongly_deleted(cells: Mapping[UUID, Cell], made: Counts, now: Counts, *, lifted: bool = False) -> list[str]:
    """What should be there whole and is not, in words."""
    return [
        f"{cell} ({run}): {name} has {now[run][name]} of {made[run][name]}"
        for run, cell in cells.items()
        for name in sorted(cell.stays(lifted=lifted))
        if now[run][name] < made[run][name]
    ]


def wrongly_kept(cells: Mapping[UUID, Cell], made: Counts, now: Counts, *, lifted: bool = False) -> list[str]:
    """What should have gone whole and has not, in words."""
    return [
        f"{cell} ({run}): {name} still has {now[run][name]} of {made[run][name]}"
        for run, cell in cells.items()
        for name in CLASSES
        if name not in cell.stays(lifted=lifted) and now[run][name]
    ]


def wrong_files(cells: Mapping[UUID, Cell], paths: Mapping[UUID, list[tuple[str, str]]]) -> list[str]:
    """Files that are there and should not be, or the other way about."""
    return [
        f"{cell} ({run}): the file of its {name} is {'still' if there else 'not'} there"
        for run, cell in cells.items()
        for name, path in paths[run]
        if (there := default_storage.exists(path)) != (name in cell.stays())
    ]
