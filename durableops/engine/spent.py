"""The signal of a spent budget, and the budget as it was then."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from durableops.errors import ControlSignal


@dataclass(frozen=True, kw_only=True)
class Row:
    """One budget that a run spends from."""

    id: int
    unit: str
    run_id: UUID
    most: Decimal
    spent: Decimal
    policy: str
    reserved: Decimal = Decimal(0)

    @property
    def left(self) -> Decimal:
        return self.most - self.spent - self.reserved


class BudgetSpent(ControlSignal):
    """A budget does not cover what comes next, and nothing that was reserved of it can come back."""

    code = "signal.budget_spent"

    def __init__(self, row: Row, wanted: Decimal) -> None:
        more = f", {shown(wanted)} more asked for" if wanted else ""
        super().__init__(f"the budget of {shown(row.most)} {row.unit} is spent: {shown(row.spent)} used{more}.")
        self.row, self.wanted = row, wanted


def shown(amount: Decimal) -> str:
    """An amount without the zeros behind it."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
