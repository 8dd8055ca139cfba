"""Which objects of its surroundings a function's code refers to, read from its bytecode.

Used to find the tools a step may call. Nothing is executed: a name that cannot be resolved yet
(defined further down the module) is left out, and found when asked again later.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

_LOAD_NAME = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"}
)
_LOAD_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOTHING = object()


def surroundings(function: FunctionType) -> dict[str, Any]:
    """The names a function sees outside itself: its globals, overlaid by its closure."""
    names = dict(function.__globals__)
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # the enclosing function has not assigned it yet
            names.pop(name, None)
    for name in function.__code__.co_cellvars:  # its own, read by functions nested in it
        names.pop(name, None)
    return names


def referred_objects(function: FunctionType) -> Iterator[Any]:
    """Objects named by the function's own code, nested functions and comprehensions included."""
    names = surroundings(function)
    for code in _codes(function.__code__):
        yield from _objects_in(code, names)


def with_helpers(function: Callable[..., Any]) -> list[FunctionType]:
    """The function and the plain functions of the same module that it reaches, each once."""
    start = inspect.unwrap(function)
    if not isinstance(start, FunctionType):
        return []
    found = [start]
    for current in found:  # grows while we read it: a breadth-first walk
        for value in referred_objects(current):
            if isinstance(value, FunctionType) and value.__module__ == start.__module__ and value not in found:
                found.append(value)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _objects_in(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    current: Any = _NOTHING
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOAD_NAME:
            current = names.get(str(instruction.argval), _NOTHING)
        elif instruction.opname in _LOAD_ATTRIBUTE and isinstance(current, ModuleType):
            # `desk.create_ticket` where desk is a module: look, but never run a property.
            current = vars(current).get(str(instruction.argval), _NOTHING)
        else:
            current = _NOTHING
        if current is not _NOTHING:
            yield current
