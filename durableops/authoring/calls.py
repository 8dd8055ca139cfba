"""Finds, in the source of steps, calls that name no resource; what cannot be seen is left alone.

Seen: `run.call(tool, ...)`, `run.poll(tool, ...)` and `run.call_many(tool, [...])` whose items
are dictionary literals or `dict(...)`, in the step, in functions nested in it, and in helpers
of the same module. Everything else is refused when it runs, by `ToolDefinition.resource_for`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType

from durableops.authoring.definitions import StepDefinition, ToolDefinition, WorkflowDefinition
from durableops.authoring.references import surroundings, with_helpers
from durableops.authoring.source import SourceRef, parsed, resolved
from durableops.errors import DefinitionError

_METHODS = frozenset({"call", "poll", "call_many"})


def check_calls(workflow: WorkflowDefinition) -> None:
    """Raise DefinitionError for the first call that visibly names no resource."""
    for step in workflow.steps:
        for function in with_helpers(step.function):
            for line, tool in _calls_without_resource(function):
                raise _no_resource(workflow, step, tool, _at(function, line))


def _calls_without_resource(function: FunctionType) -> Iterator[tuple[int, ToolDefinition]]:
    tree = parsed(function)
    if tree is None:
        return
    names = surroundings(function)
    for local in function.__code__.co_varnames:  # a local name hides the module's
        names.pop(local, None)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in _METHODS or not node.args:
            continue
        tool = resolved(node.args[0], names)
        if not isinstance(tool, ToolDefinition) or tool.safety == "read" or tool.resource_from:
            continue
        if node.func.attr != "call_many":
            if _lacks_resource(node.keywords):
                yield node.lineno, tool
        elif (item := _item_without_resource(node)) is not None:
            yield item.lineno, tool


def _lacks_resource(keywords: list[ast.keyword]) -> bool:
    for keyword in keywords:
        if keyword.arg is None:  # **request: may well hold it
            return False
        if keyword.arg == "resource":
            return _is_empty(keyword.value)
    return True


def _item_without_resource(call: ast.Call) -> ast.expr | None:
    given = call.args[1:2] or [word.value for word in call.keywords if word.arg == "items"]
    items: list[ast.expr] = []
    for value in given:
        if isinstance(value, ast.List | ast.Tuple):
            items += value.elts
        elif isinstance(value, ast.ListComp | ast.GeneratorExp):
            items.append(value.elt)
    return next((item for item in items if _dictionary_lacks_resource(item)), None)


def _dictionary_lacks_resource(item: ast.expr) -> bool:
    if isinstance(item, ast.Dict):
        for key, value in zip(item.keys, item.values, strict=True):
            if not isinstance(key, ast.Constant):  # **spread, or a computed key
                return False
            if key.value == "resource":
                return _is_empty(value)
        return True
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id == "dict":
        return not item.args and _lacks_resource(item.keywords)
    return False


def _is_empty(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in ("", None)


def _at(function: FunctionType, line: int) -> SourceRef:
    return SourceRef(file=function.__code__.co_filename, line=line)


def _no_resource(
    workflow: WorkflowDefinition, step: StepDefinition, tool: ToolDefinition, at: SourceRef
) -> DefinitionError:
    return DefinitionError(
        f"{at}: step {step.id!r} of workflow {workflow.name!r} calls tool {tool.name!r} without "
        f"a resource, but its class is {tool.safety!r} (declared at {tool.source}). Pass "
        'resource=... at the call, or name the argument once with @tool(..., resource="...").'
    )
