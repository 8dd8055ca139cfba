"""Whose turn it is, and which of their runs: the first half of the claim's statement.

There are two, because most installations have no quotas and should not pay for them. `plain` knows of none; it takes
nothing at all while there is a policy or a due run that uses a shared resource, and then `gated` is asked, which keeps
to caps and weights. Both end in `chosen`: the runs that may be taken, with the places they take.
"""

from __future__ import annotations

from runs import slots
from runs.slots import MOST_AT_ONCE
from runs.states import sources

# What stands in the index that the claim walks along.
_DUE = f"""r.state IN ({", ".join(f"'{s}'" for s in sources("claim"))}) AND NOT r.paused AND NOT r.deferred
            AND r.due_at <= now() AND r.isolated = %(isolated)s"""
ANY_PLAN = "r.plan_id IS NOT NULL"
"""Stands where a claim asks for the plans its worker has, and is replaced by that question (`runs.offers`)."""
# What else is asked of each run. Its deadline is looked at here, so that no run is started only to be stopped (C055).
_MAY_START = f"""(r.deadline_at IS NULL OR r.deadline_at > now()) AND {ANY_PLAN}
            AND NOT EXISTS (SELECT 1 FROM runs_pause_switch s WHERE s.scope = 'workflow' AND s.workflow = r.workflow
                            AND coalesce(s.tenant_id, r.tenant_id) = r.tenant_id)"""
_URGENT_FIRST = "r.priority DESC, r.due_at, r.id"
_NOT_ALL_PAUSED = "NOT EXISTS (SELECT 1 FROM runs_pause_switch s WHERE s.scope = 'all')"
_TAKER_MAY = f"""EXISTS (SELECT 1 FROM runs_worker w
        WHERE w.id = %(worker)s AND w.ended_at IS NULL AND NOT w.draining) AND {_NOT_ALL_PAUSED}"""
_NOT_PAUSED = """NOT EXISTS (
        SELECT 1 FROM runs_pause_switch s WHERE s.scope = 'tenant' AND s.tenant_id = n.tenant_id)"""
# The next tenant upwards; after the last one, the first again, and on up to the one that the round began after.
_AHEAD = "r.tenant_id > t.tenant_id AND (NOT t.again OR r.tenant_id <= %(after)s)"
_FROM_THE_FIRST = "r.tenant_id <= %(after)s"


# Tenants take turns: the next tenants that have something claimable, from the one after the last served on, and round
# again. Each is found by one descent of the index, however long the queue of another is. Those that are paused or at
# their cap are gone past and use up no turn, so that any number of them stops nobody (C085).
def _round(following: str, *, more: str = "", joins: str = "", is_open: str = _NOT_PAUSED) -> str:
    """The walk; `following` is a query of the next tenant, `more` and `joins` what else is known of each."""
    return f"""
    UNION ALL
    SELECT n.tenant_id, n.again, t.number + o.is_open::int, o.is_open{more}
    FROM turn t CROSS JOIN LATERAL (
        (SELECT f.tenant_id, t.again FROM ({following.format(only=_AHEAD)}) f)
        UNION ALL
        (SELECT f.tenant_id, true FROM ({following.format(only=_FROM_THE_FIRST)}) f WHERE NOT t.again)
        LIMIT 1
    ) n{joins} CROSS JOIN LATERAL (SELECT {is_open} AS is_open) o
    WHERE t.number < %(turns)s
)"""


_WITH_RESOURCE = f"EXISTS (SELECT 1 FROM runs_run r WHERE {_DUE} AND r.resource > '' LIMIT 1)"
ARE_GATES = f"(EXISTS (SELECT 1 FROM runs_quota_policy) OR {_WITH_RESOURCE})"
"""Whether the plain statement takes nothing for a reason that the gated one knows more about."""


def plain(only_if: str) -> str:
    """Turns and `chosen` where there are no quotas. `only_if` is a condition for taking anything at all."""
    following = f"""
            SELECT r.tenant_id FROM runs_run r WHERE {_DUE} AND {_MAY_START} AND r.resource = '' AND {{only}}
            ORDER BY r.tenant_id LIMIT 1"""
    # SKIP LOCKED: an idle transaction that holds one row delays that run, not the queue (C160).
    return f"""
turn AS (
    SELECT %(after)s::bigint AS tenant_id, false AS again, 0 AS number, false AS is_open
    WHERE {only_if} AND {_TAKER_MAY} AND NOT EXISTS (SELECT 1 FROM runs_quota_policy)
        AND NOT {_WITH_RESOURCE}
    {_round(following)},
chosen AS MATERIALIZED (SELECT * FROM (
    SELECT c.id, c.due_at, c.state_since, 1 AS weight, NULL::smallint AS slot, NULL::smallint AS resource_slot
    FROM turn t CROSS JOIN LATERAL (
        SELECT r.id, r.due_at, r.state_since FROM runs_run r
        WHERE {_DUE} AND {_MAY_START} AND r.resource = '' AND r.tenant_id = t.tenant_id
        ORDER BY {_URGENT_FIRST}
        LIMIT (SELECT ceil(%(limit)s::float8 / greatest(1, max(x.number)))::int FROM turn x)
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) c WHERE t.is_open
    LIMIT %(limit)s
) x LIMIT {MOST_AT_ONCE})"""


def gated(only_if: str, *, ending: str = "") -> str:
    """Turns and `chosen` with caps and weights.

    `ending` names the run that the same statement ends, if it does: its place is free.
    """
    return f"{_gated_turns(f'{only_if} AND {_TAKER_MAY}', ending)}, {_PICK}, {slots.give(ending)}"


def _gated_turns(only_if: str, ending: str) -> str:
    following = f"""
            SELECT x.tenant_id FROM open_lane l CROSS JOIN LATERAL (
                SELECT r.tenant_id FROM runs_run r
                WHERE {_DUE} AND {_MAY_START} AND r.resource = l.resource AND {{only}}
                ORDER BY r.tenant_id LIMIT 1) x
            ORDER BY x.tenant_id LIMIT 1"""
    known = ", coalesce(q.weight, 1), q.policy_id, q.room"
    is_open = f"coalesce(q.room, 1) > 0 AND {_NOT_PAUSED}"
    policy = f" LEFT JOIN LATERAL ({slots.room_of_tenant('n.tenant_id', ending)}) q ON true"
    # A lane holds the runs that use one resource; most use none. One whose cap is full is left out as a whole.
    return f"""
lane AS (
    SELECT (SELECT r.resource FROM runs_run r WHERE {_DUE} ORDER BY r.resource LIMIT 1) AS resource
    WHERE {only_if}
    UNION ALL
    SELECT (SELECT r.resource FROM runs_run r WHERE {_DUE} AND r.resource > l.resource ORDER BY r.resource LIMIT 1)
    FROM lane l WHERE l.resource IS NOT NULL
), open_lane AS MATERIALIZED (
    SELECT l.resource, q.policy_id, q.room
    FROM lane l LEFT JOIN LATERAL ({slots.room_of_resource("l.resource", ending)}) q ON true
    WHERE l.resource IS NOT NULL AND coalesce(q.room, 1) > 0
), turn AS (
    SELECT %(after)s::bigint AS tenant_id, false AS again, 0 AS number, false AS is_open, 0 AS weight,
        NULL::bigint AS policy_id, NULL::bigint AS room
    WHERE EXISTS (SELECT 1 FROM open_lane)
    {_round(following, more=known, joins=policy, is_open=is_open)}"""


# Of several lanes a tenant is served from the one with its most urgent run.
_PICK = f"""
pick AS MATERIALIZED (
    SELECT row_number() OVER () AS n, x.* FROM (
        SELECT c.id, c.due_at, c.state_since, t.tenant_id, t.weight, t.policy_id, t.room, b.resource,
            b.policy_id AS lane_policy_id, b.room AS lane_room
        FROM turn t CROSS JOIN LATERAL (
            (SELECT l.* FROM open_lane l WHERE (SELECT count(*) FROM open_lane) = 1)
            UNION ALL
            (SELECT l.* FROM open_lane l CROSS JOIN LATERAL (
                SELECT r.priority, r.due_at, r.id FROM runs_run r
                WHERE {_DUE} AND {_MAY_START} AND r.resource = l.resource AND r.tenant_id = t.tenant_id
                ORDER BY {_URGENT_FIRST} LIMIT 1
            ) r WHERE (SELECT count(*) FROM open_lane) > 1 ORDER BY {_URGENT_FIRST} LIMIT 1)
        ) b CROSS JOIN LATERAL (
            SELECT r.id, r.due_at, r.state_since FROM runs_run r
            WHERE {_DUE} AND {_MAY_START} AND r.resource = b.resource AND r.tenant_id = t.tenant_id
            ORDER BY {_URGENT_FIRST}
            LIMIT (SELECT least(t.room, b.room,
                ceil(%(limit)s::float8 * t.weight / greatest(1, sum(x.weight)))::bigint) FROM turn x WHERE x.is_open)
            FOR NO KEY UPDATE OF r SKIP LOCKED
        ) c WHERE t.is_open
        LIMIT %(limit)s
    ) x LIMIT {MOST_AT_ONCE}
)"""


# What could be taken now, up to so many; nothing is locked.
CLAIMABLE = f"""
WITH RECURSIVE {_gated_turns(_NOT_ALL_PAUSED, "")}
SELECT coalesce(sum(least(t.room, (SELECT count(*) FROM (
    SELECT 1 FROM open_lane l CROSS JOIN LATERAL (
        SELECT 1 FROM runs_run r
        WHERE {_DUE} AND {_MAY_START} AND r.resource = l.resource AND r.tenant_id = t.tenant_id
        LIMIT least(l.room, %(turns)s)) x
    LIMIT %(turns)s) y))), 0)::int
FROM turn t WHERE t.is_open"""
