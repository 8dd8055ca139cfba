"""Quotas: caps have their places, no more run than there are, and whoever waits is brought in. Promise 11."""

from __future__ import annotations

from durableops.upkeep.invariants.check import OPEN_RUNS, SETTLED, Check

_RUNNING = """(SELECT count(*) FROM runs_run r WHERE r.state = 'running' AND CASE WHEN p.tenant_id IS NULL
    THEN r.resource = p.resource ELSE r.tenant_id = p.tenant_id END)"""
_NAME = "coalesce((SELECT 'tenant ' || t.slug FROM runs_tenant t WHERE t.id = p.tenant_id), 'resource ' || p.resource)"

CHECKS = (
    Check(
        name="cap_has_as_many_slots_as_it_says",
        promise=11,
        looks_at="every quota",
        broken=f"""
            SELECT {_NAME}, format('its cap is %%s and it has %%s slots', p.running_cap, count(s.id))
            FROM runs_quota_policy p LEFT JOIN runs_slot s ON s.policy_id = p.id
            GROUP BY p.id HAVING count(s.id) <> coalesce(p.running_cap, 0)
                OR coalesce(max(s.number), 0) <> coalesce(p.running_cap, 0)""",
    ),
    Check(
        name="no_more_run_than_the_cap_allows",
        promise=11,
        looks_at="every quota with a cap",
        broken=f"""
            SELECT {_NAME}, format('%%s run, its cap is %%s, and one of them started after it was set',
                {_RUNNING}, p.running_cap)
            FROM runs_quota_policy p WHERE {_RUNNING} > p.running_cap AND EXISTS (
                SELECT 1 FROM runs_run r WHERE r.state = 'running' AND r.state_since > p.updated_at + interval '1 s'
                AND CASE WHEN p.tenant_id IS NULL THEN r.resource = p.resource ELSE r.tenant_id = p.tenant_id END)""",
        explained=f"""
            SELECT {_NAME}, format('%%s run from before its cap of %%s; nothing starts until it fits',
                {_RUNNING}, p.running_cap)
            FROM runs_quota_policy p WHERE {_RUNNING} > p.running_cap""",
    ),
    Check(
        name="blocks_are_what_a_tenants_budget_says_they_are",
        promise=11,
        looks_at="every day and month of a tenant's budgets",
        broken="""
            SELECT s.id, format('%%s are in blocks and it says %%s; spent and blocks may be %%s',
                coalesce(sum(k.amount), 0), s.blocked, s.most)
            FROM runs_tenant_spending s LEFT JOIN runs_budget_block k ON k.spending_id = s.id
            GROUP BY s.id HAVING coalesce(sum(k.amount), 0) <> s.blocked OR s.spent + s.blocked > s.most""",
    ),
    Check(
        name="no_more_is_reserved_of_a_block_than_it_has",
        promise=11,
        looks_at="every block of a tenant's budget",
        broken="""
            SELECT k.id, format('%%s are spent of its %%s and %%s reserved', k.spent, k.amount, sum(v.amount))
            FROM runs_budget_block k JOIN runs_reservation v ON v.block_id = k.id
            GROUP BY k.id HAVING k.spent + sum(v.amount) > k.amount""",
    ),
    Check(
        name="queued_run_is_let_in_when_its_time_has_come",
        promise=11,
        looks_at=f"{OPEN_RUNS} that is queued",
        broken=f"""
            SELECT r.id, format('it is due since %%s and was not brought in', r.due_at) FROM runs_run r
            WHERE r.state = 'queued' AND r.deferred AND r.due_at < {SETTLED}""",
        explained="""
            SELECT r.id, format('the cap of %%s is 0',
                CASE WHEN p.tenant_id IS NULL THEN p.resource ELSE 'its tenant' END)
            FROM runs_quota_policy p JOIN runs_run r ON CASE WHEN p.tenant_id IS NULL
                THEN r.resource = p.resource ELSE r.tenant_id = p.tenant_id END
            WHERE p.running_cap = 0 AND r.state = 'queued'""",
    ),
)
