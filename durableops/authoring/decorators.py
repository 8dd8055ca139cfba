"""`workflow`, `step`, `tool`, `migration`: turn what authors write into registered definitions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Unpack, overload

from durableops.authoring import registry
from durableops.authoring.calls import check_calls
from durableops.authoring.checks import (
    accepted_arguments,
    check_migration,
    check_step,
    check_tool,
    check_version,
    check_workflow,
    duplicate_step,
    require,
)
from durableops.authoring.definitions import (
    DEFAULT_MAX_RECOVERIES,
    DEFAULT_STEP_TIMEOUT_SECONDS,
    DEFAULT_TOOL_TIMEOUT_SECONDS,
    OUTBOX_RETRY,
    Isolation,
    Migrate,
    MigrationDefinition,
    Safety,
    Scope,
    StepDefinition,
    ToolDefinition,
    WorkflowDefinition,
)
from durableops.authoring.migrated import Migrated
from durableops.authoring.policies import Budget, OnBudget, OnDeadline, OnQueueWait, OnStepTimeout, Retry
from durableops.authoring.source import (
    SourceRef,
    author_frame,
    source_of_caller,
    source_of_function,
)
from durableops.authoring.state import State
from durableops.authoring.tool_options import ToolOptions
from durableops.authoring.undoing import check_compensation
from durableops.errors import DefinitionError

type _Function = Callable[..., Any]
type _Migration = Callable[..., dict[str, Any] | Migrated]


@overload
def step(function: _Function, /) -> StepDefinition: ...
@overload
def step(
    *,
    id: str | None = None,
    version: int = 1,
    timeout: float | None = DEFAULT_STEP_TIMEOUT_SECONDS,
    retry: Retry | None = None,
    on_timeout: OnStepTimeout = "retry",
    default: Any = None,
    isolation: Isolation | None = None,
    uses: str = "",
    tools: Sequence[ToolDefinition] = (),
) -> Callable[[_Function], StepDefinition]: ...
def step(
    function: _Function | None = None,
    /,
    *,
    id: str | None = None,  # noqa: A002 - the word authors use
    version: int = 1,
    timeout: float | None = DEFAULT_STEP_TIMEOUT_SECONDS,
    retry: Retry | None = None,
    on_timeout: OnStepTimeout = "retry",
    default: Any = None,
    isolation: Isolation | None = None,
    uses: str = "",
    tools: Sequence[ToolDefinition] = (),
) -> StepDefinition | Callable[[_Function], StepDefinition]:
    """Declare a step: a function of one argument, the `run`, inside a workflow's class.

    `id` is the stable name (by default the function's), `version` is raised when the step's
    meaning changes, `timeout` is in seconds (None: no limit) and `on_timeout` says what happens past
    it; "continue" goes on as if the step had returned `default`. `isolation="process"` keeps the
    step away from other runs. `uses="db-scan"` names a resource that all tenants share, whose policy
    may limit how many runs use it at once. `tools` names tools the code
    reaches in a way that cannot be read from it. Bare `@step` takes the defaults. Raises
    DefinitionError.
    """

    def declare(function: _Function) -> StepDefinition:
        definition = StepDefinition(
            id=id if id is not None else _name_of(function),
            function=function,
            source=source_of_function(function),
            version=version,
            timeout=timeout,
            retry=retry if retry is not None else Retry(),
            on_timeout=on_timeout,
            default=default,
            is_async=inspect.iscoroutinefunction(function),
            isolation=isolation,
            uses=uses,
            declared_tools=tuple(tools),
        )
        check_step(definition)
        _refuse_overwriting(definition)
        return definition

    return declare if function is None else declare(function)


def tool(
    *,
    safety: Safety,
    name: str | None = None,
    timeout: float = DEFAULT_TOOL_TIMEOUT_SECONDS,
    retry: Retry | None = None,
    key_window: timedelta | None = None,
    resource_id: str | None = None,
    resource: str | None = None,
    scope: Scope = "run",
    **more: Unpack[ToolOptions],
) -> Callable[[_Function], ToolDefinition]:
    """Declare a tool: a function of `call` and keyword arguments that acts on the world.

    `safety` is `read` (call again at will), `local` (our own database, commits together with
    its record), `keyed` (the other side deduplicates on `call.key`, for `key_window` if
    given), `legacy` (the other side deduplicates nothing: its calls go one at a time, and one
    whose outcome is unknown is never sent again by itself) or `outbox` (the call leaves a
    message that a relay delivers after the commit, at least once). `name` is the stable name,
    by default the function's. `timeout` is in seconds, for one call. `resource_id` names the
    field of the result that identifies what was made; `resource` names the argument that is
    the resource, so that callers need not pass it. `scope="tenant"` shares the slot among all
    runs of a tenant. `more` are the options of `ToolOptions`. Raises DefinitionError.
    """
    options: dict[str, Any] = {
        **more, "safety": safety, "timeout": timeout, "key_window": key_window, "resource_id": resource_id,
        "resource_from": resource, "scope": scope, "secret": tuple(more.get("secret", ())),
        "retry": retry if retry is not None else OUTBOX_RETRY if safety == "outbox" else Retry(),
    }  # fmt: skip
    return lambda function: _declared_tool(function, name, options)


def _declared_tool(function: _Function, name: str | None, options: dict[str, Any]) -> ToolDefinition:
    required, accepted = accepted_arguments(function)
    definition = ToolDefinition(
        name=name if name is not None else _name_of(function),
        function=function,
        source=source_of_function(function),
        is_async=inspect.iscoroutinefunction(function),
        required=required,
        accepted=accepted,
        **options,
    )
    check_tool(definition)
    check_compensation(definition)
    registry.current().add_tool(definition)
    return definition


def workflow(
    *,
    name: str,
    version: int,
    state: type[State],
    steps: Sequence[str] | None = None,
    deadline: timedelta | None = None,
    on_deadline: OnDeadline = "fail",
    queue_wait: timedelta | None = None,
    on_queue_wait: OnQueueWait = "fail",
    budget: Budget | None = None,
    on_budget: OnBudget = "exhaust",
    max_recoveries: int = DEFAULT_MAX_RECOVERIES,
    isolation: Isolation | None = None,
    migrate: Migrate = "if_clean",
) -> Callable[[type], WorkflowDefinition]:
    """Declare a workflow: a class whose steps run in the order in which they are written.

    `steps` gives another order, by id, and must name each step once. `deadline` counts from
    the start, waits included; `on_deadline` says what happens when it comes. `queue_wait` is how long
    a run may stand in the queue, with `on_queue_wait`. `max_recoveries` is how many lost workers a
    run survives before it is stopped. `isolation="process"` runs its steps in a process that holds one run at a
    time. The name now stands for the definition. Raises DefinitionError.
    """
    source = source_of_caller()

    def declare(cls: type) -> WorkflowDefinition:
        definition = WorkflowDefinition(
            name=name,
            version=version,
            state=state,
            steps=_in_order(_steps_of(cls, source), steps, name=name, source=source),
            source=source,
            cls=cls,
            deadline=deadline,
            on_deadline=on_deadline,
            queue_wait=queue_wait,
            on_queue_wait=on_queue_wait,
            budget=budget,
            on_budget=on_budget,
            max_recoveries=max_recoveries,
            isolation=isolation,
            migrate=migrate,
        )
        check_workflow(definition)
        # Tools that stand below the workflow are not known yet; the registry looks again.
        check_calls(definition)
        registry.current().add_workflow(definition)
        return definition

    return declare


def migration(
    workflow: WorkflowDefinition | type | str, *, from_version: int, to_version: int | None = None
) -> Callable[[_Migration], MigrationDefinition]:
    """Declare how runs of `from_version` go on in a later one: old state in, new state (or `Migrated`) out.

    `to_version` is by default that of the workflow; give the workflow's name and both versions for a step of a chain
    whose class is gone. A function of two arguments gets the `Position` too. It must be pure: it is run more than
    once, and its result is shown to a person before it is used. Raises DefinitionError.
    """

    def declare(function: _Migration) -> MigrationDefinition:
        source = source_of_function(function)
        what = f"migration {_name_of(function)!r}"
        # A type checker believes that a decorated class is still a class; hence the wide type.
        if not isinstance(workflow, WorkflowDefinition | str):
            raise DefinitionError(f"{source}: {what} is for {workflow!r}; give the class decorated with @workflow.")
        name = workflow if isinstance(workflow, str) else workflow.name
        declared = f" It is declared at {workflow.source}." if isinstance(workflow, WorkflowDefinition) else ""
        target = workflow.version if to_version is None and isinstance(workflow, WorkflowDefinition) else to_version
        check_version(from_version, what=f"{what} (from_version)", at=source)
        check_version(target, what=f"{what} (to_version)", at=source)
        assert target is not None
        require(
            from_version < target,
            source,
            f"{what} is from version {from_version}, but workflow {name!r} "
            f"is version {target}; migrations go forward.{declared}",
        )
        wants_position = check_migration(function, what=what, at=source)
        definition = MigrationDefinition(
            workflow=name, from_version=from_version, to_version=target, function=function, source=source,
            wants_position=wants_position,
        )  # fmt: skip
        registry.current().add_migration(definition)
        return definition

    return declare


def _name_of(function: object) -> str:
    return getattr(function, "__name__", repr(function))


def _refuse_overwriting(new: StepDefinition) -> None:
    """A second `def` of one name would silently replace the first, before anyone sees both."""
    old = author_frame().f_locals.get(_name_of(new.function))
    if isinstance(old, StepDefinition) and old.function.__qualname__ == new.function.__qualname__:
        raise duplicate_step(new.id, new=new.source, old=old.source)


def _steps_of(cls: type, source: SourceRef) -> list[StepDefinition]:
    for base in cls.__mro__[1:]:
        for inherited in vars(base).values():
            require(
                not isinstance(inherited, StepDefinition),
                source,
                f"{cls.__name__} inherits steps from {base.__name__}; write each workflow's steps in its own class.",
            )
    return [value for value in vars(cls).values() if isinstance(value, StepDefinition)]


def _in_order(
    found: list[StepDefinition], order: Sequence[str] | None, *, name: str, source: SourceRef
) -> tuple[StepDefinition, ...]:
    if order is None:
        return tuple(found)
    by_id = {each.id: each for each in found}
    for step_id in order:
        require(
            step_id in by_id,
            source,
            f"workflow {name!r} orders an unknown step {step_id!r}; it has: {', '.join(by_id)}.",
        )
    require(
        sorted(order) == sorted(by_id),
        source,
        f"workflow {name!r} orders {list(order)!r}; name each of its steps exactly once: "
        + ", ".join(f"{each.id} ({each.source})" for each in found),
    )
    return tuple(by_id[step_id] for step_id in order)
