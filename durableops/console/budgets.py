"""The budgets that the page of a run shows: its own, and its tenant's while it may spend from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Budget:
    """One unit of what the run may spend, or its tenant in the present period."""

    unit: str
    currency: str
    period: str
    """`day` or `month` of the tenant; "" for the run's own."""
    most: str
    spent: str
    reserved: str

    @property
    def is_reserved(self) -> bool:
        return Decimal(self.reserved) > 0

    @property
    def share(self) -> int:
        """Percent of it that are spent."""
        most = Decimal(self.most)
        return 100 if most <= 0 else min(100, round(100 * Decimal(self.spent) / most))


OF_RUN = """(SELECT jsonb_agg(x ORDER BY x.period, x.unit) FROM (
    SELECT b.unit, b.currency, '' AS period, b.most::text, b.spent::text,
        coalesce((SELECT sum(v.amount) FROM runs_reservation v WHERE v.budget_id = b.id), 0)::text AS reserved
    FROM runs_budget b WHERE b.run_id = %(run)s
    UNION ALL
    SELECT s.unit, s.currency, s.period, ((p.budgets -> s.period ->> s.unit)::numeric + s.more)::text,
        (s.spent + s.over + coalesce(sum(k.spent), 0))::text,
        coalesce(sum((SELECT sum(v.amount) FROM runs_reservation v WHERE v.block_id = k.id)), 0)::text
    FROM runs_quota_policy p JOIN runs_tenant_spending s ON s.tenant_id = p.tenant_id
    LEFT JOIN runs_budget_block k ON k.spending_id = s.id
    WHERE %(spends)s AND p.tenant_id = %(tenant)s AND p.budgets -> s.period ? s.unit
        AND s.starts_at <= now() AND s.ends_at > now()
    GROUP BY s.id, p.id) x)"""
"""A column of JSON; it asks for `run`, `tenant` and whether the run `spends`."""


def read(column: Any) -> list[Budget]:
    """What `OF_RUN` answered."""
    found = json.loads(column) if isinstance(column, str) else column
    return [Budget(**one) for one in found or ()]
