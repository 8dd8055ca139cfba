"""What goes in and out of the API about retention: rules, previews, legal holds, erasures."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from durableops.api.paging import LARGEST_ID
from durableops.api.schemas import Key, VerbRequest
from durableops.api.schemas import Request as Body

Subject = Literal[
    "temp_file", "raw_prompt", "effect_body", "effect_summary", "decision", "checkpoint", "input", "deliverable",
    "event", "effect_key", "audit", "reopen",
]  # fmt: skip
Workflow = Annotated[str, Field(max_length=100, description="Empty for every workflow.")]
MOST_LOOKED_AT = 2000
MOST_SECONDS = 100 * 366 * 86400


class RulesQuery(BaseModel):
    workflow: str = Field("", max_length=100)


class PageQuery(BaseModel):
    """Which page, newest first."""

    before: int | None = Field(None, ge=1, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


class HoldsQuery(PageQuery):
    state: Literal["standing", "lifted"] = "standing"


class Window(BaseModel):
    """How long something is kept."""

    subject: Subject
    seconds: int | None = Field(
        description="After the end of the run, or when it stopped being needed; null: for ever."
    )
    rule: int = Field(description="Number of the rule that says so; 0 is the default.")


class Windows(BaseModel):
    workflow: str
    windows: list[Window]
    policy: int = Field(description="Number of the newest rule there is: names the policy as a whole.")


class NoQuery(BaseModel):
    """Nothing may be asked."""


class Holder(BaseModel):
    why: str = Field(description="`class:x`: data of class x is kept longer than the run's row would be.")
    words: str = Field(description="The same for people.")


class KeptClass(BaseModel):
    """What becomes of one class of a run's data."""

    data_class: Subject
    rows: int
    bytes: int = Field(description="As it is stored, its files included.")
    seconds: int | None = Field(description="How long it is kept; null: for ever.")
    rule: int = Field(description="Number of the rule that says so; 0 is the default.")
    due_at: datetime | None = Field(description="When it has been kept that long; null while the run is open.")
    goes_at: datetime | None = Field(description="When it goes; null while something holds it, or never.")
    gone_at: datetime | None = Field(description="As of when it was removed.")
    never: bool = Field(description="Whether it is kept for ever.")
    held_by: list[Holder]


class RunRetention(BaseModel):
    """What of one run is kept, until when, and what holds it."""

    run: UUID
    finished_at: datetime | None
    policy: int = Field(description="Number of the newest rule there is.")
    rows: int
    bytes: int
    state_bytes: int = Field(description="What the states that its steps and pages stored take together.")
    legal_holds: list[int] = Field(description="Those that stand on it, on a label of it, or on the tenant.")
    classes: list[KeptClass] = Field(description="In the order in which they go.")


class WantedRule(Body):
    subject: Subject = Field(description="A class of data, or `reopen`: the right to reopen a run that ended badly.")
    keeps: Literal["seconds", "for_ever", "inherited"] = Field(
        description="`inherited`: what the wider rule or the default says."
    )
    seconds: int | None = Field(
        None, ge=0, le=MOST_SECONDS, description="With `seconds`; 0: it goes when the run ends."
    )
    workflow: Workflow = ""


class RuleRequest(WantedRule, VerbRequest):
    pass


class Rule(BaseModel):
    id: int
    subject: Subject
    keeps: Literal["seconds", "for_ever", "inherited"]
    seconds: int | None
    workflow: str
    actor: str
    reason: str
    at: datetime


class Change(BaseModel):
    workflow: str
    data_class: str
    rows: int = Field(description="More than would go without the rule; fewer, if negative.")
    bytes: int
    sample: list[UUID]


class Rehearsal(BaseModel):
    """What a rule would change today. It was not set."""

    runs: int = Field(description="Finished runs that were looked at, the oldest of those it concerns.")
    complete: bool = Field(description="False when there may be more of them.")
    changes: list[Change]


class PreviewRequest(Body):
    most: int = Field(ge=1, le=MOST_LOOKED_AT, description="Runs to look at; the command looks at all.")


class Going(BaseModel):
    workflow: str
    data_class: str
    seconds: int | None
    rule: int
    runs: int
    rows: int
    bytes: int
    sample: list[UUID]


class Staying(BaseModel):
    workflow: str
    data_class: str
    why: str
    words: str = Field(description="The same for people.")
    runs: int
    sample: list[UUID]


class Preview(BaseModel):
    """What would go as of one moment, and what would stay and why. Nothing went by looking."""

    id: int
    as_of: datetime
    made_by: str
    policy: int
    runs: int
    complete: bool = Field(description="False when more runs are due than were looked at.")
    rows: int
    bytes: int
    goes: list[Going]
    stays: list[Staying]


class HoldRequest(VerbRequest):
    run: Annotated[UUID, Field(strict=False)] | None = None
    label: Key | None = None
    value: Annotated[str, Field(max_length=255)] = ""
    everything: bool = Field(False, description="The whole tenant.")


class Hold(BaseModel):
    id: int
    scope: Literal["run", "label", "tenant"]
    run: UUID | None
    label: str
    value: str
    placed_by: str
    placed_at: datetime
    reason: str
    lifted_by: str
    lifted_at: datetime | None
    lift_reason: str


class HoldPage(BaseModel):
    holds: list[Hold]
    next: int | None = Field(description="Give it as `before` for the next page; null at the end.")


class ErasureRequest(VerbRequest):
    label: Key | None = None
    value: Annotated[str, Field(max_length=255)] = ""
    everything: bool = Field(False, description="Everything of the tenant. It does not come back.")


class Went(BaseModel):
    rows: int
    bytes: int


class Erasure(BaseModel):
    id: int
    label: str
    value: str
    everything: bool
    requested_by: str
    requested_at: datetime = Field(description="Of runs created later nothing is erased.")
    reason: str
    finished_at: datetime | None = Field(description="When nothing more could go.")
    erased: dict[str, Went] = Field(description="By class.")
    stayed: dict[str, int] = Field(description="How many runs had to stay, by reason.")


class ErasurePage(BaseModel):
    erasures: list[Erasure]
    next: int | None = Field(description="Give it as `before` for the next page; null at the end.")
