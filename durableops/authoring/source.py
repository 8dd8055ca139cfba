"""Where in the author's files something was declared, and its syntax tree."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SourceRef:
    """A file and a line, printed as `file:line` so that editors can jump to it."""

    file: str
    """Path of the file, as Python knows it."""

    line: int
    """Line number, from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_of_function(function: Callable[..., Any]) -> SourceRef:
    """Where a function was written; its first decorator's line if it has one."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return source_of_caller()
    return SourceRef(file=code.co_filename, line=code.co_firstlineno)


def source_of_caller() -> SourceRef:
    """Where the author's code called into this package."""
    frame = author_frame()
    return SourceRef(file=frame.f_code.co_filename, line=frame.f_lineno)


def author_frame() -> FrameType:
    """The innermost frame that is not part of this package."""
    package = __name__.rpartition(".")[0]
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        # Generated code, such as a dataclass's __init__, has the globals of its module too.
        if module != package and not module.startswith(f"{package}."):
            break
        frame = frame.f_back
    return frame


def source_of_class(cls: type) -> SourceRef:
    """Where a class was written; its module's first line if its source cannot be read."""
    try:
        file = inspect.getsourcefile(cls) or "?"
        line = inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        module = sys.modules.get(cls.__module__)
        return SourceRef(file=getattr(module, "__file__", None) or cls.__module__, line=1)
    return SourceRef(file=file, line=line)


def source_of_field(cls: type, name: str) -> SourceRef:
    """Where a class annotates a field, else where the class that has it begins."""
    owner = next((base for base in cls.__mro__ if name in inspect.get_annotations(base)), cls)
    start = source_of_class(owner)
    try:
        lines = inspect.getsourcelines(owner)[0]
    except (OSError, TypeError):
        return start
    pattern = re.compile(rf"\s*{re.escape(name)}\s*:")
    for offset, text in enumerate(lines):
        if pattern.match(text):
            return SourceRef(file=start.file, line=start.line + offset)
    return start


def parsed(thing: type | Callable[..., Any]) -> ast.Module | None:
    """The syntax tree of a function or class with line numbers of its file; None if it has no source."""
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    if code is not None and code.co_filename == "<string>":
        return None  # made by exec: that name is shared by all such code, and from Python 3.13 by `python -c` too
    try:
        lines, first = inspect.getsourcelines(thing)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):  # no file, or a lambda in the middle of an expression
        return None
    return ast.increment_lineno(tree, max(first, 1) - 1)


def resolved(expression: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or an attribute of a module, stands for among `names`; None for everything else."""
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        owner = resolved(expression.value, names)
        return vars(owner).get(expression.attr) if isinstance(owner, ModuleType) else None
    return None
