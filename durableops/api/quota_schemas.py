"""What goes in and out of the API about quotas."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from durableops.api.schemas import Amount, Request, Unit, VerbRequest
from durableops.authoring.policies import OnBudget
from durableops.engine.quotas import MOST_A_MINUTE, MOST_CALL_RATES
from runs.models.quota import HEAVIEST, HIGHEST_PRIORITY, MOST_SLOTS

Period = Literal["day", "month"]
Limit = (
    Annotated[float, Field(strict=False, ge=0, le=1e12, allow_inf_nan=False)]
    | Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?$")]
)
"""A number, or its text where it must be exact."""
AMinute = Annotated[int, Field(ge=0, le=MOST_A_MINUTE)]
Priority = Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)]


class TenantBudget(BaseModel):
    """What became of one budget in the present day or month. There is none before something was spent."""

    period: Period
    unit: Unit
    currency: str
    starts_at: datetime
    ends_at: datetime
    limit: str
    spent: str
    reserved: str
    over: str = Field(description="Of what was spent: what was done although nothing was left.")


class Quota(BaseModel):
    """What a tenant may use, and what it uses just now."""

    running: int
    waiting: int = Field(description="Runs that could run and wait for their turn.")
    oldest_at: datetime | None = Field(description="Since when the first of them waits.")
    running_cap: int | None
    starts_per_minute: int | None
    call_rates: dict[str, int] = Field(description="Calls a minute, by `tool:NAME` and `system:NAME`.")
    weight: int
    priority_min: int
    priority_max: int
    budgets: dict[Period, dict[Unit, str]] = Field(description="Limits of all its runs together.")
    budget_policy: OnBudget
    time_zone: str = Field(description="Where its days and months begin.")
    periods: list[TenantBudget]
    alarm: str = Field(description="What somebody should look at; empty for nothing.")
    version: int


class QuotaChanges(Request):
    """What is to change; null takes a limit away, and what is not named stays."""

    running_cap: Annotated[int, Field(ge=0, le=MOST_SLOTS)] | None = None
    starts_per_minute: AMinute | None = None
    call_rates: dict[str, AMinute] | None = Field(None, max_length=MOST_CALL_RATES, description="All of them.")
    weight: int = Field(1, ge=1, le=HEAVIEST)
    priority_min: Priority = -HIGHEST_PRIORITY
    priority_max: Priority = HIGHEST_PRIORITY
    budgets: dict[Period, dict[Unit, Limit]] | None = Field(None, description="All of them.")
    budget_policy: OnBudget = "exhaust"
    time_zone: str = Field("UTC", min_length=1, max_length=64)

    @property
    def named(self) -> dict[str, Any]:
        """What the request names."""
        found = self.model_dump(exclude_unset=True)
        empty: dict[str, Any] = {name: {} for name in ("call_rates", "budgets") if name in found}
        return found | {name: found[name] or nothing for name, nothing in empty.items()}


class PreviewQuotaRequest(Request):
    changes: QuotaChanges


class SetQuotaRequest(VerbRequest):
    changes: QuotaChanges
    version: int | None = Field(None, ge=0, description="As you read it; refused (409) if somebody was quicker.")


class AddTenantBudgetRequest(VerbRequest):
    period: Period
    budget: dict[Unit, Amount] = Field(min_length=1, description="How much more, in the present period alone.")


class QuotaPreview(BaseModel):
    says: list[str] = Field(description="Whom it would touch, in sentences.")


class QuotaChange(BaseModel):
    at: datetime
    actor: str
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]


class QuotaHistory(BaseModel):
    changes: list[QuotaChange] = Field(description="The last ones, newest first.")
