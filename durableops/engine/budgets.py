"""Budgets: reserved before anything is spent, settled by what it cost.

A run spends from its own budget, from those of the runs above it, and from its worker's blocks of its tenant's
(`blocks`). A reservation that does not fit waits as long as others may still give something back, without holding
anything; where nothing can come back, the budget is spent.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from durableops.authoring.policies import Budget
from durableops.clock import monotonic
from durableops.engine import blocks, rates
from durableops.engine.blocks import Holder
from durableops.engine.checks import HandBack, check_may_go_on
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Logic, Pause
from durableops.engine.spent import BudgetSpent, Row, shown
from durableops.errors import FenceLost
from durableops.limits.clocks import Clock, Firing, Phase
from runs.transitions import Cursor, record_event

LOOK_SECONDS = 0.1
"""How soon a reservation that waits for others to settle looks again; then in pauses twice as long, up to the next."""
LONGEST_LOOK_SECONDS = 1.0
PORTION_SECONDS = Decimal(60)
"""An entry reserves as much computing of its tenant's: with a timeout of an hour each, few could run at once."""
IN_HAND_SECONDS = 2.0
"""A run that waits longer for computing that others have reserved gives back its worker meanwhile."""
COME_BACK_SECONDS = 5.0
SPREAD = 0.5
type Amounts = dict[str, Decimal]

_LINE = """
WITH RECURSIVE line(id, parent_id) AS (
    SELECT id, parent_id FROM runs_run WHERE id = %(run)s
    UNION ALL SELECT r.id, r.parent_id FROM runs_run r JOIN line l ON r.id = l.parent_id
) SELECT b.id, b.unit, b.run_id, b.most, b.spent, b.policy FROM runs_budget b JOIN line l ON l.id = b.run_id"""
_LOCKED = f"{_LINE} WHERE b.unit = ANY(%(units)s) ORDER BY b.id FOR NO KEY UPDATE OF b"
_HELD = "SELECT 1 FROM runs_run WHERE id = %s AND fence = %s AND state = 'running' FOR NO KEY UPDATE"
# Whoever lost its run, or ended, can settle nothing any more. What it was about to spend counts as spent (C070).
_BOOK_LOST = """
WITH lost AS (
    DELETE FROM runs_reservation v USING runs_run r, runs_budget o
    WHERE v.budget_id = ANY(%(budgets)s) AND r.id = v.run_id AND (r.fence <> v.fence OR r.state <> 'running')
      AND o.id = v.budget_id
    RETURNING v.budget_id, CASE WHEN o.unit = 'compute_seconds'
        THEN least(v.amount, extract(epoch FROM now() - v.opened_at)::numeric) ELSE v.amount END AS amount
), sums AS (SELECT budget_id, sum(amount) AS amount FROM lost GROUP BY 1)
UPDATE runs_budget b SET spent = b.spent + s.amount FROM sums s WHERE b.id = s.budget_id
RETURNING b.id, b.spent"""
_RESERVED = """
SELECT budget_id, sum(amount) FROM runs_reservation WHERE budget_id = ANY(%(budgets)s) GROUP BY 1"""
_RESERVE = """
INSERT INTO runs_reservation (budget_id, run_id, fence, token, amount, opened_at)
SELECT x.id, %(run)s, %(fence)s, %(token)s, x.amount, now()
FROM unnest(%(budgets)s::bigint[], %(amounts)s::numeric[]) x(id, amount)"""
_SPEND = """
UPDATE runs_budget b SET spent = b.spent + x.amount
FROM unnest(%(budgets)s::bigint[], %(amounts)s::numeric[]) x(id, amount) WHERE b.id = x.id"""
_OF_RESERVATION = """
SELECT b.id, b.unit FROM runs_budget b WHERE b.id IN (SELECT budget_id FROM runs_reservation WHERE token = %s)
ORDER BY b.id FOR NO KEY UPDATE"""
_DROP = "DELETE FROM runs_reservation WHERE token = %s AND budget_id IS NOT NULL RETURNING budget_id"
_EXTEND = """
UPDATE runs_budget SET most = most + granted, policy = CASE WHEN policy = 'extend' THEN 'exhaust' ELSE policy END
WHERE id = ANY(%s)"""


logger = logging.getLogger("durableops.budgets")


@dataclass(kw_only=True)
class Reserved:
    """A reservation in hand. Amounts that are not settled count as they were reserved."""

    token: UUID
    amounts: Amounts
    of_tenant: bool = False
    """Whether some of it is reserved of the tenant's budgets."""
    actual: Amounts = field(default_factory=dict)

    def settle(self, **actual: Any) -> None:
        """Say what it really cost; a unit that is not named cost nothing unless it was reserved."""
        self.actual |= Budget.amounts(actual)

    @property
    def cost(self) -> Amounts:
        return self.amounts | self.actual


@dataclass(frozen=True, kw_only=True)
class Computing:
    """What the present entry of a step may compute."""

    reserved: Reserved
    row: Row
    seconds: float | None
    """When the budget ends before the step's own timeout does: after how long."""


class _Unfilled(Exception):
    """The worker's blocks do not cover it: nothing was written, and it is done again with them filled."""


def has_any(hand: Hand) -> Logic[bool]:
    """Whether the run, or one above it, has a budget. Asked of the record once for each hand, where it can be."""
    if hand.budgeted is None:
        hand.budgeted = hand.definition.budget is not None
        if not hand.budgeted and hand.claimed.has_parent:
            rows = yield Ask(lambda database: database.read(f"{_LINE} LIMIT 1", {"run": hand.run_id}))
            hand.budgeted = bool(rows)
    return hand.budgeted


def holder_of(hand: Hand, units: Iterable[str]) -> Logic[Holder | None]:
    """Whose blocks pay for it; None where the tenant has no budget of any of these units."""
    if not rates.is_fresh():
        yield Ask(lambda database: rates.refresh(database.read))
    limited = rates.budgets_of(hand.claimed.tenant_id)
    if not any(unit in units for _, unit in limited):
        return None
    return Holder(tenant_id=hand.claimed.tenant_id, worker_id=hand.worker_id, limited=limited)


def reserve(hand: Hand, amounts: Amounts, *, phase: Phase = Phase.COMPUTING) -> Logic[Reserved | None]:
    """Reserve before spending; None where there is no budget. Waits while others may give something back."""
    if not amounts:
        return None
    own, holder = (yield from has_any(hand)), (yield from holder_of(hand, amounts))
    if not own and holder is None:
        return None
    made = Reserved(token=uuid.uuid4(), amounts=amounts, of_tenant=holder is not None)
    hand.budget_phase = phase
    pause = LOOK_SECONDS
    while True:
        check_may_go_on(hand)
        short = yield Ask(partial(_try_reserve, hand=hand, made=made, holder=holder))
        if short is None:
            hand.reserved.append(made.amounts)
            return made
        row, wanted = short
        if not _may_come_back(hand, row, wanted):
            raise BudgetSpent(row, wanted)
        yield Pause(pause)
        pause = min(2 * pause, LONGEST_LOOK_SECONDS)


def _may_come_back(hand: Hand, row: Row, wanted: Decimal) -> bool:
    """Whether others may still settle for less. What a plain step has reserved itself, it settles only afterwards."""
    own = (
        Decimal(0) if hand.step.is_async else sum((one.get(row.unit, Decimal(0)) for one in hand.reserved), Decimal(0))
    )
    return row.reserved > own and row.most - row.spent - own >= wanted


def _try_reserve(
    database: Database, *, hand: Hand, made: Reserved, holder: Holder | None = None
) -> tuple[Row, Decimal] | None:
    """Reserve all of it or nothing. Returns what is short of what, if something is."""

    def work(cursor: Cursor, *, fill: bool) -> tuple[Row, Decimal] | None:
        while True:
            rows = _paying(cursor, hand, made.amounts, holder, fill=fill)
            short = next((row for row in rows if row.left < made.amounts[row.unit]), None)
            if short is None:
                _insert(cursor, hand, made, rows)
                return None
            if short.policy != "extend":
                return short, made.amounts[short.unit]
            extend(cursor, hand, short)

    return _with_blocks(database, work)


def _with_blocks[T](database: Database, work: Callable[..., T]) -> T:
    """Do it with what the worker's blocks have; only where that is too little, lock the tenant's budgets."""
    try:
        return database.transacting(partial(work, fill=False))
    except _Unfilled:
        return database.transacting(partial(work, fill=True))


def _paying(cursor: Cursor, hand: Hand, wanted: Amounts, holder: Holder | None, *, fill: bool) -> list[Row]:
    """The budgets it is paid from, locked, the tenant's last. Raises FenceLost, _Unfilled."""
    rows = lock(cursor, hand, list(wanted))
    if holder is None:
        return rows
    found = blocks.filled(cursor, holder, wanted) if fill else blocks.held(cursor, holder, wanted)
    if found is None:
        raise _Unfilled
    return rows + found


def _insert(cursor: Cursor, hand: Hand, made: Reserved, rows: list[Row]) -> None:
    own = [row for row in rows if row.spending_id is None]
    cursor.execute(
        _RESERVE,
        {
            "run": hand.run_id, "fence": hand.fence, "token": made.token, "budgets": [row.id for row in own],
            "amounts": [made.amounts[row.unit] for row in own],
        },
    )  # fmt: skip
    of_tenant = [row for row in rows if row.spending_id is not None]
    blocks.reserve(
        cursor, of_tenant, run_id=hand.run_id, fence=hand.fence, token=made.token, amounts=made.amounts
    )  # fmt: skip


def lock(cursor: Cursor, hand: Hand, units: list[str]) -> list[Row]:
    """The budgets that a held run spends these units from, locked. Raises FenceLost."""
    cursor.execute(_HELD, [hand.run_id, hand.fence])
    if cursor.fetchone() is None:
        raise FenceLost(f"run {hand.run_id} is not held under fence {hand.fence} any more; nothing was reserved.")
    return locked(cursor, hand.run_id, units)


def locked(cursor: Cursor, run_id: UUID, units: list[str]) -> list[Row]:
    """The budgets of a run and of those above it, locked, with what is reserved of them."""
    cursor.execute(_LOCKED, {"run": run_id, "units": units})
    found = {row[0]: row for row in cursor.fetchall()}
    if not found:
        return []
    ids = {"budgets": list(found)}
    cursor.execute(_BOOK_LOST, ids)
    spent = dict(cursor.fetchall())
    cursor.execute(_RESERVED, ids)
    reserved = dict(cursor.fetchall())
    return [
        Row(id=row[0], unit=row[1], run_id=row[2], most=row[3], spent=spent.get(row[0], row[4]), policy=row[5],
            reserved=reserved.get(row[0], Decimal(0)))
        for row in found.values()
    ]  # fmt: skip


def settle(hand: Hand, made: Reserved) -> Logic[None]:
    """Replace a reservation by what it cost."""
    hand.reserved.remove(made.amounts)
    yield Ask(partial(_settle, made=made))


def _settle(database: Database, *, made: Reserved) -> None:
    def work(cursor: Cursor) -> None:
        cursor.execute(_OF_RESERVATION, [made.token])
        rows = cursor.fetchall()
        cursor.execute(_DROP, [made.token])
        # What somebody else has booked meanwhile, because the run was lost to us, stays booked.
        booked = {row[0] for row in cursor.fetchall()}
        pairs = [(budget_id, made.cost[unit]) for budget_id, unit in rows if budget_id in booked]
        cursor.execute(_SPEND, {"budgets": [p[0] for p in pairs], "amounts": [p[1] for p in pairs]})
        if made.of_tenant:
            exceeds = any(made.cost[unit] > amount for unit, amount in made.amounts.items())
            blocks.settle(cursor, made.token, made.cost, exceeds=exceeds)

    database.transacting(work)


def spend(hand: Hand, unit: str, wanted: int, *, phase: Phase) -> Logic[int]:
    """Spend up to so many of a unit that costs what it costs. Returns how many; raises BudgetSpent for none."""
    own, holder = (yield from has_any(hand)), (yield from holder_of(hand, (unit,)))
    if not own and holder is None:
        return wanted
    hand.budget_phase = phase
    pause = LOOK_SECONDS
    while True:
        check_may_go_on(hand)
        taken, short = yield Ask(partial(_take, hand=hand, unit=unit, wanted=wanted, holder=holder))
        if taken:
            return int(taken)
        if not _may_come_back(hand, short, Decimal(1)):
            raise BudgetSpent(short, Decimal(wanted))
        yield Pause(pause)
        pause = min(2 * pause, LONGEST_LOOK_SECONDS)


def _take(database: Database, *, hand: Hand, unit: str, wanted: int, holder: Holder | None) -> tuple[int, Row | None]:
    def work(cursor: Cursor, *, fill: bool) -> tuple[int, Row | None]:
        while True:
            rows = _paying(cursor, hand, {unit: Decimal(wanted)}, holder, fill=fill)
            tightest = min(rows, key=lambda row: row.left, default=None)
            if tightest is None or tightest.left >= 1 or tightest.policy != "extend":
                break
            extend(cursor, hand, tightest)
        taken = wanted if tightest is None else min(wanted, max(0, int(tightest.left)))
        if taken:
            own = [row.id for row in rows if row.spending_id is None]
            cursor.execute(_SPEND, {"budgets": own, "amounts": [taken] * len(own)})
            blocks.spend(cursor, [row for row in rows if row.spending_id is not None], Decimal(taken))
        return taken, tightest

    return _with_blocks(database, work)


def enter(hand: Hand) -> Logic[None]:
    """Before a step is entered: count the entry, and reserve the time it may compute."""
    hand.compute = None
    holder = yield from holder_of(hand, ("steps", "compute_seconds"))
    if not (yield from has_any(hand)) and holder is None:
        return
    yield from spend(hand, "steps", 1, phase=Phase.COMPUTING)
    began, pause = monotonic(), LOOK_SECONDS
    while True:
        check_may_go_on(hand)
        found = yield Ask(partial(_reserve_time, hand=hand, holder=holder))
        if not isinstance(found, BudgetSpent):
            hand.compute = found
            return
        if found.row.reserved <= 0:
            raise found
        if monotonic() - began > IN_HAND_SECONDS:
            raise HandBack(
                "budget", f"{found.row.named} is reserved by others",
                delay=COME_BACK_SECONDS * (1 + SPREAD * hand.random.random()),
                gate={"gate": "budget", "unit": found.row.unit, "period": found.row.period},
            )  # fmt: skip
        yield Pause(pause)
        pause = min(2 * pause, LONGEST_LOOK_SECONDS)


def _reserve_time(database: Database, *, hand: Hand, holder: Holder | None) -> Computing | BudgetSpent | None:
    """As long as the entry may take; less where that is all there is. From the tenant's no more than a portion."""
    longest = None if hand.step.longest is None else Decimal(str(hand.step.longest))
    portion = PORTION_SECONDS if longest is None else min(longest, PORTION_SECONDS)

    def work(cursor: Cursor, *, fill: bool) -> Computing | BudgetSpent | None:
        rows = _paying(cursor, hand, {"compute_seconds": portion}, holder, fill=fill)
        tightest = min(rows, key=lambda row: row.left, default=None)
        if tightest is None:
            return None
        others_have = tightest.spending_id is not None and tightest.left < portion and tightest.reserved > 0
        if tightest.left <= 0 or (fill and others_have):
            return BudgetSpent(tightest, Decimal(0))
        of_tenant = any(row.spending_id is not None for row in rows)
        most = portion if of_tenant else longest
        seconds = tightest.left if most is None else min(tightest.left, most)
        made = Reserved(token=uuid.uuid4(), amounts={"compute_seconds": seconds}, of_tenant=of_tenant)
        _insert(cursor, hand, made, rows)
        ends_budget = seconds == tightest.left and (tightest.spending_id is None or fill)
        return Computing(reserved=made, row=tightest, seconds=float(seconds) if ends_budget else None)

    return _with_blocks(database, work)


def leave(database: Database, hand: Hand) -> None:
    """After a step was left, however: what it computed. What cannot be written now is booked as lost."""
    computing, hand.compute = hand.compute, None
    if isinstance(computing, Computing):
        computing.reserved.settle(compute_seconds=Decimal(str(round(monotonic() - hand.entered_at, 6))))
        try:
            _settle(database, made=computing.reserved)
        except ConnectionLost as lost:
            logger.warning("what run %s computed could not be written: %s", hand.run_id, lost)


def firing(hand: Hand, signal: BudgetSpent, *, next_state: str) -> Firing:
    """The record of a spent budget, with what was done and what is missing."""
    row, steps = signal.row, [step.id for step in hand.definition.steps]
    at = steps.index(hand.step.id)
    return Firing(
        clock=Clock.BUDGET,
        limit_seconds=None,
        trigger=str(signal)[:-1],
        elapsed_seconds=monotonic() - hand.entered_at,
        phase=hand.budget_phase or Phase.COMPUTING,
        next_state=next_state,
        whom=row.unit,
        more={
            "unit": row.unit, "limit": shown(row.most), "spent": shown(row.spent), "reserved": shown(row.reserved),
            "wanted": shown(signal.wanted), "done": steps[:at], "missing": steps[at:],
            **({"of_run": str(row.run_id)} if row.run_id else {"period": row.period, "of_spending": row.spending_id}),
        },
    )  # fmt: skip


def extend(cursor: Cursor, hand: Hand, row: Row) -> None:
    """Give a budget as much again, once, by its policy."""
    if row.spending_id is not None:
        blocks.extend(cursor, row.spending_id)
    else:
        cursor.execute(_EXTEND, [[row.id]])
    fired = firing(hand, BudgetSpent(row, Decimal(0)), next_state="running")
    record_event(
        cursor, hand.run_id, "budget_spent", reason=f"{fired.trigger}; it has as much again, by its policy.",
        step_id=hand.step.id, attempt=hand.attempt, fence=hand.fence, worker_id=hand.worker_id, data=fired.as_data(),
    )  # fmt: skip


def summary(signal: BudgetSpent, data: Mapping[str, Any]) -> str:
    """What an exhausted run says of itself."""
    done = ", ".join(data["done"]) or "nothing"
    return f"{signal} Done: {done}. Missing: {', '.join(data['missing'])}."
