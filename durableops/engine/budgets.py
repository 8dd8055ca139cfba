"""Budgets of runs: reserved before anything is spent, settled by what it cost. One row of a budget is locked at a time.

A run spends from its own budget and from those of the runs above it. A reservation that does not fit waits as long as
others may still give something back, without holding anything; where nothing can come back, the budget is spent.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from durableops.authoring.policies import Budget
from durableops.clock import monotonic
from durableops.engine.checks import check_may_go_on
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Logic, Pause
from durableops.engine.spent import BudgetSpent, Row, shown
from durableops.errors import FenceLost
from durableops.limits.clocks import Clock, Firing, Phase
from runs.transitions import Cursor, record_event

LOOK_SECONDS = 0.1
"""How often a reservation that waits for others to settle looks again."""
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
_DROP = "DELETE FROM runs_reservation WHERE token = %s RETURNING budget_id"
_EXTEND = """
UPDATE runs_budget SET most = most + granted, policy = CASE WHEN policy = 'extend' THEN 'exhaust' ELSE policy END
WHERE id = ANY(%s)"""


logger = logging.getLogger("durableops.budgets")


@dataclass(kw_only=True)
class Reserved:
    """A reservation in hand. Amounts that are not settled count as they were reserved."""

    token: UUID
    amounts: Amounts
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


def has_any(hand: Hand) -> Logic[bool]:
    """Whether the run, or one above it, has a budget. Asked of the record once for each hand, where it can be."""
    if hand.budgeted is None:
        hand.budgeted = hand.definition.budget is not None
        if not hand.budgeted and hand.claimed.has_parent:
            rows = yield Ask(lambda database: database.read(f"{_LINE} LIMIT 1", {"run": hand.run_id}))
            hand.budgeted = bool(rows)
    return hand.budgeted


def reserve(hand: Hand, amounts: Amounts, *, phase: Phase = Phase.COMPUTING) -> Logic[Reserved | None]:
    """Reserve before spending; None where there is no budget. Waits while others may give something back."""
    if not amounts or not (yield from has_any(hand)):
        return None
    made = Reserved(token=uuid.uuid4(), amounts=amounts)
    hand.budget_phase = phase
    while True:
        check_may_go_on(hand)
        short = yield Ask(partial(_try_reserve, hand=hand, made=made))
        if short is None:
            hand.reserved.append(made.amounts)
            return made
        row, wanted = short
        if not _may_come_back(hand, row, wanted):
            raise BudgetSpent(row, wanted)
        yield Pause(LOOK_SECONDS)


def _may_come_back(hand: Hand, row: Row, wanted: Decimal) -> bool:
    """Whether others may still settle for less. What a plain step has reserved itself, it settles only afterwards."""
    own = (
        Decimal(0) if hand.step.is_async else sum((one.get(row.unit, Decimal(0)) for one in hand.reserved), Decimal(0))
    )
    return row.reserved > own and row.most - row.spent - own >= wanted


def _try_reserve(database: Database, *, hand: Hand, made: Reserved) -> tuple[Row, Decimal] | None:
    """Reserve all of it or nothing. Returns what is short of what, if something is."""

    def work(cursor: Cursor) -> tuple[Row, Decimal] | None:
        rows = lock(cursor, hand, list(made.amounts))
        for row in rows:
            if row.left < made.amounts[row.unit] and row.policy == "extend":
                extend(cursor, hand, row)
                return _again(cursor, hand, made)
            if row.left < made.amounts[row.unit]:
                return row, made.amounts[row.unit]
        _insert(cursor, hand, made, rows)
        return None

    return database.transacting(work)


def _again(cursor: Cursor, hand: Hand, made: Reserved) -> tuple[Row, Decimal] | None:
    rows = lock(cursor, hand, list(made.amounts))
    short = next((row for row in rows if row.left < made.amounts[row.unit]), None)
    if short is not None:
        return short, made.amounts[short.unit]
    _insert(cursor, hand, made, rows)
    return None


def _insert(cursor: Cursor, hand: Hand, made: Reserved, rows: list[Row]) -> None:
    cursor.execute(
        _RESERVE,
        {
            "run": hand.run_id, "fence": hand.fence, "token": made.token, "budgets": [row.id for row in rows],
            "amounts": [made.amounts[row.unit] for row in rows],
        },
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

    database.transacting(work)


def spend(hand: Hand, unit: str, wanted: int, *, phase: Phase) -> Logic[int]:
    """Spend up to so many of a unit that costs what it costs. Returns how many; raises BudgetSpent for none."""
    if not (yield from has_any(hand)):
        return wanted
    hand.budget_phase = phase
    while True:
        check_may_go_on(hand)
        taken, short = yield Ask(partial(_take, hand=hand, unit=unit, wanted=wanted))
        if taken:
            return int(taken)
        if not _may_come_back(hand, short, Decimal(1)):
            raise BudgetSpent(short, Decimal(wanted))
        yield Pause(LOOK_SECONDS)


def _take(database: Database, *, hand: Hand, unit: str, wanted: int) -> tuple[int, Row | None]:
    def work(cursor: Cursor) -> tuple[int, Row | None]:
        rows = lock(cursor, hand, [unit])
        for row in rows:
            if row.left < 1 and row.policy == "extend":
                extend(cursor, hand, row)
                rows = locked(cursor, hand.run_id, [unit])
        tightest = min(rows, key=lambda row: row.left, default=None)
        taken = wanted if tightest is None else min(wanted, max(0, int(tightest.left)))
        if taken:
            cursor.execute(_SPEND, {"budgets": [row.id for row in rows], "amounts": [taken] * len(rows)})
        return taken, tightest

    return database.transacting(work)


def enter(hand: Hand) -> Logic[None]:
    """Before a step is entered: count the entry, and reserve the time it may compute."""
    hand.compute = None
    if not (yield from has_any(hand)):
        return
    yield from spend(hand, "steps", 1, phase=Phase.COMPUTING)
    hand.compute = yield Ask(partial(_reserve_time, hand=hand))
    if isinstance(hand.compute, BudgetSpent):
        raise hand.compute


def _reserve_time(database: Database, *, hand: Hand) -> Computing | BudgetSpent | None:
    def work(cursor: Cursor) -> Computing | BudgetSpent | None:
        rows = lock(cursor, hand, ["compute_seconds"])
        tightest = min(rows, key=lambda row: row.left, default=None)
        if tightest is None:
            return None
        if tightest.left <= 0:
            return BudgetSpent(tightest, Decimal(0))
        longest = hand.step.longest
        seconds = tightest.left if longest is None else min(tightest.left, Decimal(str(longest)))
        made = Reserved(token=uuid.uuid4(), amounts={"compute_seconds": seconds})
        _insert(cursor, hand, made, rows)
        ends_budget = seconds == tightest.left
        return Computing(reserved=made, row=tightest, seconds=float(seconds) if ends_budget else None)

    return database.transacting(work)


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
            "wanted": shown(signal.wanted), "of_run": str(row.run_id), "done": steps[:at], "missing": steps[at:],
        },
    )  # fmt: skip


def extend(cursor: Cursor, hand: Hand, row: Row) -> None:
    """Give a budget as much again, once, by its policy."""
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
