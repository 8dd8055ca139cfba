"""What held a run back while it stood in the queue: told by the claim that ends it, from what upkeep saw meanwhile.

The claim asks only about runs that waited for longer than a second, so that others cost nothing, and nobody asks the
database once more for it.
"""

from __future__ import annotations

OPEN_SECONDS = 5
"""A gate that was seen closed within this time counts as closed; upkeep looks each second."""
WORTH_SECONDS = 1


def subjects_of(run: str) -> str:
    """SQL for the subjects of gates that concern a run, which is named `run`."""
    return (
        f"ARRAY['all', 'tenant:' || {run}.tenant_id, 'plan:' || {run}.plan_id, 'resource:' || {run}.resource,"
        f" 'workflow::' || {run}.workflow, 'workflow:' || {run}.tenant_id || ':' || {run}.workflow]"
    )


# A run that was handed back because of a rate or a budget was held by that until it was due; others wait since then.
_SINCE = """CASE WHEN {run}.wake_cause IN ('rate', 'budget') THEN {run}.was_since
    ELSE greatest({run}.was_since, {run}.was_due_at) END"""


def held(run: str) -> str:
    """A lateral join `held`: since when a claimed run had waited, and what held it how long. `run` is its row, with
    `was_since` and `was_due_at` as they were in the queue."""
    since = _SINCE.format(run=run)
    return f"""
    LEFT JOIN LATERAL (
        SELECT w.waited, w.gates, format('waited %%s s%%s', w.waited, (
            SELECT ', held by ' || string_agg(format('%%s for %%s s', e.key, e.value), ', ' ORDER BY e.key)
            FROM jsonb_each_text(w.gates) e)) AS said
        FROM (
            SELECT round(extract(epoch FROM now() - ({since}))::numeric, 3) AS waited, (
                SELECT jsonb_object_agg(x.gate, x.seconds) FROM (
                    SELECT g.gate, round(sum(extract(epoch FROM
                        least(g.seen_at, now()) - greatest(g.since, {since})))::numeric, 3) AS seconds
                    FROM runs_gate g
                    WHERE g.subject = ANY({subjects_of(run)}) AND g.seen_at > ({since}) AND g.since < now()
                    GROUP BY g.gate
                    UNION ALL
                    SELECT {run}.wake_cause, round(extract(epoch FROM {run}.was_due_at - {run}.was_since)::numeric, 3)
                    WHERE {run}.wake_cause IN ('rate', 'budget') AND {run}.was_due_at > {run}.was_since
                ) x) AS gates
        ) w
    ) held ON ({since}) < now() - interval '{WORTH_SECONDS} s'"""
