"""The functions that judge: how long something is kept, what holds a run, and so what of it may go. They only read."""

from __future__ import annotations

from runs.models.compensation import COMPENSATION_FINAL
from runs.models.effect import UNSETTLED
from runs.retention.classes import CLASSES, NEEDS, REOPEN, SUBJECTS, default_seconds
from runs.states import REOPENABLE

RECHECK = "6 hours"
"""What is held by something that tells no end is looked at again after this."""


def _list(names: object) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))  # type: ignore[call-overload]


_DEFAULTS = " ".join(
    f"WHEN '{subject}' THEN {default_seconds(subject)}" for subject in SUBJECTS if default_seconds(subject) is not None
)

# The newest rule of each place counts; the narrowest place that does not hand on to a wider one decides.
WINDOW = f"""
CREATE OR REPLACE FUNCTION runs_retention_window(
    p_tenant integer, p_workflow text, p_subject text, OUT seconds bigint, OUT rule bigint
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT x.seconds, x.id INTO seconds, rule FROM (
        SELECT DISTINCT ON (r.tenant_id, r.workflow) r.id, r.tenant_id, r.workflow, r.keeps, r.seconds
        FROM runs_retention_rule r
        WHERE r.subject = p_subject AND (r.tenant_id = p_tenant OR r.tenant_id IS NULL)
          AND r.workflow IN (p_workflow, '')
        ORDER BY r.tenant_id, r.workflow, r.id DESC
    ) x WHERE x.keeps <> 'inherited' ORDER BY x.tenant_id IS NULL, x.workflow = '' LIMIT 1;
    IF NOT FOUND THEN
        rule := 0;
        seconds := CASE p_subject {_DEFAULTS} END;
    END IF;
END $$;
"""

# Until when a run may be reopened: never once something is missing that it would need, for ever if the rule says so.
REOPEN_UNTIL = f"""
CREATE OR REPLACE FUNCTION runs_reopen_until(
    p_run uuid, p_state text, p_finished_at timestamptz, p_seconds bigint
) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN p_state NOT IN ({_list(REOPENABLE)}) THEN NULL
        WHEN EXISTS (SELECT 1 FROM runs_summary s WHERE s.run_id = p_run AND s.closed_at IS NOT NULL) THEN NULL
        WHEN p_seconds IS NULL THEN 'infinity'::timestamptz
        ELSE p_finished_at + p_seconds * interval '1 second' END
$$;
"""

# What may hold a run: whether it does, until when if that is known, and which classes it needs.
_HOLDERS = {
    "open": ("f.finished_at IS NULL", "NULL"),
    "reopenable": ("f.reopen_until > p_as_of AND f.erasure IS NULL", "f.reopen_until"),
    "unsettled_effect": ("f.unsettled", "NULL"),
    "compensation_owed": ("f.owed", "NULL"),
    "open_wait": ("f.waits", "NULL"),
    "open_review": ("f.reviewed", "NULL"),
    "parent": (
        "coalesce(f.parent_open, false) OR (coalesce(f.parent_until > p_as_of, false) AND f.erasure IS NULL)",
        "CASE WHEN f.parent_open THEN NULL ELSE f.parent_until END",
    ),
    "child": ("coalesce(f.child_open, false)", "NULL"),
    "child_rows": ("f.children", "NULL"),
    "undone_by_it": ("f.undid", "NULL"),
    "legal_hold": ("f.legally_held", "NULL"),
    "key_window": ("coalesce(f.key_until > p_as_of, false)", "f.key_until"),
    "shared_effect": ("coalesce(f.shared, false)", "NULL"),
}
assert _HOLDERS.keys() == NEEDS.keys()
# Who asked that data be erased does not wait until nobody wants to reopen its run any more, or to read a shared answer.
_LESS = {"shared_effect": ("effect_key",)}


def _needs(name: str) -> str:
    usual = f"ARRAY[{_list(NEEDS[name])}]"
    return f"CASE WHEN f.erasure IS NULL THEN {usual} ELSE ARRAY[{_list(_LESS[name])}] END" if name in _LESS else usual


_ROWS = ",\n            ".join(
    f"('{name}', {applies}, ({until})::timestamptz, {_needs(name)})" for name, (applies, until) in _HOLDERS.items()
)

VERDICTS = f"""
CREATE OR REPLACE FUNCTION runs_retention_verdicts(p_ids uuid[], p_as_of timestamptz)
RETURNS TABLE (run_id uuid, data_class text, tenant_id integer, workflow text, due_at timestamptz, seconds bigint,
    rule bigint, held text[], free_at timestamptz, erasure bigint, cleaned boolean, goes boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN RETURN QUERY
    WITH RECURSIVE r AS MATERIALIZED (
        SELECT r.id, r.tenant_id, r.workflow, r.state, r.finished_at, r.created_at, r.labels, r.parent_id
        FROM runs_run r WHERE r.id = ANY(p_ids)
    ), policy AS MATERIALIZED (
        SELECT p.tenant_id, p.workflow, c.subject, w.seconds, w.rule
        FROM (SELECT DISTINCT r.tenant_id, r.workflow::text FROM r) p
        CROSS JOIN unnest(ARRAY[{_list([*CLASSES, REOPEN])}]) AS c(subject)
        CROSS JOIN LATERAL runs_retention_window(p.tenant_id, p.workflow, c.subject) w
    ), above AS (
        SELECT r.id AS of_run, p.id, p.parent_id, p.tenant_id, p.workflow, p.state, p.finished_at
        FROM r JOIN runs_run p ON p.id = r.parent_id
        UNION ALL
        SELECT a.of_run, p.id, p.parent_id, p.tenant_id, p.workflow, p.state, p.finished_at
        FROM above a JOIN runs_run p ON p.id = a.parent_id
    ), parents AS MATERIALIZED (
        SELECT a.of_run, bool_or(a.finished_at IS NULL) AS open, max(a.finished_at) AS ended,
            max(runs_reopen_until(a.id, a.state, a.finished_at, w.seconds)) AS until
        FROM above a CROSS JOIN LATERAL runs_retention_window(a.tenant_id, a.workflow, '{REOPEN}') w GROUP BY 1
    ), kids AS MATERIALIZED (
        SELECT c.parent_id AS of_run, bool_or(c.finished_at IS NULL) AS open, max(c.finished_at) AS ended
        FROM runs_run c WHERE c.parent_id = ANY(p_ids) GROUP BY 1
    ), done AS MATERIALIZED (
        SELECT e.run_id AS of_run, max(e.completed_at) AS settled, max(e.window_ends_at) AS key_until,
            bool_or(e.state IN ({_list(UNSETTLED)})) AS unsettled,
            -- A promise for the whole tenant with no end of its own has none here either.
            bool_or(e.scope = 'tenant' AND e.state NOT IN ('withdrawn', {_list(UNSETTLED)})
                    AND coalesce(e.window_ends_at > p_as_of, true)) AS shared
        FROM runs_effect e WHERE e.run_id = ANY(p_ids) GROUP BY 1
    ), asked AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.label, e.value, e.requested_at FROM runs_erasure e
        WHERE e.tenant_id IN (SELECT r.tenant_id FROM r)
    ), facts AS MATERIALIZED (
        SELECT r.id, r.tenant_id, r.workflow::text AS workflow, r.finished_at,
            runs_reopen_until(r.id, r.state, r.finished_at, reopen.seconds) AS reopen_until,
            coalesce(d.unsettled, false)
                OR EXISTS (SELECT 1 FROM runs_doubt q WHERE q.run_id = r.id AND q.settled_at IS NULL) AS unsettled,
            EXISTS (SELECT 1 FROM runs_compensation q
                    WHERE q.run_id = r.id AND q.state NOT IN ({_list(COMPENSATION_FINAL)}))
                OR EXISTS (SELECT 1 FROM runs_compensation_order q WHERE q.run_id = r.id AND q.applied_at IS NULL)
                AS owed,
            EXISTS (SELECT 1 FROM runs_compensation q WHERE q.linked_run_id = r.id)
                OR EXISTS (SELECT 1 FROM runs_compensation_order q WHERE q.linked_run_id = r.id) AS undid,
            EXISTS (SELECT 1 FROM runs_wait q WHERE q.run_id = r.id AND q.state = 'open') AS waits,
            EXISTS (SELECT 1 FROM runs_review q WHERE q.run_id = r.id AND q.closed_at IS NULL) AS reviewed,
            p.open AS parent_open, p.until AS parent_until, k.open AS child_open, k.of_run IS NOT NULL AS children,
            EXISTS (SELECT 1 FROM runs_legal_hold h WHERE h.lifted_at IS NULL AND h.tenant_id = r.tenant_id
                AND (h.scope = 'tenant' OR (h.scope = 'run' AND h.run_id = r.id)
                     OR (h.scope = 'label' AND r.labels ->> h.label = h.value))) AS legally_held,
            d.key_until, d.shared, coalesce(s.cleaned, '{{}}'::jsonb) AS cleaned,
            greatest(r.finished_at, p.ended, k.ended, d.settled,
                (SELECT max(q.settled_at) FROM runs_doubt q WHERE q.run_id = r.id),
                (SELECT max(q.settled_at) FROM runs_compensation q WHERE q.run_id = r.id)) AS needed_until,
            coalesce(s.erasure_id, (SELECT min(e.id) FROM asked e
                WHERE e.tenant_id = r.tenant_id AND r.created_at <= e.requested_at
                  AND (e.label = '' OR r.labels ->> e.label = e.value))) AS erasure
        FROM r
        JOIN policy reopen ON reopen.tenant_id = r.tenant_id AND reopen.workflow = r.workflow
            AND reopen.subject = '{REOPEN}'
        LEFT JOIN parents p ON p.of_run = r.id LEFT JOIN kids k ON k.of_run = r.id
        LEFT JOIN done d ON d.of_run = r.id LEFT JOIN runs_summary s ON s.run_id = r.id
    ), holds AS MATERIALIZED (
        SELECT f.id, h.holder, h.until, h.needs FROM facts f CROSS JOIN LATERAL (VALUES
            {_ROWS}
        ) AS h(holder, applies, until, needs) WHERE h.applies
    ), each_class AS MATERIALIZED (
        SELECT f.id, c.subject, f.tenant_id, f.workflow, c.rule, f.erasure, f.cleaned ? c.subject AS cleaned,
            CASE WHEN f.erasure IS NOT NULL THEN 0 ELSE c.seconds END AS seconds,
            CASE WHEN f.finished_at IS NULL THEN NULL
                 WHEN f.erasure IS NOT NULL THEN f.finished_at
                 WHEN c.seconds IS NULL THEN 'infinity'::timestamptz
                 ELSE f.needed_until + c.seconds * interval '1 second' END AS due_at,
            h.holders, h.until, h.unknown
        FROM facts f
        JOIN policy c ON c.tenant_id = f.tenant_id AND c.workflow = f.workflow AND c.subject <> '{REOPEN}'
        CROSS JOIN LATERAL (
            SELECT coalesce(array_agg(h.holder ORDER BY h.holder), '{{}}') AS holders, max(h.until) AS until,
                bool_or(h.until IS NULL) AS unknown
            FROM holds h WHERE h.id = f.id AND c.subject = ANY(h.needs)
        ) h
    ), judged AS MATERIALIZED (
        SELECT x.*, x.due_at IS NOT NULL AND x.due_at <= p_as_of AND cardinality(x.holders) = 0 AS may_go,
            CASE WHEN x.due_at IS NULL THEN NULL
                 WHEN coalesce(x.unknown, false) THEN greatest(x.due_at, p_as_of + interval '{RECHECK}')
                 ELSE greatest(x.due_at, x.until) END AS free
        FROM each_class x
    ), whole AS (
        -- The run's row goes with the last of its data. A window and not a join: without statistics a join of this with
        -- itself is planned for one row, and takes the square of them.
        SELECT j.*, max(j.free) FILTER (WHERE j.subject <> 'effect_key' AND NOT j.cleaned) OVER of_run AS others_free,
            array_agg('class:' || j.subject) FILTER (
                WHERE j.subject <> 'effect_key' AND NOT j.cleaned AND NOT j.may_go) OVER of_run AS stay
        FROM judged j
        WINDOW of_run AS (PARTITION BY j.id ORDER BY j.subject
                          ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    )
    SELECT j.id, j.subject, j.tenant_id, j.workflow, j.due_at, j.seconds, j.rule,
        CASE WHEN j.subject = 'effect_key' THEN j.holders || coalesce(j.stay, '{{}}') ELSE j.holders END,
        CASE WHEN j.subject = 'effect_key' THEN greatest(j.free, j.others_free) ELSE j.free END,
        j.erasure, j.cleaned, j.may_go AND NOT j.cleaned AND (j.subject <> 'effect_key' OR j.stay IS NULL)
    FROM whole j;
END $$;
"""
