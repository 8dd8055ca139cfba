"""What changed between two plans: steps added, removed, renamed, moved; their versions; their tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from durableops.checkpoints.difference import Difference, DifferenceKind

type Step = Mapping[str, Any]


def between(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> list[Difference]:
    """The differences by subject. Empty when the plans mean the same, or are described in different formats."""
    if recorded.get("format") != present.get("format"):
        return []
    old, new = _steps(recorded), _steps(present)
    renamed = _renamed(old, new)
    found = [Difference(kind="step_renamed", subject=now, recorded=was, present=now) for was, now in renamed.items()]
    found += _membership(old, new, renamed)
    found += _order([renamed.get(each, each) for each in old], list(new))
    for was, step in old.items():
        now = new.get(renamed.get(was, was))
        if now is not None:
            found += _changes(str(now["id"]), step, now)
    return sorted(found, key=lambda each: (each.subject, each.kind))


def _steps(plan: Mapping[str, Any]) -> dict[str, Step]:
    return {str(step["id"]): step for step in plan.get("steps", ())}


def _renamed(old: Mapping[str, Step], new: Mapping[str, Step]) -> dict[str, str]:
    """Steps that stand between the same neighbours with the same version and tools, under another id."""
    was, now = list(old), list(new)
    found: dict[str, str] = {}
    for change, a, b, c, d in SequenceMatcher(a=was, b=now, autojunk=False).get_opcodes():
        if change == "replace" and b - a == d - c:
            pairs = zip(was[a:b], now[c:d], strict=True)
            found |= {
                before: after
                for before, after in pairs
                if before not in new and after not in old and _essence(old[before]) == _essence(new[after])
            }
    return found


def _essence(step: Step) -> tuple[Any, dict[str, str]]:
    return step.get("version"), _safeties(step)


def _membership(old: Mapping[str, Step], new: Mapping[str, Step], renamed: Mapping[str, str]) -> list[Difference]:
    gone = [each for each in old if each not in new and each not in renamed]
    come = [each for each in new if each not in old and each not in renamed.values()]
    return [
        *(Difference(kind="step_removed", subject=each, recorded=each, present="") for each in gone),
        *(Difference(kind="step_added", subject=each, recorded="", present=each) for each in come),
    ]


def _order(old: Sequence[str], new: Sequence[str]) -> list[Difference]:
    was, now = [each for each in old if each in new], [each for each in new if each in old]
    return [
        Difference(kind="step_moved", subject=step, recorded=str(was.index(step) + 1), present=str(place + 1))
        for place, step in enumerate(now)
        if was[place] != step
    ]


def _changes(step_id: str, old: Step, new: Step) -> list[Difference]:
    found = []
    if old.get("version") != new.get("version"):
        was, now = str(old.get("version")), str(new.get("version"))
        found.append(Difference(kind="step_version", subject=step_id, recorded=was, present=now))
    tools, tools_now = _safeties(old), _safeties(new)
    for name in tools.keys() | tools_now.keys():
        was, now = tools.get(name, ""), tools_now.get(name, "")
        if was != now:
            kind: DifferenceKind = "tool_safety" if was and now else "tool_removed" if was else "tool_added"
            found.append(Difference(kind=kind, subject=f"{step_id}/{name}", recorded=was, present=now))
    return found


def _safeties(step: Step) -> dict[str, str]:
    return {str(tool["name"]): str(tool["safety"]) for tool in step.get("tools", ())}
