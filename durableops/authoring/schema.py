"""Which types a state may hold, and a description of them that survives renames of classes."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import JsonValue

from durableops.authoring.source import source_of_class, source_of_field
from durableops.authoring.state import SecretMark, State
from durableops.errors import DefinitionError

_SCALARS = (
    types.NoneType, bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, UUID,
)  # fmt: skip
_COLLECTIONS = (list, set, frozenset, tuple, dict)
_KEYS = (str, int, UUID, date, datetime)
_SPECIAL_FORMS = (Literal, Union, types.UnionType, Annotated)


class _Unfit(Exception):
    """A type that would not come back from JSON as it was; carries the reason."""


def describe_state(state: type[State]) -> Any:
    """The state's fields and types as JSON. Raises DefinitionError, naming the field's line."""
    return _describe_model(state, ())


def _describe_model(model: type[State], above: tuple[type[State], ...]) -> Any:
    if model in above:
        return {"same_as": above[::-1].index(model)}
    _check_model(model)
    described = {}
    for name, field in sorted(model.model_fields.items()):
        try:
            if field.alias or field.validation_alias or field.serialization_alias:
                raise _Unfit("has an alias; a state is stored under its fields' own names")
            if field.exclude:
                raise _Unfit("is excluded from JSON, so it would be lost on resume")
            if above and any(isinstance(mark, SecretMark) for mark in field.metadata):
                raise _Unfit("is Secret in a state inside another; declare it in the workflow's own state")
            described[name] = _describe(field.annotation, (*above, model))
        except _Unfit as unfit:
            raise DefinitionError(
                f"{source_of_field(model, name)}: field {name!r} of state {model.__name__} "
                f"{unfit}. See the docstring of durableops.State for what a state may hold."
            ) from None
    return {"fields": described}


def _check_model(model: type[State]) -> None:
    problem = ""
    if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
        problem = "refers to a type that is not defined where the class stands; define it above, at module level"
    elif "schema_version" in model.model_fields:
        problem = "annotates schema_version, which makes it a field; write it without a type"
    elif model.__private_attributes__:
        names = ", ".join(sorted(model.__private_attributes__))
        problem = f"has private attributes ({names}), which would be lost on resume"
    elif model.model_config.get("extra") != "forbid":
        problem = "does not forbid unknown fields, so old bytes could be read wrongly"
    elif type(model.schema_version) is not int or model.schema_version < 1:
        problem = f"has schema_version={model.schema_version!r}; give a whole number from 1"
    if problem:
        raise DefinitionError(f"{source_of_class(model)}: state {model.__name__} {problem}.")


def _describe(annotation: Any, above: tuple[type[State], ...]) -> Any:
    if annotation is Any or annotation is JsonValue:
        return "any"
    if isinstance(annotation, typing.TypeAliasType):
        return _describe(annotation.__value__, above)
    if isinstance(annotation, typing.NewType):
        return _describe(annotation.__supertype__, above)
    origin = get_origin(annotation)
    if origin in _SPECIAL_FORMS:
        return _describe_form(annotation, origin, above)
    if origin in _COLLECTIONS or annotation in _COLLECTIONS:
        return _describe_collection(annotation, above)
    return _describe_class(annotation, above)


def _describe_form(annotation: Any, origin: Any, above: tuple[type[State], ...]) -> Any:
    arguments = get_args(annotation)
    if origin is Annotated:
        if any(isinstance(mark, SecretMark) for mark in arguments[1:]):
            raise _Unfit("is Secret inside another type; only a field of a state itself is stored encrypted")
        return _describe(arguments[0], above)
    if origin is Literal:
        return {"literal": sorted(repr(value) for value in arguments)}
    return {"union": sorted((_describe(part, above) for part in arguments), key=repr)}


def _describe_collection(annotation: Any, above: tuple[type[State], ...]) -> Any:
    kind = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if kind is dict and arguments:
        _check_key(arguments[0])
    parts = [part if part is ... else _describe(part, above) for part in arguments]
    return {kind.__name__: ["..." if part is ... else part for part in parts] or ["any"]}


def _check_key(annotation: Any) -> None:
    fits = annotation in _KEYS or get_origin(annotation) is Literal
    if not fits and not (isinstance(annotation, type) and issubclass(annotation, enum.Enum)):
        raise _Unfit(f"has {_name(annotation)} as dictionary key; use str, int, UUID or an enum")


def _describe_class(annotation: Any, above: tuple[type[State], ...]) -> Any:
    if annotation is None:
        return "NoneType"
    if annotation in _SCALARS:
        return annotation.__name__
    if isinstance(annotation, type) and issubclass(annotation, State):
        return _describe_model(annotation, above)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        if not all(isinstance(member.value, str | int) for member in annotation):
            raise _Unfit(f"is the enum {_name(annotation)} with values that are not text or whole numbers")
        return {"enum": sorted(repr(member.value) for member in annotation)}
    raise _Unfit(f"is a {_name(annotation)}, which JSON would not give back as it was")


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Callable or isinstance(annotation, typing.TypeVar):
        return str(annotation)
    return getattr(annotation, "__qualname__", None) or str(annotation)
