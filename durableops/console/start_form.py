"""A form made of a workflow's input schema, and the document made of what was typed. Starting is the engine's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durableops.authoring.definitions import WorkflowDefinition
from durableops.errors import InputRefused

_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of the input, as the form asks for it."""

    name: str
    kind: str
    """text, integer, number, boolean, or json for everything nested."""
    required: bool
    value: str
    """What stands in the field: what was typed, else the default."""
    hint: str

    @property
    def input_name(self) -> str:
        # Apart from the form's own names: a workflow may call its field "reason" or "csrfmiddlewaretoken".
        return f"in.{self.name}"


def fields_of(definition: WorkflowDefinition, typed: Mapping[str, str] | None = None) -> list[Field]:
    """The fields of a workflow's state; those with a default may be left as they are."""
    schema = definition.state.model_json_schema()
    required = set(schema.get("required", []))
    return [
        _field(name, one, required=name in required, typed=typed) for name, one in schema.get("properties", {}).items()
    ]


def _field(name: str, schema: Mapping[str, Any], *, required: bool, typed: Mapping[str, str] | None) -> Field:
    kind = _KINDS.get(str(schema.get("type")), "json")
    default = schema.get("default")
    shown = "" if default is None else default if isinstance(default, str) and kind == "text" else json.dumps(default)
    if typed is not None:
        shown = typed.get(f"in.{name}", "")
    limits = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "at most, in characters,"))
        if key in schema
    ]
    hint = ", ".join([str(schema.get("description", ""))] * bool(schema.get("description")) + limits)
    return Field(name=name, kind=kind, required=required, value=shown, hint=hint)


def document_of(definition: WorkflowDefinition, typed: Mapping[str, str]) -> dict[str, Any]:
    """The input as JSON values. Raises InputRefused that names the field; the engine checks the rest."""
    found: dict[str, Any] = {}
    for one in fields_of(definition):
        text = typed.get(one.input_name, "")
        if one.kind == "boolean":
            found[one.name] = text == "on"
        elif text != "" or (one.kind == "text" and one.required):
            found[one.name] = text if one.kind == "text" else _parsed(one, text)
    return found


def _parsed(field: Field, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        wanted = {"integer": "a whole number", "number": "a number"}.get(field.kind, "JSON")
        raise InputRefused(f"{field.name} is {text[:60]!r}; it wants {wanted}.", path=f"/{field.name}") from None
