"""Places under a cap, given out by the claim: parts of its statement, used nowhere else.

A cap of *n* is *n* rows of `runs_slot`. A claim takes a run of a capped tenant (or one that uses a capped resource)
only together with a row whose number no running run has. Two claims that want one row meet at it: the second skips it
while it is locked, and afterwards finds that `taken` is not what it saw. So none waits and none is too many. That a
number is given twice, a unique index on the run forbids.

When a cap was lowered below what runs, or set while runs had no place yet, more run than there are places. Of the free
rows then only as many as the cap has room are given, always the lowest. So two claims that know nothing of each other
leave the same rows alone, and what runs only sinks until it fits.
"""

from __future__ import annotations

MOST_AT_ONCE = 100
"""Runs in one claim. A number in the statement, so that it is planned for few rows: parameters say nothing."""
SPARE = 64
"""So many free rows beyond those that are wanted are looked at: others may have the first ones locked."""


def room_of_tenant(tenant: str, ending: str) -> str:
    """A query of the tenant's policy: its id, weight, and room; NULL is no cap."""
    return f"""
        SELECT p.id AS policy_id, p.weight, CASE WHEN p.running_cap IS NOT NULL THEN p.running_cap - (
            SELECT count(*) FROM runs_run h
            WHERE h.tenant_id = {tenant} AND h.state = 'running'{_but(ending)}) END AS room
        FROM runs_quota_policy p WHERE p.tenant_id = {tenant}"""


def room_of_resource(resource: str, ending: str) -> str:
    """A query of the resource's policy: its id and room; no row where there is none."""
    return f"""
        SELECT p.id AS policy_id, CASE WHEN p.running_cap IS NOT NULL THEN p.running_cap - (
            SELECT count(*) FROM runs_run h
            WHERE h.resource = {resource} AND h.resource <> '' AND h.state = 'running'{_but(ending)}) END AS room
        FROM runs_quota_policy p WHERE p.tenant_id IS NULL AND p.resource = {resource}"""


def _free(owner: str, *, policy: str, room: str, has: str, ending: str) -> str:
    """The lowest free rows of a cap, locked, as many as are wanted."""
    return f"""
        SELECT s.id, s.number FROM runs_slot s JOIN (SELECT * FROM (
            SELECT f.id, f.taken FROM runs_slot f
            WHERE f.policy_id = {owner}.{policy}
              AND NOT EXISTS (SELECT 1 FROM runs_run h WHERE {has}{_but(ending)})
            ORDER BY f.number LIMIT least({owner}.{room}, {owner}.wanted + {SPARE})
        ) f LIMIT {MOST_AT_ONCE + SPARE}) o ON o.id = s.id AND o.taken = s.taken
        ORDER BY s.number LIMIT {owner}.wanted FOR UPDATE OF s SKIP LOCKED"""


def give(ending: str) -> str:
    """The claim's named queries that give places to what it picked. `chosen` is what it may take."""
    tenants = _free(
        "k", policy="policy_id", room="room", has="h.tenant_id = k.tenant_id AND h.slot = f.number", ending=ending
    )
    lanes = _free(
        "k", policy="lane_policy_id", room="lane_room", ending=ending,
        has="h.resource = k.resource AND h.resource_slot = f.number",
    )  # fmt: skip
    return f"""
tenant_slot AS MATERIALIZED (
    SELECT k.tenant_id, s.id, s.number, row_number() OVER (PARTITION BY k.tenant_id ORDER BY s.number) AS n
    FROM (SELECT tenant_id, policy_id, room, count(*) AS wanted FROM pick WHERE room IS NOT NULL GROUP BY 1, 2, 3) k
    CROSS JOIN LATERAL ({tenants}) s
), resource_slot AS MATERIALIZED (
    SELECT k.resource, s.id, s.number, row_number() OVER (PARTITION BY k.resource ORDER BY s.number) AS n
    FROM (SELECT resource, lane_policy_id, lane_room, count(*) AS wanted
          FROM pick WHERE lane_room IS NOT NULL GROUP BY 1, 2, 3) k
    CROSS JOIN LATERAL ({lanes}) s
), chosen AS MATERIALIZED (
    SELECT k.id, k.weight, k.due_at, k.state_since, t.number AS slot, t.id AS slot_id, l.number AS resource_slot,
        l.id AS resource_slot_id
    FROM (SELECT p.*, row_number() OVER (PARTITION BY p.tenant_id ORDER BY p.n) AS of_tenant,
              row_number() OVER (PARTITION BY p.resource ORDER BY p.n) AS of_lane FROM pick p) k
    LEFT JOIN tenant_slot t ON t.tenant_id = k.tenant_id AND t.n = k.of_tenant
    LEFT JOIN resource_slot l ON l.resource = k.resource AND l.n = k.of_lane
    WHERE (k.room IS NULL OR t.id IS NOT NULL) AND (k.lane_room IS NULL OR l.id IS NOT NULL)
), taken AS (
    UPDATE runs_slot s SET taken = s.taken + 1 FROM (
        SELECT slot_id AS id FROM chosen WHERE slot_id IS NOT NULL
        UNION ALL SELECT resource_slot_id FROM chosen WHERE resource_slot_id IS NOT NULL
    ) c WHERE s.id = c.id
)"""


def _but(ending: str) -> str:
    """The run that the same statement ends has no place any more; the statement's snapshot still shows it."""
    return f" AND h.id <> {ending}" if ending else ""
