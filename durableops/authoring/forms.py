"""What a person fills in: flat, typed fields declared as a pydantic model or as names and types.

A form is described as plain JSON, stored with what it is asked for, and read by that description: the process that
takes the answer needs none of the author's code. What a description cannot say is refused where it is declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticUserError, create_model

from durableops.errors import Fatal, InputRefused

type Form = type[BaseModel] | Mapping[str, Any]
"""A pydantic model, or names with a type each, or with a type and a default."""

MOST_FIELDS = 40
LONGEST_TEXT = 10_000
DIGITS = 40
"""Characters of a number, at most."""
LARGEST_NUMBER = 2**53
"""Beyond it, not every reader of JSON keeps a whole number as it is."""
_TOLD = {"title", "type", "description", "default", "enum", "const", "format", "minimum", "maximum", "exclusiveMinimum",
         "exclusiveMaximum", "minLength", "maxLength", "pattern"}  # fmt: skip
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_FORMATS = {"": "text", "date": "date", "date-time": "datetime"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One thing that is asked for."""

    name: str
    kind: str
    """text, integer, number, decimal, boolean, date, datetime or choice."""
    label: str
    hint: str = ""
    required: bool = True
    nullable: bool = False
    default: Any = None
    options: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    more_than: float | None = None
    less_than: float | None = None
    shortest: int = 0
    longest: int = LONGEST_TEXT
    pattern: str = ""


def describe(form: Form | None) -> list[dict[str, Any]]:
    """The fields of a form as JSON. Raises Fatal for one that a page could not ask for."""
    if form is None:
        return []
    model = model_of(form)
    schema = model.model_json_schema()
    marks = model.__pydantic_decorators__
    if marks.field_validators or marks.model_validators or marks.root_validators or marks.validators:
        raise Fatal(
            f"form {model.__name__} has validators of its own. What is typed is checked where the author's code may "
            "not be: say it with limits (ge, le, min_length, max_length, pattern), and check the rest in the step."
        )
    required, properties = set(schema.get("required", ())), schema.get("properties", {})
    if len(properties) > MOST_FIELDS:
        raise Fatal(f"form {model.__name__} has {len(properties)} fields; at most {MOST_FIELDS} are asked for at once.")
    named = schema.get("$defs", {})
    return [asdict(_field(name, one, name in required, named)) for name, one in properties.items()]


def model_of(form: Form) -> type[BaseModel]:
    """The model of a form. Raises Fatal for what is none."""
    if isinstance(form, type) and issubclass(form, BaseModel):
        return form
    if not isinstance(form, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in form):
        raise Fatal(f"form is {form!r}; give a pydantic model, or names with their types.")
    fields: dict[str, Any] = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in form.items()}
    try:
        return create_model("Form", __config__=ConfigDict(extra="forbid"), **fields)
    except (TypeError, ValueError, NameError, PydanticUserError) as problem:
        raise Fatal(f"form {form!r} cannot be understood: {problem}") from None


def read(fields: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, checked against the fields' description. Raises InputRefused that names the field."""
    known = [field_of(one) for one in fields]
    if unknown := sorted(set(given) - {one.name for one in known}):
        names = ", ".join(one.name for one in known) or "nothing"
        raise InputRefused(f"{unknown[0][:80]!r} is not asked for; asked for is: {names}.", path=f"/{unknown[0][:80]}")
    found = {}
    for one in known:
        if one.name in given and not (given[one.name] is None and one.nullable):
            found[one.name] = _checked(one, given[one.name])
        elif one.name in given or (one.nullable and not one.required):
            found[one.name] = None if one.name in given else one.default
        elif one.required:
            raise InputRefused(f"{one.label} is missing.", path=f"/{one.name}")
        else:
            found[one.name] = one.default
    return found


def typed(fields: Sequence[Mapping[str, Any]], texts: Mapping[str, str], *, prefix: str = "in.") -> dict[str, Any]:
    """What was typed into a page as values; what stayed empty is left out. `read` checks it."""
    found: dict[str, Any] = {}
    for one in map(field_of, fields):
        text = texts.get(f"{prefix}{one.name}", "")
        if one.kind == "boolean":
            found[one.name] = text == "on"
        elif text.strip():
            found[one.name] = _number(one, text.strip()) if one.kind in ("integer", "number") else text
    return found


def field_of(described: Mapping[str, Any]) -> Field:
    return Field(**{**described, "options": tuple(described.get("options", ()))})


def _field(name: str, schema: Mapping[str, Any], required: bool, named: Mapping[str, Any]) -> Field:
    schema, nullable = _resolved(schema, named)
    kind = _kind(name, schema)
    text = kind == "text"
    return Field(
        name=name, kind=kind, label=str(schema.get("title", name)), hint=str(schema.get("description", "")),
        required=required, nullable=nullable, default=schema.get("default"),
        options=tuple(str(one) for one in _options(schema)),
        at_least=schema.get("minimum"), at_most=schema.get("maximum"), more_than=schema.get("exclusiveMinimum"),
        less_than=schema.get("exclusiveMaximum"), shortest=schema.get("minLength", 0),
        longest=min(schema.get("maxLength", LONGEST_TEXT), LONGEST_TEXT),
        pattern=schema.get("pattern", "") if text else "",
    )  # fmt: skip


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The description with what it refers to put in, and whether it may be nothing."""
    found, nullable = dict(schema), False
    if "anyOf" in found:
        kinds = [one for one in found["anyOf"] if one.get("type") != "null"]
        nullable = len(kinds) < len(found["anyOf"])
        found.pop("anyOf")
        if len(kinds) == 1:
            found = {**kinds[0], **found}
        elif {one.get("type") for one in kinds} == {"number", "string"}:
            limits = next(one for one in kinds if one["type"] == "number")
            found = {**limits, **found, "type": "decimal"}
        else:
            found["type"] = "several"
    if "$ref" in found:
        found = {**named[found.pop("$ref").removeprefix("#/$defs/")], **found}
    return found, nullable


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    if _options(schema):
        if all(isinstance(one, str) for one in _options(schema)):
            return "choice"
    elif schema.get("type") == "decimal" and not set(schema) - _TOLD:
        return "decimal"
    elif schema.get("type") in _KINDS and not set(schema) - _TOLD and schema.get("format", "") in _FORMATS:
        kind = _KINDS[str(schema["type"])]
        return _FORMATS[schema.get("format", "")] if kind == "text" else kind
    raise Fatal(
        f"field {name!r} of the form is nothing a page can ask for; give str, int, float, Decimal, bool, date, "
        "datetime, or a Literal or enum of texts."
    )


def _options(schema: Mapping[str, Any]) -> Sequence[Any]:
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def _checked(field: Field, value: Any) -> Any:
    wrong = _wrong(field, value)
    if wrong:
        raise InputRefused(f"{field.label} is {str(value)[:60]!r}; it wants {wrong}.", path=f"/{field.name}")
    return str(value) if field.kind == "decimal" else value


def _wrong(field: Field, value: Any) -> str:
    """What it wants instead; empty when it fits."""
    match field.kind:
        case "boolean":
            return "" if isinstance(value, bool) else "yes or no"
        case "choice":
            return "" if value in field.options else f"one of: {', '.join(field.options)}"
        case "integer" | "number" | "decimal":
            return _wrong_number(field, value)
        case "date" | "datetime":
            return _wrong_instant(field, value)
    if not isinstance(value, str) or "\0" in value:
        return "a text"
    if not field.shortest <= len(value) <= field.longest:
        return f"{field.shortest} to {field.longest:,} characters"
    fits = not field.pattern or re.search(field.pattern, value) is not None
    return "" if fits else f"a text like {field.pattern}"


def _wrong_number(field: Field, value: Any) -> str:
    whole = field.kind == "integer"
    wanted = "a whole number" if whole else "a number"
    kinds: tuple[type, ...] = (int,) if whole else (int, float, str) if field.kind == "decimal" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or len(str(value)) > DIGITS:
        return wanted
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return wanted
    if not number.is_finite() or (whole and abs(number) > LARGEST_NUMBER):
        return wanted
    limits = (
        (field.at_least, number.__ge__, "at least"), (field.at_most, number.__le__, "at most"),
        (field.more_than, number.__gt__, "more than"), (field.less_than, number.__lt__, "less than"),
    )  # fmt: skip
    for limit, fits, words in limits:
        if limit is not None and not fits(Decimal(str(limit))):
            return f"{wanted}, {words} {limit}"
    return ""


def _wrong_instant(field: Field, value: Any) -> str:
    wanted = "a date as 2026-12-31" if field.kind == "date" else "a date and time as 2026-12-31T18:00"
    try:
        (date if field.kind == "date" else datetime).fromisoformat(value)
    except (TypeError, ValueError):
        return wanted
    return ""


def _number(field: Field, text: str) -> Any:
    """A number as it was typed; what is none stays text, and is refused as such."""
    try:
        return int(text) if field.kind == "integer" else float(text)
    except ValueError:
        return text
