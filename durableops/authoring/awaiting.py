"""Finds, in the source of a step, the names it waits for; says whether it saw them all.

Followed: the `run` a step is given, handed on by name to plain functions of the same module. Where it goes anywhere
else (another module, an attribute, a closure), or a name is computed, the step may wait for more than is seen.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from durableops.authoring.references import surroundings
from durableops.authoring.source import parsed, resolved

KINDS = {"wait_for": "event", "approval": "approval", "wait_for_file": "file"}
"""What a person or another system has to bring: the waits whose names others know."""


@dataclass(kw_only=True)
class Awaited:
    """What a step waits for, as far as its code shows."""

    names: set[tuple[str, str]] = field(default_factory=set)
    """Kind and name."""
    complete: bool = True
    """Whether there can be no others."""

    def as_json(self) -> dict[str, Any]:
        return {"names": [list(one) for one in sorted(self.names)], "complete": self.complete}


def awaited_by(function: Callable[..., Any]) -> Awaited:
    """Read what a step's function waits for."""
    found = Awaited()
    start = inspect.unwrap(function)
    if not isinstance(start, FunctionType) or not start.__code__.co_varnames:
        found.complete = False
        return found
    todo = [(start, start.__code__.co_varnames[0])]
    for current, run in todo:  # grows while we read it: a breadth-first walk
        todo += [more for more in _read(current, run, found) if more not in todo]
    return found


def _read(function: FunctionType, run: str, found: Awaited) -> list[tuple[FunctionType, str]]:
    """Note the waits of one function; return where it hands its `run` on to."""
    tree = parsed(function)
    if tree is None:
        found.complete = False
        return []
    names = surroundings(function)
    followed: list[tuple[FunctionType, str]] = []
    understood: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is(node.value, run):
            understood.add(id(node.value))
        if isinstance(node, ast.Call):
            followed += _handed_on(node, run, names, function, understood)
            if isinstance(node.func, ast.Attribute) and _is(node.func.value, run) and node.func.attr in KINDS:
                _note(node, KINDS[node.func.attr], names, found)
    for node in ast.walk(tree):
        if _is(node, run) and id(node) not in understood:
            found.complete = False  # kept, returned, compared: who knows what becomes of it
    return followed


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _handed_on(
    call: ast.Call, run: str, names: Mapping[str, Any], function: FunctionType, understood: set[int]
) -> list[tuple[FunctionType, str]]:
    """The function and argument a call gives the `run` to, if both are known."""
    target = resolved(call.func, names)
    if not isinstance(target, FunctionType) or target.__module__ != function.__module__:
        return []
    if any(isinstance(value, ast.Starred) for value in call.args):
        return []
    arguments = target.__code__.co_varnames[: target.__code__.co_argcount + target.__code__.co_kwonlyargcount]
    given = [*zip(arguments, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
    found = []
    for name, value in given:
        if name in arguments and _is(value, run):
            understood.add(id(value))
            found.append((target, name))
    return found


def _note(call: ast.Call, kind: str, names: Mapping[str, Any], found: Awaited) -> None:
    given = call.args[0] if call.args else None
    value = given.value if isinstance(given, ast.Constant) else resolved(given, names) if given is not None else None
    if isinstance(value, str):
        found.names.add((kind, value))
    else:
        found.complete = False
