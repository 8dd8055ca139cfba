"""The stored plan of a workflow version: found or made once for each process and meaning."""

from __future__ import annotations

import json

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from runs.transitions import Cursor

# DO UPDATE, not DO NOTHING: it returns the row also when another process made it in the same moment.
_SQL = """
WITH found AS (
    SELECT id FROM runs_workflow_plan
    WHERE workflow = %(workflow)s AND version = %(version)s AND schema_version = %(schema_version)s
      AND schema_hash = %(schema_hash)s AND plan_hash = %(plan_hash)s AND waits_hash = %(waits_hash)s
), made AS (
    INSERT INTO runs_workflow_plan (workflow, version, schema_version, schema_hash, plan_hash, waits_hash, plan, schema,
        waits, source_fingerprint, first_seen_at)
    SELECT %(workflow)s, %(version)s, %(schema_version)s, %(schema_hash)s, %(plan_hash)s, %(waits_hash)s,
        %(plan)s::jsonb, %(schema)s::jsonb, %(waits)s::jsonb, %(source)s, now()
    WHERE NOT EXISTS (SELECT 1 FROM found)
    ON CONFLICT ON CONSTRAINT plan_meaning_unique DO UPDATE SET workflow = excluded.workflow
    RETURNING id
)
SELECT id FROM found UNION ALL SELECT id FROM made
"""
_SOURCE = """
INSERT INTO runs_plan_source (plan_id, fingerprint, first_seen_at, last_seen_at) VALUES (%s, %s, now(), now())
ON CONFLICT ON CONSTRAINT plan_source_unique DO UPDATE SET last_seen_at = now()"""
# Rows that mean the same: recorded with other waits, or before waits were recorded.
_SAME = """
SELECT id FROM runs_workflow_plan
WHERE workflow = %s AND version = %s AND schema_version = %s AND schema_hash = %s AND plan_hash = %s"""


def plan_id(cursor: Cursor, definition: WorkflowDefinition) -> int:
    """The id of the stored plan that means the same as `definition` and waits for the same."""
    cursor.execute(
        _SQL,
        {
            "workflow": definition.name,
            "version": definition.version,
            "schema_version": definition.schema_version,
            "schema_hash": definition.schema_hash,
            "plan_hash": definition.plan_hash,
            "waits_hash": definition.waits_hash,
            "plan": json.dumps(definition.plan),
            "schema": json.dumps(definition.schema),
            "waits": json.dumps(definition.waits),
            "source": definition.source_fingerprint,
        },
    )
    found: int = cursor.fetchone()[0]
    return found


def record_plans(cursor: Cursor) -> list[int]:
    """Store the plan of every definition this process has, and return the ids of all plans it can run."""
    found: set[int] = set()
    for definition in registry.workflows():
        own = plan_id(cursor, definition)
        cursor.execute(_SOURCE, [own, definition.source_fingerprint])
        cursor.execute(
            _SAME,
            [
                definition.name,
                definition.version,
                definition.schema_version,
                definition.schema_hash,
                definition.plan_hash,
            ],
        )
        found |= {own, *(row[0] for row in cursor.fetchall())}
    return sorted(found)
