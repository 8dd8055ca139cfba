"""What gives a plan its meaning, as JSON and as a hash; source text has no part in it."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from durableops.authoring.source import parsed

if TYPE_CHECKING:
    from durableops.authoring.definitions import StepDefinition

PLAN_FORMAT = 1
"""Raised when this module describes the same plan differently; every plan hash then changes."""


def describe_plan(steps: Iterable[StepDefinition]) -> dict[str, Any]:
    """Steps in order with id and version, and the name and safety class of their tools.

    Names of functions, timeouts, retries and texts are left out on purpose: changing them
    must not strand the runs that are waiting.
    """
    return {
        "format": PLAN_FORMAT,
        "steps": [
            {
                "id": step.id,
                "version": step.version,
                "tools": [{"name": tool.name, "safety": tool.safety} for tool in step.tools],
            }
            for step in steps
        ],
    }


def hash_of(document: object) -> str:
    """SHA-256, in hex, of a JSON document with sorted keys and no spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(things: Iterable[type | Callable[..., Any]]) -> str:
    """A hash of what classes and functions say, comments, texts of documentation and layout left out.

    Information for people, never a rule: it tells that code changed under a version that did not.
    """
    digest = hashlib.sha256()
    for thing in things:
        tree = parsed(thing)
        # Without one it was typed at a prompt, or built by exec.
        name = getattr(thing, "__qualname__", repr(thing))
        text = name if tree is None else ast.dump(_without_documentation(tree))
        digest.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()


def _without_documentation(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        # A sentence below a field is documentation too.
        kept = [line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
        node.body = kept  # type: ignore[attr-defined]  # every node with a list as body can take another
    return tree
