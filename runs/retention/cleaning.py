"""The functions that remove: a batch of finished runs at a time, each class with its record first, as the owner.

They ask the verdicts themselves and under the runs' locks, so that whoever calls them can only make happen what policy
and holders allow. Each is one transaction of its caller's: what was recorded has gone, and nothing else has.
"""

from __future__ import annotations

from collections.abc import Iterator

from runs.retention.classes import CLASSES, CLOSES
from runs.retention.targets import ROW_BYTES, TARGETS, Target
from runs.states import TERMINAL

OWNER = "SECURITY DEFINER SET search_path = public, pg_temp"
# Not a SET clause of the function: a role that is no superuser may not put a parameter of our own into one. What fails
# in between ends the transaction, and the parameter with it.
OPEN_GUARD = "PERFORM set_config('durableops.retention', 'on', true);"
CLOSE_GUARD = "PERFORM set_config('durableops.retention', 'off', true);"
_TERMINAL = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL))
_POLICY = (
    "jsonb_to_recordset(v_policy) AS p(run uuid, data_class text, tenant int, workflow text, rule bigint,"
    " seconds bigint, erasure bigint)"
)

# The few facts that stay. Written anew when a run that was reopened has ended again.
_SUMMARIES = """
        INSERT INTO runs_summary (run_id, finished_at, version, checkpoints, effects, output_hash, output_bytes,
            deliverables, written_at, cleaned, kept)
        SELECT r.id, r.finished_at, pl.version, r.head_seq + 1, coalesce(e.outcomes, '{}'::jsonb),
            coalesce(c.output_hash, ''), octet_length(c.output), coalesce(a.files, '[]'::jsonb), now(), '{}', '{}'
        FROM runs_run r JOIN runs_workflow_plan pl ON pl.id = r.plan_id
        LEFT JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = r.head_seq AND c.kind = 'finish'
        LEFT JOIN LATERAL (
            SELECT jsonb_object_agg(x.state, x.n) AS outcomes FROM (
                SELECT e.state, count(*) AS n FROM runs_effect e WHERE e.run_id = r.id GROUP BY 1) x
        ) e ON true
        LEFT JOIN LATERAL (
            SELECT jsonb_agg(jsonb_build_object('id', x.id, 'name', x.name, 'sha256', x.content_hash,
                'bytes', x.size_bytes) ORDER BY x.id) AS files
            FROM (SELECT * FROM runs_artifact f WHERE f.run_id = r.id AND f.data_class = 'deliverable'
                  ORDER BY f.id LIMIT 100) x
        ) a ON true
        WHERE r.id = ANY(v_ids)
          AND NOT EXISTS (SELECT 1 FROM runs_summary s WHERE s.run_id = r.id AND s.finished_at = r.finished_at)
        ON CONFLICT (run_id) DO UPDATE SET finished_at = excluded.finished_at, version = excluded.version,
            checkpoints = excluded.checkpoints, effects = excluded.effects, output_hash = excluded.output_hash,
            output_bytes = excluded.output_bytes, deliverables = excluded.deliverables, written_at = now();
"""


def _block(target: Target, *, last: bool) -> str:
    """One target: its rows are chosen, recorded and removed by one statement."""
    t = target
    ids = "v_of_class" if not t.erasing else "v_erased"
    path = ", t.path AS path" if t.table == "runs_artifact" else ""
    files = (
        """, loose AS (
            INSERT INTO runs_loose_file (path, tenant_id, run_id, doomed, at)
            SELECT d.path, p.tenant, d.run, true, now()
            FROM doomed d JOIN noting p ON p.run = d.run
            ON CONFLICT (path) DO UPDATE SET doomed = true
        )"""
        if path
        else ""
    )
    same_run = " AND t.run_id = d.run" if t.key in ("seq", "number") else ""
    act = f"UPDATE {t.table} t SET {t.empties} FROM" if t.empties else f"DELETE FROM {t.table} t USING"
    return f"""
    IF v_left > 0 AND cardinality({ids}) > 0 THEN
        WITH noting AS MATERIALIZED (
            SELECT p.* FROM {_POLICY} WHERE p.data_class = '{t.data_class}'
        ), doomed AS MATERIALIZED (
            SELECT {t.run} AS run, t.{t.key} AS key, ({t.weight})::bigint AS bytes{path}
            FROM {t.table} t{t.joins} WHERE {t.run} = ANY({ids}) AND {t.where}
            ORDER BY {t.run}, t.{t.key} LIMIT v_left
        ), noted AS (
            INSERT INTO runs_cleanup (at, data_class, kind, tenant_id, workflow, rule, seconds, cutoff, reason,
                erasure_id, runs, rows, bytes, sample, cleaner)
            SELECT now(), '{t.data_class}', '{t.table}', p.tenant, p.workflow, p.rule, p.seconds,
                p_as_of - coalesce(p.seconds, 0) * interval '1 second',
                CASE WHEN p.erasure IS NULL THEN 'policy' ELSE 'erasure' END, p.erasure,
                count(DISTINCT d.run), count(*), sum(d.bytes), to_jsonb((array_agg(DISTINCT d.run))[1:3]), p_by
            FROM doomed d JOIN noting p ON p.run = d.run
            GROUP BY p.tenant, p.workflow, p.rule, p.seconds, p.erasure
        ){files}, gone AS (
            {act} doomed d WHERE t.{t.key} = d.key{same_run}
        )
        SELECT count(*), coalesce(sum(d.bytes), 0), (array_agg(d.run ORDER BY d.run DESC))[1]
        INTO v_n, v_bytes, v_last FROM doomed d;
        v_rows := v_rows + v_n;
        v_sum := v_sum + v_bytes;
        IF v_n > 0 THEN
            v_by := jsonb_set(v_by, ARRAY['{t.data_class}'], to_jsonb(
                coalesce((v_by ->> '{t.data_class}')::bigint, 0) + v_n));
        END IF;
        IF v_n >= v_left THEN
            -- More than fits: of this class only the runs before the last one are known to be through{
        "" if last else ", and other tables of it follow"
    }.
            v_whole := {"ARRAY(SELECT x FROM unnest(v_of_class) x WHERE x < v_last)" if last else "'{}'"};
        END IF;
        v_left := v_left - v_n;
    END IF;"""


def _of_class(name: str) -> Iterator[str]:
    targets = [target for target in TARGETS if target.data_class == name]
    yield f"""
    -- {name}
    v_of_class := ARRAY(
        SELECT (x ->> 'run')::uuid FROM jsonb_array_elements(v_plan) x WHERE x -> 'go' ? '{name}' ORDER BY 1);
    v_erased := ARRAY(
        SELECT p.run FROM {_POLICY}
        WHERE p.data_class = '{name}' AND p.erasure IS NOT NULL AND p.run = ANY(v_of_class));
    v_whole := CASE WHEN v_left > 0 THEN v_of_class ELSE '{{}}' END;"""
    for target in targets:
        yield _block(target, last=target is targets[-1])
    if name != "effect_key":
        closes = ", closed_at = coalesce(s.closed_at, now())" if name in CLOSES else ""
        yield f"""
    IF cardinality(v_whole) > 0 THEN
        UPDATE runs_summary s SET cleaned = s.cleaned || jsonb_build_object('{name}', to_jsonb(p_as_of)){closes},
            erasure_id = coalesce(s.erasure_id, p.erasure)
        FROM {_POLICY} WHERE s.run_id = p.run AND p.data_class = '{name}' AND s.run_id = ANY(v_whole);
    END IF;"""


STEP = f"""
CREATE OR REPLACE FUNCTION runs_retention_step(
    p_as_of timestamptz, p_new boolean, p_after_at timestamptz, p_after_id uuid, p_runs integer, p_rows integer,
    p_by text
) RETURNS jsonb LANGUAGE plpgsql {OWNER} AS $$
DECLARE
    v_seen uuid[]; v_ids uuid[]; v_of_class uuid[]; v_erased uuid[]; v_whole uuid[]; v_last uuid;
    v_last_at timestamptz; v_last_id uuid; v_plan jsonb; v_policy jsonb; v_by jsonb := '{{}}';
    v_left bigint := p_rows; v_n bigint; v_bytes bigint; v_rows bigint := 0; v_sum bigint := 0;
BEGIN
    IF p_as_of > clock_timestamp() THEN
        RAISE EXCEPTION 'retention as of % is refused: that is not over yet.', p_as_of
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One cleaner at a time; another one that asks meanwhile goes away.
    INSERT INTO runs_retention_lane (name) VALUES ('runs') ON CONFLICT DO NOTHING;
    PERFORM 1 FROM runs_retention_lane WHERE name = 'runs' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('busy', true);
    END IF;
    IF p_new THEN
        SELECT array_agg(x.id), (array_agg(x.at ORDER BY x.at DESC, x.id DESC))[1],
            (array_agg(x.id ORDER BY x.at DESC, x.id DESC))[1] INTO v_seen, v_last_at, v_last_id
        FROM (SELECT r.id, r.finished_at AS at FROM runs_run r
              WHERE r.finished_at IS NOT NULL AND r.retain_at IS NULL AND r.finished_at <= p_as_of
                AND (r.finished_at, r.id) > (p_after_at, p_after_id)
              ORDER BY r.finished_at, r.id LIMIT p_runs) x;
    ELSE
        SELECT array_agg(x.id), (array_agg(x.at ORDER BY x.at DESC, x.id DESC))[1],
            (array_agg(x.id ORDER BY x.at DESC, x.id DESC))[1] INTO v_seen, v_last_at, v_last_id
        FROM (SELECT r.id, r.retain_at AS at FROM runs_run r
              WHERE r.retain_at <= p_as_of AND (r.retain_at, r.id) > (p_after_at, p_after_id)
              ORDER BY r.retain_at, r.id LIMIT p_runs) x;
    END IF;
    IF v_seen IS NULL THEN
        RETURN jsonb_build_object('busy', false, 'runs', 0);
    END IF;
    v_ids := ARRAY(
        SELECT r.id FROM runs_run r WHERE r.id = ANY(v_seen) AND r.state IN ({_TERMINAL})
          AND r.finished_at <= p_as_of AND (r.retain_at IS NULL OR r.retain_at <= p_as_of)
        ORDER BY r.id FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) > 0 THEN
    {OPEN_GUARD}
{_SUMMARIES}
    WITH v AS MATERIALIZED (SELECT * FROM runs_retention_verdicts(v_ids, p_as_of)), of_run AS (
        SELECT v.run_id, coalesce(jsonb_agg(v.data_class) FILTER (WHERE v.goes), '[]'::jsonb) AS go,
            coalesce(min(v.free_at) FILTER (WHERE NOT v.goes AND NOT v.cleaned), 'infinity') AS next,
            coalesce(jsonb_object_agg(v.data_class, to_jsonb(v.held))
                FILTER (WHERE v.due_at <= p_as_of AND cardinality(v.held) > 0 AND NOT v.cleaned), '{{}}') AS kept
        FROM v GROUP BY 1
    )
    SELECT (SELECT jsonb_agg(jsonb_build_object('run', o.run_id, 'go', o.go, 'next', o.next, 'kept', o.kept))
            FROM of_run o),
        (SELECT coalesce(jsonb_agg(jsonb_build_object('run', v.run_id, 'data_class', v.data_class,
            'tenant', v.tenant_id, 'workflow', v.workflow, 'rule', v.rule, 'seconds', v.seconds,
            'erasure', v.erasure)), '[]') FROM v WHERE v.goes)
    INTO v_plan, v_policy;
{"".join(part for name in CLASSES for part in _of_class(name))}
    IF v_left > 0 THEN
        UPDATE runs_run r SET retain_at = greatest(x.next, p_as_of + interval '1 second')
        FROM jsonb_to_recordset(v_plan) AS x(run uuid, next timestamptz) WHERE r.id = x.run;
        UPDATE runs_summary s SET kept = x.kept FROM jsonb_to_recordset(v_plan) AS x(run uuid, kept jsonb)
        WHERE s.run_id = x.run AND s.kept <> x.kept;
    END IF;
    UPDATE runs_retention_lane l SET worked_at = clock_timestamp(), rows = l.rows + v_rows, bytes = l.bytes + v_sum
    WHERE l.name = 'runs';
    {CLOSE_GUARD}
    END IF;
    RETURN jsonb_build_object('busy', false, 'runs', cardinality(v_seen), 'rows', v_rows, 'bytes', v_sum,
        'by_class', v_by, 'again', v_left <= 0, 'after_at', v_last_at, 'after_id', v_last_id,
        'skipped', ARRAY(SELECT x FROM unnest(v_seen) x WHERE NOT x = ANY(v_ids)));
END $$;
"""


def _count(target: Target) -> str:
    t = target
    # What another class of the same run takes with it is that one's; a summary is written before anything goes.
    table, run, weight = (
        ("runs_run", "t.id", str(ROW_BYTES)) if t.table == "runs_summary" else (t.table, t.run, t.weight)
    )
    covered = (
        f" AND NOT EXISTS (SELECT 1 FROM going o WHERE o.run = {run} AND o.data_class = {t.covered_by})"
        if t.covered_by
        else ""
    )
    return (
        f"SELECT {run}, '{t.data_class}', count(*), coalesce(sum({weight}), 0)::bigint FROM {table} t{t.joins}"
        f" JOIN going g ON g.run = {run} AND g.data_class = '{t.data_class}'{' AND g.erased' if t.erasing else ''}"
        f" WHERE {run} = ANY(p_ids) AND {t.where}{covered} GROUP BY 1"
    )


_COUNTS = "\n        UNION ALL ".join(_count(target) for target in TARGETS)

# What a step would find, without removing it: a preview counts with the very same conditions.
COUNTS = """
CREATE OR REPLACE FUNCTION runs_retention_counts(p_ids uuid[], p_going jsonb)
RETURNS TABLE (run_id uuid, data_class text, rows bigint, bytes bigint) LANGUAGE sql STABLE AS $$
    WITH going AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(p_going) AS g(run uuid, data_class text, erased boolean)
    )
    SELECT x.run, x.data_class, sum(x.n)::bigint, sum(x.bytes)::bigint FROM (
        {_COUNTS}
    ) AS x(run, data_class, n, bytes) GROUP BY 1, 2
$$;
""".replace("{_COUNTS}", _COUNTS)
