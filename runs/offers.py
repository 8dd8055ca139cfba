"""Which plans a claim takes: conditions on a queued run `r`, by how its worker reads the queue.

`exact` and `orphans` look at the whole queue; `lane` and `orphaned_lane` at one plan's part of it, along an index of
its own, where many runs in front are for other workers.
"""

from __future__ import annotations


def offered(plan: str) -> str:
    """SQL that asks whether a living worker can run a plan. One that has not said what it has may have it."""
    return f"""EXISTS (SELECT 1 FROM runs_worker w
            WHERE w.ended_at IS NULL AND (w.plans IS NULL OR w.plans @> to_jsonb({plan})))"""


def plans_where(condition: str, *, name: str) -> str:
    """A recursive part `name` of a query: plans of the runs `r` of a condition, by one descent of an index for each.

    Its last row is NULL.
    """
    plans = f"SELECT r.plan_id FROM runs_run r WHERE {condition}"
    return f"""{name} AS (
    ({plans} ORDER BY r.plan_id LIMIT 1)
    UNION ALL
    SELECT ({plans} AND r.plan_id > found.plan_id ORDER BY r.plan_id LIMIT 1)
    FROM {name} found WHERE found.plan_id IS NOT NULL
)"""


ASKED_FOR = "r.state = 'queued' AND NOT r.paused"
NEEDED = "r.state IN ('queued', 'running', 'waiting', 'in_doubt', 'in_review')"


# Looked at by the claim itself: a worker that has the plan may have come back a moment ago.
_ORPHANED = f"NOT r.pinned AND NOT {offered('r.plan_id')}"
# Not a condition for the index that begins with the plan: it would gather and sort a whole queue.
# Whoever takes a run that was cancelled reads nothing of it: it ends.
_EXACT = "(r.plan_id + 0) = ANY(%(plans)s) OR r.cancel_requested"

WAYS = {
    "exact": f"({_EXACT})",
    "orphans": f"({_EXACT} OR ((r.plan_id + 0) = ANY(%(orphans)s) AND {_ORPHANED}))",
    "lane": "r.plan_id = %(lane)s",
    "orphaned_lane": f"r.plan_id = %(lane)s AND {_ORPHANED}",
}

# Roughly, and for bells only: who is woken looks closer.
TAKEN_BY_SOMEBODY = f"""({offered("r.plan_id")} OR (NOT r.pinned AND EXISTS (
    SELECT 1 FROM runs_workflow_plan o
    JOIN runs_workflow_plan m ON m.workflow = o.workflow AND m.version >= o.version AND m.id <> o.id
    WHERE o.id = r.plan_id AND {offered("m.id")})))"""
