"""What goes in and out of the API, one schema for each thing. Requests are taken strictly: "5" is not a number."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from durableops.checkpoints.codec import MAX_KEY_BYTES, check_key
from durableops.engine.commands import MAX_REASON_CHARACTERS
from durableops.engine.start import MAX_LABELS
from durableops.errors import InputRefused
from runs.states import State


def _key(text: str) -> str:
    try:
        return check_key(text, what="it")
    except InputRefused as refused:
        raise ValueError(refused.detail) from None


def _iso(given: object) -> object:
    # Left alone, a number would be taken for seconds since 1970.
    if given is not None and not (isinstance(given, str) and _ISO.match(given)):
        raise ValueError("it is not an instant such as 2026-11-29T14:00:00Z")
    return given


_ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")

Key = Annotated[
    str,
    Field(min_length=1, max_length=MAX_KEY_BYTES, description=f"1 to {MAX_KEY_BYTES} bytes, no control characters."),
    AfterValidator(_key),
]
Instant = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_iso)]
Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS, description="Kept in the audit.")]


PlanHash = Annotated[
    str,
    Field(
        pattern="^[0-9a-f]{64}$",
        description="Of the plan you were shown. Refused (409) with the plan as it is now if that has changed; needed "
        "where something would be sent again.",
    ),
]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


Request = _Request
"""What every body is read by: strictly, and with nothing in it that nobody asked for."""


class StartRequest(_Request):
    workflow: str = Field(min_length=1, max_length=100)
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="By default the newest that is loaded.")
    input: dict[str, Any] = Field(default_factory=dict, description="The fields of the workflow's state.")
    labels: dict[Key, Key] = Field(default_factory=dict, max_length=MAX_LABELS)
    priority: int = Field(0, ge=-100, le=100)
    start_at: Instant | None = Field(None, description="Not earlier than this; at most ten years from now.")


class EventRequest(_Request):
    name: Key
    correlation: Key | None = Field(None, description="Which one, when several runs wait for this name.")
    payload: Any = None


class VerbRequest(_Request):
    reason: Reason = Field(min_length=1)


class GuardedRequest(VerbRequest):
    """A verb that may send something again."""

    plan_hash: PlanHash | None = None


class MigrateRequest(GuardedRequest):
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="By default the newest that is loaded.")


class MoveRequest(GuardedRequest):
    to: Literal["first", "up", "down", "last"]


class CancelRequest(VerbRequest):
    done: Literal["later", "compensate", "keep"] = Field(
        "later",
        description="What becomes of what was done: listed as owed and decided later, undone, or left as it is.",
    )


Amount = Annotated[float, Field(strict=False, gt=0, le=1e12, allow_inf_nan=False)]
Unit = Literal["tokens", "money", "calls", "steps", "compute_seconds"]


class BudgetRequest(VerbRequest):
    budget: dict[Unit, Amount] = Field(min_length=1, description="How much more of each unit.")


class RetryRequest(GuardedRequest):
    budget: dict[Unit, Amount] | None = Field(None, description="How much more budget; needed when it is spent.")
    deadline_at: Instant | None = Field(None, description="Needed when the run's deadline has passed.")


class _DecisionRequest(_Request):
    facts_hash: str = Field(pattern="^[0-9a-f]{64}$", description="As the wait showed it: what you decide about.")
    reason: Reason = ""
    choice: str = Field("", max_length=50, description="Which choice, where there are several of this kind.")


class ExtendRequest(VerbRequest):
    deadline_at: Instant


class ExtendWaitRequest(VerbRequest):
    expires_at: Instant


class ClockQuery(BaseModel):
    hours: int = Field(24, ge=1, le=24 * 31, description="How far back.")


class FiredClock(BaseModel):
    """Firings of one clock for one cause."""

    cause: str
    clock: str
    phase: str = Field(description="What the runs were doing.")
    whom: str = Field(description="Whom they waited for, such as `tool crm.push`; empty for nobody.")
    times: int
    runs: int
    newest_at: datetime
    advice: str


class ClockList(BaseModel):
    clocks: list[FiredClock]


class ApprovalRequest(_DecisionRequest):
    values: dict[str, Any] | None = Field(None, description="What the form asks for, by name.")


class RefusalRequest(_DecisionRequest):
    reason: Reason = Field(min_length=1)


class Progress(BaseModel):
    done: int
    total: int | None
    note: str


class Payload(BaseModel):
    """A stored document: its place and size for everybody, its value for tokens with `payloads:read`."""

    checkpoint: int = Field(description="Number of the checkpoint that holds it.")
    bytes: int
    shown: bool
    value: Any = Field(None, description="What looks like a secret is masked.")


class RunError(BaseModel):
    kind: str
    message: str
    fingerprint: str


class OpenWait(BaseModel):
    """What a run waits for."""

    id: int
    kind: Literal["event", "approval", "file", "time", "poll", "children", "turn"]
    name: str
    key: str
    correlation: str
    step: str
    opened_at: datetime
    due_at: datetime | None = Field(description="When the engine itself goes on.")
    expires_at: datetime | None = Field(description="The wait's own clock; the run's deadline may come first.")
    on_timeout: str
    question: str
    facts_hash: str = Field(description="Approvals: to be sent with the decision.")
    facts: Any = Field(None, description="Approvals: what is decided about, for tokens with `payloads:read`.")


class Gate(BaseModel):
    """Something that keeps a run from going on, besides its state."""

    code: str
    detail: str
    since: datetime | None = Field(None, description="Since when it has held the run back, where that is known.")


class Why(BaseModel):
    """Why the run is where it is, and what will wake it."""

    code: str = Field(description="State and cause, such as `waiting.approval`; stable.")
    detail: str
    since: datetime
    wakes_at: datetime | None = Field(description="When it moves by itself at the latest, as far as is known.")
    gates: list[Gate]


class RunSummary(BaseModel):
    id: UUID
    workflow: str
    version: int
    start_key: str | None
    state: State
    state_since: datetime
    step: str
    progress: Progress | None
    labels: dict[str, str]
    paused: bool
    cancel_requested: bool
    created_at: datetime
    created_by: str
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    resumes: int
    effects_avoided: int
    error: RunError | None


class BudgetState(BaseModel):
    """The limit of one unit for a run and everything below it."""

    unit: Unit
    currency: str = Field(description="Of `money`; empty for the others.")
    limit: str = Field(description="A decimal number.")
    spent: str
    reserved: str = Field(description="About to be spent: it counts until it is settled.")
    policy: str


class Run(RunSummary):
    priority: int
    parent: UUID | None
    attempt: int
    why: Why
    waits: list[OpenWait]
    input: Payload | None = Field(description="Null once retention has removed it.")
    result: Payload | None = Field(
        description="What the last step returned, once the run has succeeded; null once retention has removed it."
    )
    partial: Payload | None = Field(
        description="Of a run that ended with its budget spent: what the newest committed step returned."
    )
    budgets: list[BudgetState]


class RunPage(BaseModel):
    runs: list[RunSummary]
    next: str | None = Field(description="Give it as `cursor` for the next page; null at the end.")


class Happening(BaseModel):
    """One thing that happened to a run. It refers to effects, waits and checkpoints by number and holds no payloads."""

    id: int
    at: datetime
    event: str
    step: str
    from_state: str
    to_state: str = Field(description="Empty where the state did not change.")
    actor: str
    reason: str
    fence: int = Field(description="Under which claim it was written; 0 if under none.")
    worker: UUID | None
    data: dict[str, Any] = Field(
        description="What looks like a secret is masked; errors and tracebacks are for tokens with `payloads:read`."
    )


class Timeline(BaseModel):
    happenings: list[Happening]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class Effect(BaseModel):
    """One thing a run did to the world, or was about to do."""

    id: int
    step: str
    tool: str
    safety: Literal["read", "local", "keyed", "outbox", "legacy"]
    scope: Literal["run", "tenant"]
    system: str = Field(description="Whose queue a `legacy` call stands in.")
    resource: str
    key: str = Field(description="The author's own, where one resource is acted on more than once.")
    downstream_key: str = Field(description="What the other side may deduplicate on.")
    request_hash: str
    state: str = Field(description="`in_doubt`: it may or may not have happened, and a person settles it.")
    sent: int = Field(description="How often it was, or may have been, sent.")
    reused: int = Field(description="How often the record answered instead of the other side.")
    intended_at: datetime
    completed_at: datetime | None
    downstream_id: str
    error: RunError | None


class EffectPage(BaseModel):
    effects: list[Effect]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class File(BaseModel):
    """A file of a run."""

    id: int
    name: str
    data_class: str
    step: str
    content_type: str
    bytes: int
    sha256: str
    readable_by: str = Field(description="The scope that reading it needs.")
    readable: bool = Field(description="Whether this token has it.")
    at: datetime


class FileList(BaseModel):
    files: list[File]
    more: bool = Field(description="Whether there are older ones that are not listed.")


class Prompt(BaseModel):
    """A raw prompt that a run kept; its text is read apart."""

    id: int
    name: str
    key: str
    step: str
    bytes: int
    at: datetime


class PromptList(BaseModel):
    prompts: list[Prompt]
    more: bool = Field(description="Whether there are older ones that are not listed.")


class PromptText(BaseModel):
    id: int
    text: str = Field(description="The text, or the JSON text of the messages, with what looks like a secret masked.")


class FileLink(BaseModel):
    url: str = Field(description="Whoever holds it may read the file, without a token.")
    expires_at: datetime


class EventReceived(BaseModel):
    id: int
    created: bool = Field(description="False when the same event had arrived before.")
    answered: int = Field(description="Waits it answered so far; 0 means it is kept for one that comes.")


class VerbDone(BaseModel):
    run: UUID
    state: State = Field(description="The run's state after it.")
    settled: bool = Field(description="False while the run's holder still has to act on it.")
    detail: str


class Problem(BaseModel):
    """RFC 9457. Compare `code`; `detail` is for people."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str
    detail: str
    path: str | None = Field(None, description="Pointer to the offending value, or the name of the parameter.")
