"""The stored plan of a workflow version: found or made once for each process and meaning."""

from __future__ import annotations

import json

from durableops.authoring.definitions import WorkflowDefinition
from runs.transitions import Cursor

# DO UPDATE, not DO NOTHING: it returns the row also when another process made it in the same moment.
_SQL = """
WITH found AS (
    SELECT id FROM runs_workflow_plan
    WHERE workflow = %(workflow)s AND version = %(version)s AND schema_version = %(schema_version)s
      AND schema_hash = %(schema_hash)s AND plan_hash = %(plan_hash)s
), made AS (
    INSERT INTO runs_workflow_plan (workflow, version, schema_version, schema_hash, plan_hash, plan, source_fingerprint,
        first_seen_at)
    SELECT %(workflow)s, %(version)s, %(schema_version)s, %(schema_hash)s, %(plan_hash)s, %(plan)s::jsonb,
    %(source)s, now()
    WHERE NOT EXISTS (SELECT 1 FROM found)
    ON CONFLICT ON CONSTRAINT plan_meaning_unique DO UPDATE SET workflow = excluded.workflow
    RETURNING id
)
SELECT id FROM found UNION ALL SELECT id FROM made
"""


def plan_id(cursor: Cursor, definition: WorkflowDefinition) -> int:
    """The id of the stored plan that means the same as `definition`."""
    cursor.execute(
        _SQL,
        {
            "workflow": definition.name,
            "version": definition.version,
            "schema_version": definition.schema_version,
            "schema_hash": definition.schema_hash,
            "plan_hash": definition.plan_hash,
            "plan": json.dumps(definition.plan),
            "source": definition.source_fingerprint,
        },
    )
    found: int = cursor.fetchone()[0]
    return found
