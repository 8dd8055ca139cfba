"""What goes in and out of the API about doubts and legacy systems."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from durableops.api.paging import LARGEST_ID
from durableops.api.plans import PlannedCalls
from durableops.api.schemas import GuardedRequest, Reason, RunError
from durableops.api.schemas import Request as Body
from durableops.engine.settlements import LONGEST_ID, MAX_EVIDENCE_CHARACTERS


class DoubtQuery(BaseModel):
    """Which page of which doubts."""

    state: Literal["open", "settled"] = "open"
    after: int = Field(0, ge=0, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


class DoubtVerb(Body):
    reason: Reason = ""


class SettleRequest(GuardedRequest):
    how: Literal["happened", "did_not", "compensate", "give_up"]
    downstream_id: str = Field("", max_length=LONGEST_ID, description="The other side's id of what was made.")
    result: Any = Field(
        None, description="What the step gets, if it happened. Left out, just the id where there is one."
    )
    evidence: str = Field("", max_length=MAX_EVIDENCE_CHARACTERS, description="How it is known.")


class Doubt(BaseModel):
    """An effect that may or may not have happened, or did until somebody said so."""

    id: int
    run: UUID
    effect: int
    step: str
    tool: str
    safety: str
    resource: str
    downstream_key: str
    effect_state: str
    error: RunError = Field(description="What left it unknown.")
    since: datetime
    reminded_at: datetime | None
    escalated_at: datetime | None
    probe_at: datetime | None = Field(
        description="When its tool's probe is asked next; null where only people can tell."
    )
    probe_attempts: int
    probe_said: str
    claimed_by: str
    holds_system: str = Field(description="The legacy system whose queue it holds; empty if it holds none.")
    quiet_after: datetime | None = Field(description="After this nobody can be sending it any more.")
    settled_at: datetime | None
    settled_as: str
    settled_by: str
    downstream_id: str
    evidence: str
    request: Any = Field(description="A masked summary, for tokens with `payloads:read`.")
    response: Any = Field(description="What a legacy system answered, masked, for tokens with `payloads:read`.")


class DoubtPage(BaseModel):
    doubts: list[Doubt]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class SettlingChoice(BaseModel):
    how: str
    offered: bool
    why_not: str
    means: list[str] = Field(description="What it would do.")
    calls: list[PlannedCalls] = Field(description="What it would do, as a plan tells it of every verb.")
    harmless: bool = Field(description="Whether it may be said without a `plan_hash`.")


class DoubtDetail(Doubt):
    choices: list[SettlingChoice]
    plan_hash: str


class System(BaseModel):
    """A legacy system and its controlled queue, shared by all tenants."""

    name: str
    paused: bool
    paused_by: str
    paused_reason: str
    paused_at: datetime | None
    queued: int = Field(description="Calls of all tenants that wait for their turn, counted up to 1,000.")
    queued_here: int = Field(description="Those of this tenant.")
    oldest_at: datetime | None = Field(description="When the one that waits longest was queued.")
    on_the_wire: bool
    in_doubt: int = Field(description="Calls of this tenant that are in doubt there.")


class SystemList(BaseModel):
    systems: list[System]


class QueuedCall(BaseModel):
    """A call of this tenant that waits for its turn."""

    effect: int
    run: UUID
    tool: str
    resource: str
    ahead: int = Field(description="Calls of all tenants before it.")
    queued_at: datetime
    run_state: str
    run_paused: bool
    plan_hash: str = Field(description="Of its place, to be sent with `move`.")


class SystemQueue(System):
    calls: list[QueuedCall] = Field(description="The first 200 of this tenant, in their order.")
