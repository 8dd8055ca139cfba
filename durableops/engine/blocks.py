"""Budgets of tenants for a day or a month. Each worker has a block of each, and its runs spend from that.

So the row of the tenant is locked once for each block. A block that is too small grows by what is free, then by what
other workers have and do not use; so a budget is spent only when nothing of it is left anywhere. Locks are taken in one
order: the run, its own budgets, the tenant's periods, blocks; each by id. What a worker has returns with its lease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any
from uuid import UUID

from durableops.conf import get_conf
from durableops.engine.spent import Row
from runs.transitions import Cursor

SHARES = 50
"""A block is this part of the limit, or what is wanted if that is more."""
KEPT_DAYS = 400
WHOLE = frozenset({"tokens", "calls", "steps"})
BATCH = 200
NOTHING = Decimal(0)

type Amounts = dict[str, Decimal]

_LIMIT = "(p.budgets -> {s}.period ->> {s}.unit)::numeric"
# Midnights are those of the tenant's zone. A period begins where the last one ended, also when the zone was changed,
# and never later than now: a midnight that a change of the clocks brings twice is its first.
_OPEN = """
INSERT INTO runs_tenant_spending (tenant_id, period, unit, currency, starts_at, ends_at, most)
SELECT x.tenant_id, x.period, x.unit, CASE WHEN x.unit = 'money' THEN %(currency)s ELSE '' END,
    least(now(), greatest(x.midnight AT TIME ZONE x.time_zone, x.former)),
    (x.midnight + x.length) AT TIME ZONE x.time_zone, x.most
FROM (
    SELECT p.tenant_id, p.time_zone, d.key AS period, u.key AS unit, u.value::numeric AS most,
        date_trunc(d.key, now() AT TIME ZONE p.time_zone) AS midnight, ('1 ' || d.key)::interval AS length,
        (SELECT max(o.ends_at) FROM runs_tenant_spending o
         WHERE o.tenant_id = p.tenant_id AND o.period = d.key AND o.unit = u.key AND o.ends_at <= now()) AS former
    FROM runs_quota_policy p, jsonb_each(p.budgets) d, jsonb_each_text(d.value) u
    WHERE p.tenant_id = %(tenant)s AND u.key = ANY(%(units)s)
) x WHERE NOT EXISTS (
    SELECT 1 FROM runs_tenant_spending o WHERE o.tenant_id = x.tenant_id AND o.period = x.period AND o.unit = x.unit
        AND o.starts_at <= now() AND o.ends_at > now())
ON CONFLICT DO NOTHING RETURNING id"""
_FORGET = f"""
DELETE FROM runs_tenant_spending s WHERE s.tenant_id = %s AND s.ends_at < now() - interval '{KEPT_DAYS} days'
AND NOT EXISTS (SELECT 1 FROM runs_budget_block k WHERE k.spending_id = s.id)"""
_NOW = "s.starts_at <= now() AND s.ends_at > now()"
_SPENDINGS = f"""
SELECT s.id, s.period, s.unit, s.ends_at, s.spent, s.over, s.more, s.is_extended, p.budget_policy,
    {_LIMIT.format(s="s")}, {_NOW}
FROM runs_tenant_spending s LEFT JOIN runs_quota_policy p ON p.tenant_id = s.tenant_id
WHERE {{only}} ORDER BY s.id FOR NO KEY UPDATE OF s"""
_OF_TENANT = f"""s.tenant_id = %(tenant)s AND s.unit = ANY(%(units)s)
    AND ({_NOW} OR s.id IN (SELECT k.spending_id FROM runs_budget_block k WHERE k.worker_id = %(worker)s))"""
_BLOCKS = """
SELECT k.id, k.spending_id, k.worker_id, k.amount, k.spent, w.ended_at IS NOT NULL
FROM runs_budget_block k JOIN runs_worker w ON w.id = k.worker_id
WHERE k.spending_id = ANY(%s) ORDER BY k.id FOR NO KEY UPDATE OF k"""
# Whoever lost its run, or ended, can settle nothing any more. What it was about to spend counts as spent (C070).
_BOOK_LOST = """
WITH lost AS (
    DELETE FROM runs_reservation v USING runs_run r, runs_budget_block o, runs_tenant_spending s
    WHERE v.block_id = ANY(%s) AND r.id = v.run_id AND (r.fence <> v.fence OR r.state <> 'running')
      AND o.id = v.block_id AND s.id = o.spending_id
    RETURNING v.block_id, CASE WHEN s.unit = 'compute_seconds'
        THEN least(v.amount, greatest(0, extract(epoch FROM now() - v.opened_at)::numeric)) ELSE v.amount END AS amount
), sums AS (SELECT block_id, sum(amount) AS amount FROM lost GROUP BY 1)
UPDATE runs_budget_block k SET spent = k.spent + s.amount FROM sums s WHERE k.id = s.block_id
RETURNING k.id, k.spent"""
_RESERVED = "SELECT block_id, sum(amount) FROM runs_reservation WHERE block_id = ANY(%s) GROUP BY 1"
_OWN = f"""
SELECT k.id, s.id, s.period, s.unit, s.ends_at, k.amount, k.spent
FROM runs_budget_block k JOIN runs_tenant_spending s ON s.id = k.spending_id
WHERE k.worker_id = %(worker)s AND s.tenant_id = %(tenant)s AND s.unit = ANY(%(units)s) AND {_NOW}
ORDER BY k.id FOR NO KEY UPDATE OF k"""
_GROW = """
INSERT INTO runs_budget_block (spending_id, worker_id, amount) VALUES (%s, %s, %s)
ON CONFLICT ON CONSTRAINT block_once_per_worker DO UPDATE SET amount = runs_budget_block.amount + excluded.amount
RETURNING id"""
_SHRINK = "UPDATE runs_budget_block SET amount = %s WHERE id = %s"
_END = "DELETE FROM runs_budget_block WHERE id = %s"
_KEEP_SPENT = "UPDATE runs_tenant_spending SET spent = spent + %s WHERE id = %s"
_SET_MOST = "UPDATE runs_tenant_spending SET most = greatest(%s, spent + blocked) WHERE id = %s"
_RESERVE = """
INSERT INTO runs_reservation (block_id, run_id, fence, token, amount, opened_at) VALUES (%s, %s, %s, %s, %s, now())"""
_SPEND = "UPDATE runs_budget_block SET spent = spent + %s WHERE id = %s"
_BLOCKS_RESERVED = "SELECT v.block_id FROM runs_reservation v WHERE v.token = %s AND v.block_id IS NOT NULL"
_SPENDINGS_RESERVED = f"s.id IN (SELECT k.spending_id FROM runs_budget_block k WHERE k.id IN ({_BLOCKS_RESERVED}))"
_LOCK_RESERVED = f"""
SELECT k.id, k.spending_id, s.unit FROM runs_budget_block k JOIN runs_tenant_spending s ON s.id = k.spending_id
WHERE k.id IN ({_BLOCKS_RESERVED}) ORDER BY k.id FOR NO KEY UPDATE OF k"""
_DROP = "DELETE FROM runs_reservation WHERE token = %s AND block_id IS NOT NULL RETURNING block_id"
_COST_MORE = "UPDATE runs_tenant_spending SET over = over + %s WHERE id = %s"
_ADD = "UPDATE runs_tenant_spending SET more = more + %s, most = most + %s WHERE id = %s"
_EXTEND = f"""
UPDATE runs_tenant_spending s SET more = s.more + {_LIMIT.format(s="s")}, most = s.most + {_LIMIT.format(s="s")},
    is_extended = true
FROM runs_quota_policy p WHERE s.id = %s AND NOT s.is_extended AND p.tenant_id = s.tenant_id
    AND {_LIMIT.format(s="s")} IS NOT NULL"""
# However many are asked about one spent budget, the first yes gives it as much again.
_GIVE = f"""
UPDATE runs_tenant_spending s SET more = s.more + {_LIMIT.format(s="s")}, most = s.most + {_LIMIT.format(s="s")}
FROM runs_quota_policy p WHERE s.id = %s AND p.tenant_id = s.tenant_id AND {_LIMIT.format(s="s")} + s.more = %s"""
_LEFT_BY_ENDED = """
SELECT DISTINCT k.spending_id FROM runs_budget_block k JOIN runs_worker w ON w.id = k.worker_id
WHERE w.ended_at IS NOT NULL LIMIT %s"""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who spends: a worker, for a tenant that has budgets."""

    tenant_id: int
    worker_id: UUID
    limited: frozenset[tuple[str, str]]
    """Period and unit of each budget the tenant has, as this process read them within the last second."""

    def units_of(self, amounts: Collection[str]) -> list[str]:
        """Those of the units that are limited."""
        return sorted({unit for _, unit in self.limited} & set(amounts))

    def params(self, units: Collection[str]) -> dict[str, Any]:
        found = {"tenant": self.tenant_id, "worker": self.worker_id, "units": list(units)}
        return found | {"currency": get_conf().currency}


@dataclass(kw_only=True)
class _Block:
    id: int
    worker_id: UUID
    amount: Decimal
    spent: Decimal
    has_ended: bool
    reserved: Decimal = NOTHING

    @property
    def unused(self) -> Decimal:
        return self.amount - self.spent - self.reserved


@dataclass(kw_only=True)
class _Spending:
    id: int
    period: str
    unit: str
    ends_at: datetime
    spent: Decimal
    over: Decimal
    more: Decimal
    is_extended: bool
    policy: str
    limit: Decimal | None
    """None where there is none any more."""
    is_current: bool
    blocks: dict[int, _Block] = field(default_factory=dict)

    @property
    def target(self) -> Decimal:
        return (self.limit or NOTHING) + self.more

    @property
    def free(self) -> Decimal:
        """What is in no block; below 0 while a lowered limit is not reached."""
        return self.target - self.spent - self.over - sum((one.amount for one in self.blocks.values()), NOTHING)

    def block_of(self, worker_id: UUID) -> _Block | None:
        return next((one for one in self.blocks.values() if one.worker_id == worker_id), None)

    def row(self, worker_id: UUID) -> Row:
        """All of it, with the block of this worker."""
        own = self.block_of(worker_id)
        return Row(
            id=0, unit=self.unit, run_id=None, most=self.target, block_id=own.id if own else None, spending_id=self.id,
            spent=self.spent + self.over + sum((one.spent for one in self.blocks.values()), NOTHING),
            reserved=sum((one.reserved for one in self.blocks.values()), NOTHING), period=self.period,
            policy="exhaust" if self.policy == "extend" and self.is_extended else self.policy,
        )  # fmt: skip


def held(cursor: Cursor, holder: Holder, wanted: Amounts) -> list[Row] | None:
    """The worker's blocks, locked, if they cover what is wanted; None if they have to be `filled` first."""
    units = holder.units_of(wanted)
    if not units:
        return []
    cursor.execute(_OWN, holder.params(units))
    found = cursor.fetchall()
    if {(row[2], row[3]) for row in found} != {one for one in holder.limited if one[1] in units}:
        return None
    cursor.execute(_RESERVED, [[row[0] for row in found]])
    reserved = dict(cursor.fetchall())
    rows = [
        Row(id=0, block_id=row[0], spending_id=row[1], period=row[2], unit=row[3], run_id=None, most=row[5],
            spent=row[6], reserved=reserved.get(row[0], NOTHING), policy="")
        for row in found
    ]  # fmt: skip
    return rows if all(row.left >= wanted[row.unit] for row in rows) else None


def filled(cursor: Cursor, holder: Holder, wanted: Amounts) -> list[Row]:
    """The tenant's budgets of these units, locked, the worker's blocks grown to what is wanted, or to what there is."""
    units = holder.units_of(wanted)
    cursor.execute(_OPEN, holder.params(units))
    if cursor.fetchall():
        cursor.execute(_FORGET, [holder.tenant_id])
    spendings = _locked(cursor, _OF_TENANT, holder.params(units))
    for spending in spendings:
        for block in list(spending.blocks.values()):
            is_old = not spending.is_current and block.worker_id == holder.worker_id
            if (block.has_ended or is_old) and not block.reserved:
                _fold(cursor, spending, block)
    limited = [one for one in spendings if one.is_current and one.limit is not None]
    for spending in limited:
        cursor.execute(_SET_MOST, [spending.target, spending.id])
        _fill(cursor, spending, holder.worker_id, wanted[spending.unit])
    return [spending.row(holder.worker_id) for spending in limited]


def _locked(cursor: Cursor, only: str, params: Any) -> list[_Spending]:
    """Periods and all their blocks, locked; what nobody settles any more is booked."""
    cursor.execute(_SPENDINGS.format(only=only), params)
    names = (
        "id", "period", "unit", "ends_at", "spent", "over", "more", "is_extended", "policy", "limit", "is_current",
    )  # fmt: skip
    found = {row[0]: _Spending(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()}
    cursor.execute(_BLOCKS, [list(found)])
    by_id = {}
    for block_id, spending_id, worker_id, amount, spent, has_ended in cursor.fetchall():
        by_id[block_id] = found[spending_id].blocks[block_id] = _Block(
            id=block_id, worker_id=worker_id, amount=amount, spent=spent, has_ended=has_ended
        )
    if by_id:
        cursor.execute(_BOOK_LOST, [list(by_id)])
        for block_id, spent in cursor.fetchall():
            by_id[block_id].spent = spent
        cursor.execute(_RESERVED, [list(by_id)])
        for block_id, reserved in cursor.fetchall():
            by_id[block_id].reserved = reserved
    return list(found.values())


def _fold(cursor: Cursor, spending: _Spending, block: _Block) -> None:
    """Take a block back: what was spent of it stays spent, the rest is free."""
    cursor.execute(_END, [block.id])
    cursor.execute(_KEEP_SPENT, [block.spent, spending.id])
    spending.spent += block.spent
    del spending.blocks[block.id]


def _fill(cursor: Cursor, spending: _Spending, worker_id: UUID, wanted: Decimal) -> None:
    own = spending.block_of(worker_id)
    missing = wanted - (own.unused if own else NOTHING)
    if missing <= 0:
        return
    others = [one for one in spending.blocks.values() if one is not own]
    there_is = max(NOTHING, spending.free + sum((one.unused for one in others), NOTHING))
    grown = min(max(NOTHING, spending.free), max(missing, _share(spending)))
    for other in others:
        # Only what is wanted, so that it does not go back and forth.
        taken = min(other.unused, min(missing, there_is) - grown)
        if taken > 0:
            other.amount -= taken
            cursor.execute(_SHRINK, [other.amount, other.id])
            grown += taken
    if grown <= 0:
        return
    cursor.execute(_GROW, [spending.id, worker_id, grown])
    if own is None:
        own = _Block(id=cursor.fetchone()[0], worker_id=worker_id, amount=NOTHING, spent=NOTHING, has_ended=False)
        spending.blocks[own.id] = own
    own.amount += grown


def _share(spending: _Spending) -> Decimal:
    share = spending.target / SHARES
    return share.to_integral_value(ROUND_UP) if spending.unit in WHOLE else round(share, 6)


def reserve(
    cursor: Cursor, rows: Sequence[Row], *, run_id: UUID, fence: int, token: UUID, amounts: Mapping[str, Decimal]
) -> None:
    """Reserve of blocks that cover it."""
    for row in rows:
        cursor.execute(_RESERVE, [row.block_id, run_id, fence, token, amounts[row.unit]])


def spend(cursor: Cursor, rows: Sequence[Row], amount: Decimal) -> None:
    """Spend of blocks that cover it, without a reservation."""
    for row in rows:
        cursor.execute(_SPEND, [amount, row.block_id])


def settle(cursor: Cursor, token: UUID, cost: Mapping[str, Decimal], *, exceeds: bool) -> None:
    """Replace what was reserved of blocks by what it cost. `exceeds` says that some of it cost more than reserved.

    What costs more than is free anywhere is noted as over the limit: it was done.
    """
    if not exceeds:
        cursor.execute(_LOCK_RESERVED, [token])
        found = cursor.fetchall()
        for block_id, _, unit in _still_reserved(cursor, token, found):
            cursor.execute(_SPEND, [cost[unit], block_id])
        return
    spendings = {one.id: one for one in _locked(cursor, _SPENDINGS_RESERVED, [token])}
    cursor.execute(_LOCK_RESERVED, [token])
    for block_id, spending_id, unit in _still_reserved(cursor, token, cursor.fetchall()):
        _settle_more(cursor, spendings[spending_id], block_id, cost[unit])


def _still_reserved(cursor: Cursor, token: UUID, blocks: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What somebody else has booked meanwhile, because the run was lost to us, stays booked."""
    cursor.execute(_DROP, [token])
    dropped = {row[0] for row in cursor.fetchall()}
    return [row for row in blocks if row[0] in dropped]


def _settle_more(cursor: Cursor, spending: _Spending, block_id: int, cost: Decimal) -> None:
    block = spending.blocks[block_id]
    cursor.execute(_RESERVED, [[block_id]])
    block.reserved = dict(cursor.fetchall()).get(block_id, NOTHING)
    grown = min(max(NOTHING, cost - block.unused), max(NOTHING, spending.free))
    if grown > 0:
        cursor.execute(_GROW, [spending.id, block.worker_id, grown])
        block.amount += grown
    covered = min(cost, block.unused)
    cursor.execute(_SPEND, [covered, block_id])
    if cost > covered:
        cursor.execute(_COST_MORE, [cost - covered, spending.id])


def extend(cursor: Cursor, spending_id: int) -> None:
    """Give a period as much again, once, by its policy."""
    cursor.execute(_EXTEND, [spending_id])


def give(cursor: Cursor, spending_id: int, *, asked_at: Decimal) -> None:
    """Give a period as much again because a person said so. `asked_at` is the limit they were asked about."""
    cursor.execute(_GIVE, [spending_id, asked_at])


def relimit(cursor: Cursor, tenant_id: int) -> None:
    """Bring present periods to changed limits: take back what workers do not use, so that a lower one holds at once."""
    for spending in _locked(cursor, f"s.tenant_id = %s AND {_NOW}", [tenant_id]):
        for block in spending.blocks.values():
            if block.unused > 0:
                cursor.execute(_SHRINK, [block.amount - block.unused, block.id])
        if spending.limit is not None:
            cursor.execute(_SET_MOST, [spending.target, spending.id])


def add(cursor: Cursor, tenant_id: int, period: str, unit: str, amount: Decimal) -> tuple[int, Decimal] | None:
    """Raise the limit of the present period alone. Returns its id and limit before; None where there is no limit."""
    cursor.execute(_OPEN, {"tenant": tenant_id, "units": [unit], "currency": get_conf().currency})
    found = _locked(cursor, f"s.tenant_id = %s AND s.period = %s AND s.unit = %s AND {_NOW}", [tenant_id, period, unit])
    limited = next((one for one in found if one.limit is not None), None)
    if limited is None:
        return None
    cursor.execute(_ADD, [amount, amount, limited.id])
    return limited.id, limited.target


def return_ended(cursor: Cursor) -> int:
    """Take back what workers had that have ended. Needs a transaction; the last thing in it. Returns how many blocks.

    A block from which a run still spends waits until that run has left its worker.
    """
    cursor.execute(_LEFT_BY_ENDED, [BATCH])
    ids = [row[0] for row in cursor.fetchall()]
    returned = 0
    for spending in _locked(cursor, "s.id = ANY(%s)", [ids]) if ids else ():
        for block in [one for one in spending.blocks.values() if one.has_ended]:
            if not block.reserved:
                _fold(cursor, spending, block)
                returned += 1
            elif block.unused > 0:
                cursor.execute(_SHRINK, [block.amount - block.unused, block.id])
        if spending.limit is not None and spending.is_current:
            cursor.execute(_SET_MOST, [spending.target, spending.id])
    return returned
