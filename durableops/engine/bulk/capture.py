"""The preview of a bulk action: its runs are captured by id, once, and counted. Nothing is done to any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.engine.bulk import planning
from durableops.engine.bulk.verbs import MOST_RUNS as MOST_RUNS
from durableops.engine.bulk.verbs import BulkVerb
from durableops.errors import InputRefused, WorkflowNotFound
from runs.models import Bulk, Tenant

MAX_WORDS = 500


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which runs, and how they were chosen."""

    words: str
    """For people: `3 selected`, `state:failed`."""
    ids: Sequence[UUID] = ()
    sql: str = ""
    """Instead of ids: a SELECT whose first column is `id`, newest first; `params` are its parameters."""
    params: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""
    """The query string of the list of runs that shows them."""
    unfiltered: bool = False
    """Whether it is every run there is: to be typed, not only pressed."""


# Only runs of the tenant, whatever the selection brought: the join is the boundary.
_CAPTURE = """
INSERT INTO runs_bulk_item (bulk_id, seq, run_id)
SELECT %(bulk)s, row_number() OVER (ORDER BY r.created_at DESC, r.id DESC), r.id
FROM ({source}) x JOIN runs_run r ON r.id = x.id AND r.tenant_id = %(tenant)s"""
_GIVEN = "SELECT DISTINCT g.id FROM unnest(%(ids)s::uuid[]) g(id)"


def preview(
    verb: BulkVerb, selection: Selection, *, tenant: Tenant, actor: str, arguments: Mapping[str, Any] | None = None
) -> Bulk:
    """Capture the runs of a selection. Raises InputRefused for none, for too many, and for arguments that do not fit.

    Ids that are no runs of this tenant are left out, like any id that never was.
    """
    kept = verb.read(arguments or {})
    with transaction.atomic(), connection.cursor() as cursor:
        made = Bulk.objects.create(
            tenant=tenant, verb=verb.name, arguments=kept, actor=actor, runs=1, selection=_described(selection)
        )
        source = _GIVEN if not selection.sql else f"SELECT s.id FROM ({selection.sql}) s LIMIT {verb.most + 1}"
        cursor.execute(
            _CAPTURE.format(source=source),
            {**selection.params, "bulk": made.pk, "tenant": tenant.pk, "ids": list(selection.ids)},
        )
        made.runs = cursor.rowcount
        if not made.runs:
            raise InputRefused("no run of this tenant is in the selection; there is nothing to do.")
        if made.runs > verb.most:
            raise InputRefused(
                f"more than {verb.most:,} runs match, which is the most one bulk {verb.name} takes. "
                "Narrow the selection."
            )
        made.save(update_fields=["runs"])
        if verb.guard:
            try:
                planning.note(cursor, made, planning.look(cursor, made, verb))
            except WorkflowNotFound as missing:
                raise InputRefused(missing.detail, path="/arguments") from None
    return made


def _described(selection: Selection) -> dict[str, Any]:
    return {
        "words": selection.words[:MAX_WORDS],
        "by": "filter" if selection.sql else "ids",
        "query": selection.query,
        "unfiltered": selection.unfiltered,
    }
