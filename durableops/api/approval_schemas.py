"""What goes in and out of the API about questions to people."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from durableops.api.schemas import VerbRequest

LARGEST_ID = 2**63 - 1


class ApprovalQuery(BaseModel):
    """Which page of the open questions."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


class DelegateRequest(VerbRequest):
    to: str = Field(min_length=1, max_length=150, description="User name of a member who may decide.")


class ApprovalChoice(BaseModel):
    name: str
    label: str
    approves: bool = Field(description="Whether the run goes on with it.")


class FormField(BaseModel):
    """One thing to be filled in with a yes."""

    name: str
    kind: Literal["text", "integer", "number", "decimal", "boolean", "date", "datetime", "choice"]
    label: str
    hint: str
    required: bool
    nullable: bool
    default: Any
    options: list[str]
    at_least: float | None
    at_most: float | None
    more_than: float | None
    less_than: float | None
    shortest: int
    longest: int
    pattern: str


class ApprovalComment(BaseModel):
    by: str
    at: datetime
    text: str


class Approval(BaseModel):
    """A question a run asks people."""

    id: int
    run: UUID
    workflow: str
    step: str
    name: str
    key: str
    round: int = Field(description="The how manieth time this run asks under this name.")
    question: str
    facts_hash: str = Field(description="To be sent with the decision.")
    state: str
    asked_at: datetime
    expires_at: datetime | None
    on_timeout: str = Field(description="What happens when nobody decides.")
    roles: list[str] = Field(description="Who may decide just now.")
    four_eyes: bool = Field(description="Whether whoever started the run may not decide.")
    delegated_to: str
    escalated_at: datetime | None
    reminders: int
    claimed_by: str
    choice: str = Field(description="What was decided; empty while it is open.")
    decided_by: str
    decided_at: datetime | None


class ApprovalDetail(Approval):
    facts: Any = Field(None, description="What is decided about, for tokens with `payloads:read`.")
    choices: list[ApprovalChoice]
    form: list[FormField]
    comments: list[ApprovalComment]
    why_not: str = Field(description="Why this token may not decide, in words; empty when it may.")


class ApprovalPage(BaseModel):
    approvals: list[Approval]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")
