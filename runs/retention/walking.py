"""The functions that remove what belongs to no run: events of other systems, and audit entries if a rule says so.

Both walk along their table by primary key, a bounded number of rows at a time, and remember how far they have come: a
search that finds little reads little.
"""

from __future__ import annotations

from runs.retention.cleaning import CLOSE_GUARD, OPEN_GUARD, OWNER
from runs.states import OPEN

_OPEN = ", ".join(f"'{state.value}'" for state in sorted(OPEN))


def _walk(*, lane: str, data_class: str, table: str, at: str, held: str, texts: str, first: str = "") -> str:
    return f"""
CREATE OR REPLACE FUNCTION runs_retention_{lane}(p_as_of timestamptz, p_rows integer, p_by text)
RETURNS jsonb LANGUAGE plpgsql {OWNER} AS $$
DECLARE
    v_from bigint; v_to bigint; v_seen bigint; v_rows bigint; v_bytes bigint;
BEGIN
    IF p_as_of > clock_timestamp() THEN
        RAISE EXCEPTION 'retention as of % is refused: that is not over yet.', p_as_of
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO runs_retention_lane (name) VALUES ('{lane}') ON CONFLICT DO NOTHING;
    SELECT l.position INTO v_from FROM runs_retention_lane l WHERE l.name = '{lane}' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('busy', true);
    END IF;
    {OPEN_GUARD}
    SELECT count(*), max(x.id) INTO v_seen, v_to FROM (
        SELECT t.id FROM {table} t WHERE t.id > v_from ORDER BY t.id LIMIT p_rows) x;
    WITH policy AS MATERIALIZED (
        SELECT x.tenant_id, w.seconds, w.rule FROM (SELECT id AS tenant_id FROM runs_tenant UNION ALL SELECT NULL) x
        CROSS JOIN LATERAL runs_retention_window(x.tenant_id, '', '{data_class}') w WHERE w.seconds IS NOT NULL
    ){first}, doomed AS MATERIALIZED (
        SELECT t.id, t.tenant_id, p.seconds, p.rule, ({texts} + 60)::bigint AS bytes
        FROM {table} t JOIN policy p ON p.tenant_id IS NOT DISTINCT FROM t.tenant_id
        WHERE t.id > v_from AND t.id <= v_to AND t.{at} + p.seconds * interval '1 second' <= p_as_of
          AND NOT EXISTS (SELECT 1 FROM runs_legal_hold h
                          WHERE h.lifted_at IS NULL AND h.scope = 'tenant' AND h.tenant_id = t.tenant_id){held}
        ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
    ), noted AS (
        INSERT INTO runs_cleanup (at, data_class, kind, tenant_id, workflow, rule, seconds, cutoff, reason, runs, rows,
            bytes, sample, cleaner)
        SELECT now(), '{data_class}', '{table}', d.tenant_id, '', d.rule, d.seconds,
            p_as_of - d.seconds * interval '1 second', 'policy', 0, count(*), sum(d.bytes), '[]', p_by
        FROM doomed d GROUP BY d.tenant_id, d.rule, d.seconds
    ), gone AS (
        DELETE FROM {table} t USING doomed d WHERE t.id = d.id
    )
    SELECT count(*), coalesce(sum(d.bytes), 0) INTO v_rows, v_bytes FROM doomed d;
    -- At its end it begins anew: rows that had to stay have their day, too.
    UPDATE runs_retention_lane l SET position = CASE WHEN v_seen < p_rows THEN 0 ELSE v_to END,
        worked_at = clock_timestamp(), rows = l.rows + v_rows, bytes = l.bytes + v_bytes WHERE l.name = '{lane}';
    {CLOSE_GUARD}
    RETURN jsonb_build_object('busy', false, 'seen', v_seen, 'rows', v_rows, 'bytes', v_bytes,
        'again', v_seen >= p_rows);
END $$;
"""


INBOUND = _walk(
    lane="inbound",
    data_class="input",
    table="runs_inbound_event",
    at="received_at",
    texts="coalesce(pg_column_size(t.payload), 0)",
    # An event answers waits that a run opens later, if it came after the run was created.
    first=f""", oldest AS MATERIALIZED (
        SELECT r.tenant_id, min(r.created_at) AS at FROM runs_run r WHERE r.state IN ({_OPEN}) GROUP BY 1
    )""",
    held="""
          AND NOT EXISTS (SELECT 1 FROM oldest o WHERE o.tenant_id = t.tenant_id AND o.at <= t.received_at)""",
)
AUDIT = _walk(
    lane="audit",
    data_class="audit",
    table="runs_audit_entry",
    at="at",
    texts="coalesce(pg_column_size(t.before), 0) + coalesce(pg_column_size(t.after), 0)"
    " + coalesce(pg_column_size(t.reason), 0)",
    held="""
          AND NOT EXISTS (SELECT 1 FROM runs_legal_hold h
                          WHERE h.lifted_at IS NULL AND h.scope = 'run' AND h.run_id::text = t.target_id)""",
)
