"""What goes in and out of the API about runs that today's code cannot safely go on with."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from durableops.api.plans import Plan
from durableops.api.schemas import CancelRequest, GuardedRequest, Payload, Request

LARGEST_ID = 2**63 - 1
LARGEST_VERSION = 2**31 - 1


class ReviewQuery(BaseModel):
    """Which page."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


class Difference(BaseModel):
    """One thing that is not as it was recorded."""

    kind: str
    subject: str = Field(description="A step's id, `step/tool`, `step/event`, a field's path, or the workflow's name.")
    recorded: str
    present: str


class ReviewGroup(BaseModel):
    """Runs of this tenant with the same incompatibility."""

    fingerprint: str
    workflow: str
    code: str
    reason: str = Field(description="Of the oldest of them.")
    differences: list[Difference]
    version: int
    target_version: int | None = Field(description="Of the code that would go on; null where no code is known.")
    runs: int
    oldest: datetime
    newest: datetime


class ReviewGroups(BaseModel):
    groups: list[ReviewGroup]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class ReviewedRun(BaseModel):
    """One of them."""

    id: int
    run: UUID
    state: str
    step: str
    checkpoint: int
    found_at: datetime
    claimed_by: str
    second_asked_by: str = Field(description="Whoever asked for a second reviewer, and does not decide any more.")


class ReviewedRuns(BaseModel):
    runs: list[ReviewedRun]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class Becomes(BaseModel):
    """What a migration, an edit or a move would make of a run as it is now."""

    version: int
    step: str
    state: Payload
    waits_given_up: int
    functions: list[str] = Field(description="The migrations, in order.")
    plan: Plan


class ReviewDetail(ReviewedRun):
    """What a decision about one run rests on."""

    fingerprint: str
    code: str
    reason: str
    differences: list[Difference]
    recorded_plan: dict[str, Any]
    target_plan: dict[str, Any] | None
    state_before: Payload
    becomes: Becomes | None = Field(description="By the registered migrations to the newest version; null if none fit.")
    why_not: str = Field(description="Why they do not.")


class RejectRequest(CancelRequest):
    """As a cancel."""


class EditRequest(GuardedRequest):
    """What is not given stays."""

    state: dict[str, Any] | None = Field(
        None,
        description="The whole state within the schema of the version, for tokens with `payloads:read`; a value left "
        "as its mask keeps what is behind it.",
    )
    step: str = Field("", max_length=100, description="Where it goes on; by default where it stands.")
    version: int | None = Field(None, ge=1, le=LARGEST_VERSION, description="By default the newest that is loaded.")
    finding: str = Field("", max_length=32, description="Only while it still has this finding's `fingerprint`.")


class MoveRequest(GuardedRequest):
    step: str = Field(min_length=1, max_length=100)
    version: int | None = Field(None, ge=1, le=LARGEST_VERSION, description="By default the newest that is loaded.")
    finding: str = Field("", max_length=32, description="Only while it still has this finding's `fingerprint`.")


class EditPreviewRequest(Request):
    """What `edit` or `move` would be asked."""

    state: dict[str, Any] | None = None
    step: str = Field("", max_length=100)
    version: int | None = Field(None, ge=1, le=LARGEST_VERSION)
