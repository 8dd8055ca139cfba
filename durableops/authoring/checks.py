"""What a declaration must satisfy, each rule with the sentence that says so; pure functions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from inspect import Parameter
from typing import Any, get_args

from durableops.authoring.definitions import (
    DEFAULT_STEP_TIMEOUT_SECONDS,
    Isolation,
    LargeResult,
    Migrate,
    OnPoison,
    Safety,
    Scope,
    StepDefinition,
    ToolDefinition,
    WorkflowDefinition,
)
from durableops.authoring.policies import (
    Budget,
    OnBudget,
    OnCallTimeout,
    OnDeadline,
    OnQueueWait,
    OnStepTimeout,
    Retry,
    is_number,
)
from durableops.authoring.schema import describe_state
from durableops.authoring.source import SourceRef, source_of_class
from durableops.authoring.state import State
from durableops.errors import DefinitionError

MAX_NAME_BYTES = 100
BUILT_IN = "durableops."
"""How the names of built-in workflows begin; nobody starts one by hand."""
_RESERVED = frozenset({"resource", "key"})
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def require(condition: bool, at: SourceRef, sentence: str) -> None:
    """Raise DefinitionError with the position in front, unless the condition holds."""
    if not condition:
        raise DefinitionError(f"{at}: {sentence}")


def check_name(name: object, *, what: str, at: SourceRef) -> None:
    """Names go into tables, URLs, logs and keys, so they are short and plain."""
    fits = isinstance(name, str) and name.isascii() and 0 < len(name) <= MAX_NAME_BYTES
    plain = fits and all(letter.isalnum() or letter in "_-." for letter in str(name))
    require(
        plain,
        at,
        f"{what} is named {name!r}; use 1 to {MAX_NAME_BYTES} ASCII letters, digits, '_', '-', '.'.",
    )


def check_version(version: object, *, what: str, at: SourceRef) -> None:
    """Versions are whole numbers from 1."""
    require(
        type(version) is int and version >= 1,
        at,
        f"{what} has version={version!r}; give a whole number from 1.",
    )


def check_seconds(seconds: object, *, what: str, at: SourceRef) -> None:
    """Timeouts are finite and above zero."""
    require(
        is_number(seconds) and seconds > 0,  # type: ignore[operator]
        at,
        f"{what} has timeout={seconds!r}; give seconds, as a finite number above 0.",
    )


def check_kind(value: object, kind: type, *, what: str, at: SourceRef) -> None:
    """An option holds what it is meant to hold, or None."""
    require(
        value is None or isinstance(value, kind),
        at,
        f"{what} is {value!r}; give a {kind.__name__}.",
    )


def check_function(function: object, *, what: str, takes: str, at: SourceRef) -> None:
    """A step or migration takes exactly one argument and is not a generator."""
    require(callable(function), at, f"{what} is {function!r}; decorate a function.")
    assert callable(function)
    parameters = list(inspect.signature(function).parameters.values())
    require(
        len(parameters) == 1 and parameters[0].kind in _POSITIONAL,
        at,
        f"{what} takes ({', '.join(map(str, parameters))}); it must take exactly one argument, {takes}.",
    )
    # Calling a generator function runs none of its body: it would commit having done nothing.
    generates = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    require(not generates, at, f"{what} has a `yield`, so calling it would run nothing; remove it.")


def check_migration(function: object, *, what: str, at: SourceRef) -> bool:
    """A migration takes the old state, or that and the position. Returns whether it takes the position."""
    parameters = list(inspect.signature(function).parameters.values()) if callable(function) else []
    if len(parameters) == 2 and all(parameter.kind in _POSITIONAL for parameter in parameters):
        return True
    check_function(function, what=what, takes="the old state", at=at)
    require(not inspect.iscoroutinefunction(function), at, f"{what} is async; a migration is a plain, pure function.")
    return False


def check_step(step: StepDefinition) -> None:
    """Everything about a step that can be known without its workflow."""
    what, at = f"step {step.id!r}", step.source
    check_name(step.id, what="step", at=at)
    check_version(step.version, what=what, at=at)
    check_function(step.function, what=what, takes="the run", at=at)
    if step.timeout is not None:
        check_seconds(step.timeout, what=what, at=at)
    check_kind(step.retry, Retry, what=f"retry of {what}", at=at)
    _check_choice(step.on_timeout, get_args(OnStepTimeout), what=f"on_timeout of {what}", at=at)
    _check_default(step.on_timeout, step.default, what=what, at=at)
    require(
        step.on_timeout == "retry" or step.timeout is not None,
        at,
        f"{what} has on_timeout={step.on_timeout!r} and no timeout that could come; give it one.",
    )
    _check_isolation(step.isolation, what=what, at=at)
    if step.uses != "":
        check_name(step.uses, what=f"the resource that {what} uses", at=at)
    for tool in step.declared_tools:
        check_kind(tool, ToolDefinition, what=f"one of the tools of {what}", at=at)


def _check_default(on_timeout: str, default: object, *, what: str, at: SourceRef) -> None:
    """A value to go on with is JSON, and is given only where something goes on with it."""
    require(
        default is None or on_timeout == "continue",
        at,
        f"{what} has a default that nothing goes on with; say on_timeout='continue', or leave it out.",
    )
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{at}: default of {what} is not JSON: {error}.") from None


def _check_isolation(isolation: object, *, what: str, at: SourceRef) -> None:
    if isolation is not None:
        _check_choice(isolation, get_args(Isolation), what=f"isolation of {what}", at=at)


def check_tool(tool: ToolDefinition) -> None:
    """Everything about a tool's declaration."""
    what, at = f"tool {tool.name!r}", tool.source
    check_name(tool.name, what="tool", at=at)
    _check_choice(tool.safety, get_args(Safety), what=f"safety of {what}", at=at)
    _check_choice(tool.scope, get_args(Scope), what=f"scope of {what}", at=at)
    require(
        all(isinstance(name, str) for name in tool.secret),
        at,
        f"{what} has secret={tool.secret!r}; give names of arguments or of fields of the result.",
    )
    _check_choice(tool.large_result, get_args(LargeResult), what=f"large_result of {what}", at=at)
    require(
        tool.large_result == "refuse" or tool.safety != "local",
        at,
        f"{what} has large_result='artifact', but a 'local' tool's result commits with its own change; "
        "return a reference instead.",
    )
    require(not tool.name.startswith("run."), at, f"{what} begins with 'run.', which names what runs do themselves.")
    check_seconds(tool.timeout, what=what, at=at)
    check_kind(tool.retry, Retry, what=f"retry of {what}", at=at)
    check_kind(tool.key_window, timedelta, what=f"key_window of {what}", at=at)
    require(
        tool.key_window is None or (tool.safety == "keyed" and tool.key_window > timedelta(0)),
        at,
        f"{what} has key_window={tool.key_window!r}; it belongs to safety='keyed' and is above 0.",
    )
    _check_call_timeout(tool)
    _check_outbox(tool)
    _check_doubt(tool)
    _check_arguments(tool)


def _check_call_timeout(tool: ToolDefinition) -> None:
    what, at = f"tool {tool.name!r}", tool.source
    _check_choice(tool.on_timeout, get_args(OnCallTimeout), what=f"on_timeout of {what}", at=at)
    _check_default(tool.on_timeout, tool.default, what=what, at=at)
    fitting = {"read": ("retry", "fail", "cancel", "continue", "ask"), "keyed": ("retry", "fail", "cancel", "ask")}
    require(
        tool.on_timeout in fitting.get(tool.safety, ("retry",)),
        at,
        f"{what} is {tool.safety!r} and has on_timeout={tool.on_timeout!r}; only 'read' and 'keyed' calls have a "
        "choice, and only a 'read' call may go on with a default, for nobody knows whether another one happened.",
    )


def _check_doubt(tool: ToolDefinition) -> None:
    """What only tools may say whose calls can be in doubt."""
    what, at = f"tool {tool.name!r}", tool.source
    require(
        not tool.system or tool.safety == "legacy",
        at,
        f"{what} is {tool.safety!r}; system={tool.system!r} belongs to safety='legacy'.",
    )
    if tool.system:
        check_name(tool.system, what=f"system of {what}", at=at)
    require(tool.probe is None or callable(tool.probe), at, f"probe of {what} is {tool.probe!r}; give a function.")
    for name in ("remind_after", "escalate_after"):
        value = getattr(tool, name)
        check_kind(value, timedelta, what=f"{name} of {what}", at=at)
        require(
            value is None or value > timedelta(0),
            at,
            f"{what} has {name}={value!r}; give a timedelta above 0, or None.",
        )
    said = tool.probe is not None or tool.remind_after is not None or tool.escalate_after is not None
    require(
        tool.safety in ("keyed", "legacy") or not said,
        at,
        f"{what} is {tool.safety!r} and never in doubt; probe, remind_after and escalate_after belong to 'keyed' and "
        "'legacy'.",
    )


def _check_outbox(tool: ToolDefinition) -> None:
    """What only an `outbox` tool may say."""
    what, at = f"tool {tool.name!r}", tool.source
    if tool.destination:
        check_name(tool.destination, what=f"destination of {what}", at=at)
    _check_choice(tool.on_poison, get_args(OnPoison), what=f"on_poison of {what}", at=at)
    check_kind(tool.deliver_within, timedelta, what=f"deliver_within of {what}", at=at)
    require(
        tool.deliver_within is None or tool.deliver_within > timedelta(0),
        at,
        f"{what} has deliver_within={tool.deliver_within!r}; give a timedelta above 0, or None.",
    )
    said = bool(tool.destination) or tool.on_poison != "hold" or tool.deliver_within is not None
    require(
        tool.safety == "outbox" or not said,
        at,
        f"{what} is {tool.safety!r}; destination, on_poison and deliver_within belong to safety='outbox'.",
    )


def _check_arguments(tool: ToolDefinition) -> None:
    what, at = f"tool {tool.name!r}", tool.source
    parameters = list(inspect.signature(tool.function).parameters.values())
    require(
        bool(parameters) and parameters[0].kind in _POSITIONAL,
        at,
        f"{what} takes no `call`; its function takes the call first, then keyword arguments.",
    )
    for parameter in parameters[1:]:
        require(
            parameter.kind in (*_KEYWORD, Parameter.VAR_KEYWORD),
            at,
            f"{what} takes {str(parameter)!r} by position; requests are keyword arguments.",
        )
        require(
            parameter.name not in _RESERVED,
            at,
            f"{what} has an argument {parameter.name!r}, which run.call keeps for itself; "
            "rename it, or read call.resource and call.key.",
        )
    if tool.resource_from is not None:
        require(
            tool.accepted is None or tool.resource_from in tool.accepted,
            at,
            f"{what} has resource={tool.resource_from!r}, but its function has no such argument.",
        )


def accepted_arguments(
    function: Callable[..., Any],
) -> tuple[frozenset[str], frozenset[str] | None]:
    """The keyword arguments a tool's function requires, and those it accepts (None: any)."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    named = [parameter for parameter in parameters if parameter.kind in _KEYWORD]
    required = frozenset(each.name for each in named if each.default is Parameter.empty)
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    return required, None if takes_any else frozenset(each.name for each in named)


def check_state(state: object, *, what: str, at: SourceRef) -> None:
    """The state is a State whose fields survive JSON."""
    fits = isinstance(state, type) and issubclass(state, State) and state is not State
    require(fits, at, f"state of {what} is {state!r}; give a subclass of durableops.State.{_where(state)}")
    assert isinstance(state, type)
    assert issubclass(state, State)
    try:
        describe_state(state)
    except DefinitionError as error:
        raise DefinitionError(f"{at}: {what} cannot keep its state. {error}") from None


def check_workflow(workflow: WorkflowDefinition) -> None:
    """Everything about a workflow that can be known when its class is declared."""
    what, at = f"workflow {workflow.name!r}", workflow.source
    check_name(workflow.name, what="workflow", at=at)
    require(
        not workflow.name.startswith(BUILT_IN) or workflow.cls.__module__.startswith(BUILT_IN),
        at,
        f"{what}: names that begin with {BUILT_IN!r} are those of the built-in workflows; choose another.",
    )
    check_version(workflow.version, what=what, at=at)
    check_state(workflow.state, what=what, at=at)
    require(bool(workflow.steps), at, f"{what} has no steps; decorate a function in it with @step.")
    _check_unique_steps(workflow)
    check_kind(workflow.budget, Budget, what=f"budget of {what}", at=at)
    recoveries = workflow.max_recoveries
    require(
        type(recoveries) is int and recoveries >= 0,
        at,
        f"{what} has max_recoveries={recoveries!r}; give a whole number from 0.",
    )
    _check_isolation(workflow.isolation, what=what, at=at)
    _check_choice(workflow.migrate, get_args(Migrate), what=f"migrate of {what}", at=at)
    _check_deadline(workflow)


def _check_unique_steps(workflow: WorkflowDefinition) -> None:
    seen: dict[str, StepDefinition] = {}
    for step in workflow.steps:
        first = seen.setdefault(step.id, step)
        if first is not step:
            raise duplicate_step(step.id, new=step.source, old=first.source)


def duplicate_step(step_id: str, *, new: SourceRef, old: SourceRef) -> DefinitionError:
    """Two steps of one workflow have one id."""
    return DefinitionError(
        f"{new}: step {step_id!r} is declared twice in one workflow; the other is at {old}. "
        "Rename one, or give it an id of its own: @step(id=...)."
    )


def _check_deadline(workflow: WorkflowDefinition) -> None:
    deadline, what = workflow.deadline, f"workflow {workflow.name!r}"
    _check_choice(workflow.on_budget, get_args(OnBudget), what=f"on_budget of {what}", at=workflow.source)
    require(
        workflow.on_budget == "exhaust" or workflow.budget is not None,
        workflow.source,
        f"{what} has on_budget={workflow.on_budget!r} and no budget that could be spent; give it one.",
    )
    for clock, policy, limit, known in (
        ("deadline", workflow.on_deadline, deadline, get_args(OnDeadline)),
        ("queue_wait", workflow.on_queue_wait, workflow.queue_wait, get_args(OnQueueWait)),
    ):
        _check_choice(policy, known, what=f"on_{clock} of {what}", at=workflow.source)
        require(
            policy == "fail" or limit is not None,
            workflow.source,
            f"{what} has on_{clock}={policy!r} and no {clock} that could come; give it one.",
        )
    check_kind(workflow.queue_wait, timedelta, what=f"queue_wait of {what}", at=workflow.source)
    require(
        workflow.queue_wait is None or workflow.queue_wait > timedelta(0),
        workflow.source,
        f"{what} has queue_wait={workflow.queue_wait!r}; give a timedelta above 0, or None.",
    )
    check_kind(deadline, timedelta, what=f"deadline of {what}", at=workflow.source)
    if deadline is None:
        return
    require(
        deadline > timedelta(0),
        workflow.source,
        f"{what} has deadline={deadline!r}; give a timedelta above 0, or None.",
    )
    for step in workflow.steps:
        if step.timeout is None or step.timeout == DEFAULT_STEP_TIMEOUT_SECONDS:
            continue
        require(
            step.timeout <= deadline.total_seconds(),
            workflow.source,
            f"{what} has a deadline of {deadline.total_seconds():g} s, but one attempt of step "
            f"{step.id!r} ({step.source}) may take {step.timeout:g} s. "
            "Raise the deadline or lower the step's timeout.",
        )


def _check_choice(value: object, choices: Iterable[str], *, what: str, at: SourceRef) -> None:
    known = tuple(choices)
    require(value in known, at, f"{what} is {value!r}; choose one of {', '.join(known)}.")


def _where(thing: object) -> str:
    return f" It is declared at {source_of_class(thing)}." if isinstance(thing, type) else ""
