"""What changed between the schemas of two states: fields added, removed, of another type. By path, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from durableops.checkpoints.difference import Difference

KINDS = frozenset({"schema_version", "schema", "field_added", "field_removed", "field_type"})
TYPE_CHARACTERS = 200


def between(recorded: Any, present: Any) -> list[Difference]:
    """The differences by path. Empty when one of the two was not recorded."""
    return list(_compared(recorded, present, "")) if recorded and present else []


def _compared(old: Any, new: Any, path: str) -> Iterator[Difference]:
    if old == new:
        return
    if _is_record(old) and _is_record(new):
        yield from _fields(old["fields"], new["fields"], path)
        return
    inner = _inside(old, new)
    if inner is not None:
        yield from _compared(*inner, f"{path}/*")
        return
    yield Difference(kind="field_type", subject=path or "/", recorded=tell(old), present=tell(new))


def _fields(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        here = f"{path}/{name}"
        if name not in new:
            yield Difference(kind="field_removed", subject=here, recorded=tell(old[name]), present="")
        elif name not in old:
            yield Difference(kind="field_added", subject=here, recorded="", present=tell(new[name]))
        else:
            yield from _compared(old[name], new[name], here)


def _is_record(described: Any) -> bool:
    return isinstance(described, dict) and set(described) == {"fields"}


def _inside(old: Any, new: Any) -> tuple[Any, Any] | None:
    """The types of the entries of two collections of one kind, if only these differ and only one of them."""
    if not (isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys() and len(old) == 1):
        return None
    [kind] = old
    was, now = old[kind], new[kind]
    if kind in ("union", "enum", "literal") or not isinstance(was, list) or len(was) != len(now):
        return None
    changed = [(a, b) for a, b in zip(was, now, strict=True) if a != b]
    return changed[0] if len(changed) == 1 else None


def tell(described: Any) -> str:
    """A described type, as an author would write it."""
    return _told(described)[:TYPE_CHARACTERS]


def _told(described: Any) -> str:
    if not isinstance(described, dict):
        return {"NoneType": "None", "any": "Any"}.get(str(described), str(described))
    [(kind, parts)] = described.items()
    if kind == "fields":
        return "{" + ", ".join(f"{name}: {_told(part)}" for name, part in parts.items()) + "}"
    if kind == "same_as":
        return "the same"
    if kind == "union":
        return " | ".join(map(_told, parts))
    return f"{kind}[{', '.join(map(_told, parts))}]"
