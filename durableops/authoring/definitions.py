"""What a declaration became: frozen values the engine reads. Decorators make them, checks vet them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from durableops.authoring.awaiting import awaited_by
from durableops.authoring.migrated import Migrated, Position
from durableops.authoring.plan import describe_plan, fingerprint, hash_of
from durableops.authoring.policies import Budget, OnBudget, OnCallTimeout, OnDeadline, OnQueueWait, OnStepTimeout, Retry
from durableops.authoring.references import referred_objects, with_helpers
from durableops.authoring.schema import describe_state
from durableops.authoring.source import SourceRef
from durableops.authoring.state import State
from durableops.authoring.undoing import DoneEffect
from durableops.errors import DefinitionError

DEFAULT_STEP_TIMEOUT_SECONDS = 3600.0
DEFAULT_TOOL_TIMEOUT_SECONDS = 30.0
DEFAULT_MAX_RECOVERIES = 5
OUTBOX_RETRY = Retry(max_attempts=12, first_delay=1.0, factor=3.0, max_delay=6 * 3600.0)
"""Of `outbox` tools that name none: half a day. Nobody waits for them, and a destination may be away for long."""

Safety = Literal["read", "local", "keyed", "outbox", "legacy"]
Scope = Literal["run", "tenant"]
OnPoison = Literal["hold", "skip"]
Isolation = Literal["process"]
Migrate = Literal["automatic", "if_clean", "reviewed"]
LargeResult = Literal["refuse", "artifact"]

# eq=False: definitions are compared and hashed by identity; one declaration is one definition.


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolDefinition:
    """One thing runs may do to the world. Still callable, so that it can be tested alone."""

    name: str
    """Unique in the process; part of every slot, so it survives renames of the function."""

    function: Callable[..., Any]
    """Takes the `call` first, then keyword arguments: the request."""

    safety: Safety
    """What may be done when a crash leaves the outcome unknown."""

    source: SourceRef
    """Where the author declared it."""

    timeout: float = DEFAULT_TOOL_TIMEOUT_SECONDS
    """Seconds one call may take."""

    retry: Retry = field(default_factory=Retry)
    """When a failed call is tried again."""

    key_window: timedelta | None = None
    """How long the other side remembers our key; None is as long as the run lives."""

    resource_id: str | None = None
    """Name of the result's field that is the other side's id of what was made."""

    resource_from: str | None = None
    """Argument that is the resource, where the caller does not pass `resource=`."""

    scope: Scope = "run"
    """Whether the slot belongs to one run or is shared by all runs of the tenant."""

    destination: str = ""
    """For `outbox`: where its messages go, as lanes and back-off see it; empty is the tool's name."""

    on_poison: OnPoison = "hold"
    """For `outbox`: whether a message that cannot be delivered keeps those behind it waiting for a person."""

    deliver_within: timedelta | None = None
    """For `outbox`: how long after its commit a message may still be sent; None is for ever."""

    event_type: str = ""
    """For webhooks: the event that endpoints subscribe to. A relay sends it to each of them; no function is called."""
    secret: tuple[str, ...] = ()
    """Arguments and fields of the result that are secret: masked in summaries, encrypted where results are stored."""

    large_result: LargeResult = "refuse"
    """Whether a result over the payload limit fails the call or is kept as a file."""

    system: str = ""
    """For `legacy`: the system whose queue its calls stand in, over all tenants; empty is the tool's name."""

    probe: Callable[..., Any] | None = None
    """Asks the other side whether a call happened: takes the call and the request, answers with a ProbeAnswer."""

    remind_after: timedelta | None = None
    """How long a call may be in doubt before somebody is reminded; None is the setting."""

    escalate_after: timedelta | None = None
    """How long a call may be in doubt before it is escalated; None is the setting."""

    on_timeout: OnCallTimeout = "retry"
    """What becomes of a call that gets no answer in time."""

    default: Any = None
    """The answer of a `read` call that timed out, with on_timeout="continue"."""

    is_async: bool = False
    """Whether the function is a coroutine function."""

    required: frozenset[str] = frozenset()
    """Arguments every request must have."""

    accepted: frozenset[str] | None = None
    """Arguments a request may have; None is any."""

    compensate: ToolDefinition | None = None
    """The tool that undoes it."""

    undo_request: Callable[[DoneEffect], Mapping[str, Any]] | None = None
    """Makes that tool's request of the effect; None gives it the effect's `downstream_id` and `result`."""

    instructions: str = ""
    """How a person undoes it, or what they should know when the tool could not."""

    four_eyes: bool = False
    """Whether a second person has to agree before it counts as undone."""

    @property
    def can_be_undone(self) -> bool:
        """Whether the author said how."""
        return self.compensate is not None or bool(self.instructions)

    @property
    def queue(self) -> str:
        """Name of the system whose controlled queue its calls stand in; "" for every class but `legacy`."""
        return (self.system or self.name) if self.safety == "legacy" else ""

    def __call__(self, call: Any, **request: Any) -> Any:
        return self.function(call, **request)

    def resource_for(self, request: Mapping[str, Any], *, resource: str = "") -> str:
        """The business thing this call acts on; "" is only possible for a `read` tool.

        What the caller passed wins over the argument named by `resource_from`. Raises
        DefinitionError if a tool that is not `read` would have none.
        """
        if resource:
            return resource
        named = request.get(self.resource_from) if self.resource_from else None
        if isinstance(named, str | int) and not isinstance(named, bool) and named != "":
            return str(named)
        if self.safety == "read":
            return ""
        wanted = f"a text or whole number as {self.resource_from!r}, or " * bool(self.resource_from)
        raise DefinitionError(
            f"a call of tool {self.name!r} ({self.source}) names no resource; its class "
            f"{self.safety!r} wants {wanted}resource=... at the call: the thing acted on."
        )

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Raise DefinitionError if the function could not be called with this request."""
        missing = self.required - request.keys()
        unknown = frozenset() if self.accepted is None else request.keys() - self.accepted
        for problem, names in (("lacks", missing), ("has unknown", unknown)):
            if names:
                raise DefinitionError(
                    f"a call of tool {self.name!r} {problem} {', '.join(sorted(names))}; "
                    f"compare the function's arguments at {self.source}."
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class StepDefinition:
    """The unit that is committed: once committed, its function never runs again for that run."""

    id: str
    """Stable name of the step within its workflow; survives renames of the function."""

    function: Callable[..., Any]
    """Takes exactly one argument, the `run`."""

    source: SourceRef
    """Where the author declared it."""

    version: int = 1
    """Raised by the author when the step's meaning changes."""

    timeout: float | None = DEFAULT_STEP_TIMEOUT_SECONDS
    """Seconds one entry may take, waits not counted; None is no limit."""

    retry: Retry = field(default_factory=Retry)
    """When a failed step is entered again."""

    on_timeout: OnStepTimeout = "retry"
    """What happens when an entry takes longer than `timeout`."""

    default: Any = None
    """What the step is taken to have returned, with on_timeout="continue"."""

    is_async: bool = False
    """Whether the function is a coroutine function."""

    isolation: Isolation | None = None
    """`process` keeps the step away from other runs: it gets a worker process that holds one run at a time."""

    uses: str = ""
    """A resource that all tenants share and whose policy limits how many runs use it at once."""

    declared_tools: tuple[ToolDefinition, ...] = ()
    """Tools named by the author because the code reaches them in a way that cannot be read."""

    @property
    def longest(self) -> float | None:
        """Seconds after which an entry is ended; on_timeout="extend" lets it take once more as long."""
        if self.timeout is None:
            return None
        return self.timeout * 2 if self.on_timeout == "extend" else self.timeout

    def __call__(self, run: Any) -> Any:
        return self.function(run)

    @cached_property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """Tools the step may call, by name: the declared ones and those its code refers to.

        Read when first asked for, not when declared: a tool may stand below its workflow.
        """
        found = {tool.name: tool for tool in self.declared_tools}
        for function in with_helpers(self.function):
            for value in referred_objects(function):
                if isinstance(value, ToolDefinition):
                    found.setdefault(value.name, value)
        return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkflowDefinition:
    """A named, versioned, ordered list of steps with the schema of the state between them."""

    name: str
    """Stable name; recorded with every run."""

    version: int
    """Raised by the author when old runs must not simply go on with the new code."""

    state: type[State]
    """The schema of the run's state and input."""

    steps: tuple[StepDefinition, ...]
    """In the order in which they run."""

    source: SourceRef
    """Where the author declared it."""

    cls: type
    """The class that was decorated."""

    deadline: timedelta | None = None
    """From start to end, waits included; None is no limit."""

    on_deadline: OnDeadline = "fail"
    """What happens when the deadline comes."""

    queue_wait: timedelta | None = None
    """How long a run may stand in the queue, each time it comes there; None is no limit."""

    on_queue_wait: OnQueueWait = "fail"
    """What happens when it has stood there as long."""

    budget: Budget | None = None
    """What one run may spend, with everything below it."""

    on_budget: OnBudget = "exhaust"
    """What happens when it is spent."""

    max_recoveries: int = DEFAULT_MAX_RECOVERIES
    """Lost workers after which a run stops instead of taking another one down."""

    isolation: Isolation | None = None
    """The same for every step of the workflow."""

    migrate: Migrate = "if_clean"
    """When runs of older versions are migrated to this one without a person."""

    @property
    def schema_version(self) -> int:
        """The version of the state's schema."""
        return self.state.schema_version

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {step.id: position for position, step in enumerate(self.steps)}

    def index(self, step_id: str) -> int:
        """Position of a step, from 0. Raises KeyError for an id this plan does not have."""
        return self._positions[step_id]

    def step(self, step_id: str) -> StepDefinition:
        """The step with this id. Raises KeyError for an id this plan does not have."""
        return self.steps[self._positions[step_id]]

    def next_step(self, step_id: str) -> StepDefinition | None:
        """The step after this one; None after the last. Raises KeyError as `step` does."""
        following = self._positions[step_id] + 1
        return self.steps[following] if following < len(self.steps) else None

    def is_isolated(self, step_id: str) -> bool:
        """Whether this step wants a process of its own. Raises KeyError for an id this plan does not have."""
        return (self.step(step_id).isolation or self.isolation) == "process"

    @property
    def asks_for_isolation(self) -> bool:
        """Whether any step does."""
        return any(self.is_isolated(step.id) for step in self.steps)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What gives the plan its meaning, as JSON."""
        return describe_plan(self.steps)

    @cached_property
    def plan_hash(self) -> str:
        """Hash of the plan: ids, order, versions and the tools' safety, never source text."""
        return hash_of(self.plan)

    @cached_property
    def schema_hash(self) -> str:
        """Hash of the state's fields and their types, never of names of classes or texts."""
        return hash_of(self.schema)

    @cached_property
    def schema(self) -> Any:
        """The state's fields and their types, as JSON."""
        return describe_state(self.state)

    @cached_property
    def waits(self) -> dict[str, Any]:
        """For each step, the waits that can be read from its code, as JSON; no part of the meaning."""
        return {step.id: awaited_by(step.function).as_json() for step in self.steps}

    @cached_property
    def waits_hash(self) -> str:
        """Hash of the waits."""
        return hash_of(self.waits)

    @cached_property
    def source_fingerprint(self) -> str:
        """Hash of what the code says, helpers in the same module included; decides nothing.

        It tells people that code was changed under a version that was not.
        """
        helpers = [function for step in self.steps for function in with_helpers(step.function)]
        return fingerprint([self.state, *dict.fromkeys(helpers)])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what is allowed but probably not meant."""
        return tuple(
            f"step {step.id!r} of workflow {self.name!r} ({step.source}) may need "
            f"{need:g} s for its {step.retry.max_attempts} attempts, but the run's deadline is "
            f"{self.deadline.total_seconds():g} s: later attempts may never happen."
            for step in self.steps
            if self.deadline is not None and (need := _worst_case_seconds(step)) > self.deadline.total_seconds()
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class MigrationDefinition:
    """A pure function from an older version's state to this version's."""

    workflow: str
    """Name of the workflow."""

    from_version: int
    """The version whose runs this function understands."""

    to_version: int
    """The version it makes of them."""

    function: Callable[..., dict[str, Any] | Migrated]
    """Old state in (and, if it takes two arguments, the position), new state or a Migrated out, in plain JSON."""

    source: SourceRef
    """Where the author declared it."""

    wants_position: bool = False
    """Whether the function takes the position too."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what the function says: provenance, no rule."""
        return fingerprint([self.function])

    def __call__(self, old: dict[str, Any], at: Position | None = None) -> dict[str, Any] | Migrated:
        return self.function(old, at) if self.wants_position else self.function(old)


def _worst_case_seconds(step: StepDefinition) -> float:
    """All attempts at full length; 0 where the author gave no timeout of their own."""
    if step.timeout is None or step.timeout == DEFAULT_STEP_TIMEOUT_SECONDS:
        return 0.0
    if step.on_timeout != "retry":
        return step.longest or 0.0
    pauses = sum(
        min(step.retry.max_delay, step.retry.first_delay * step.retry.factor**n)
        for n in range(min(step.retry.max_attempts - 1, 64))
    )
    return step.timeout * step.retry.max_attempts + pauses
