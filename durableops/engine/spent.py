"""The signal of a spent budget, and the budget as it was then."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from durableops.errors import ControlSignal


@dataclass(frozen=True, kw_only=True)
class Row:
    """One budget that a run spends from: its own, that of a run above it, or its tenant's."""

    id: int
    unit: str
    run_id: UUID | None
    """Whose it is; None for the tenant's."""
    most: Decimal
    spent: Decimal
    policy: str
    reserved: Decimal = Decimal(0)
    period: str = ""
    """Of a tenant's: `day` or `month`."""
    spending_id: int | None = None
    block_id: int | None = None
    """Of a tenant's: which period, and the part of it that the run's worker has."""

    @property
    def left(self) -> Decimal:
        return self.most - self.spent - self.reserved

    @property
    def named(self) -> str:
        """In a sentence."""
        whose = f"the tenant's budget for the {self.period}" if self.period else "the budget"
        return f"{whose} of {shown(self.most)} {self.unit}"


class BudgetSpent(ControlSignal):
    """A budget does not cover what comes next, and nothing that was reserved of it can come back."""

    code = "signal.budget_spent"

    def __init__(self, row: Row, wanted: Decimal) -> None:
        more = f", {shown(wanted)} more asked for" if wanted else ""
        super().__init__(f"{row.named} is spent: {shown(row.spent)} used{more}.")
        self.row, self.wanted = row, wanted


def shown(amount: Decimal) -> str:
    """An amount without the zeros behind it."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
