"""A State to stored text and back, exactly or not at all; which field types exist is `authoring.schema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from durableops.authoring.state import State
from durableops.checkpoints import codec, secrets
from durableops.checkpoints.faults import find_fault, pointer, type_name
from durableops.checkpoints.losses import find_loss
from durableops.errors import CompatibilityError, InputRefused, PayloadRefused

# A value that contains itself, or is nested too deep for pydantic, is a plain ValueError.
_UNSERIALISABLE = (PydanticSerializationError, ValueError)


def encode_state(state: State, *, max_bytes: int = codec.MAX_BYTES) -> str:
    """The state as JSON text, proven to come back equal and with the same types. Raises PayloadRefused otherwise."""
    return encode_and_read_back(state, max_bytes=max_bytes)[0]


def encode_and_read_back[S: State](state: S, *, max_bytes: int = codec.MAX_BYTES) -> tuple[str, S]:
    """The state as JSON text, and the new state that was decoded from that text to prove it.

    Raises PayloadRefused with the field's path if it would not come back equal and with the same types: before the
    step is committed is the last moment when the author's own objects are still there to be corrected.
    """
    cls = type(state)
    what = f"state {cls.__name__}"
    text = codec.dumps(_plain(state, what), what=what, max_bytes=max_bytes)
    try:
        back = cls.model_validate_json(text, strict=True)
    except ValidationError as error:
        path, reason = first_problem(error)
        raise PayloadRefused(f"{what} at {path or '/'} would not be readable again: {reason}.", path=path) from None
    loss = find_loss(state, back)
    if loss is not None:
        raise PayloadRefused(
            f"{what} at {loss.path or '/'} {loss.reason}; declare the field's type, or store plain JSON.",
            path=loss.path,
        )
    return secrets.seal_fields(text, secrets.secret_fields(cls)), back


def decode_state[S: State](cls: type[S], text: str, *, schema_version: int | None = None) -> S:
    """The state that was recorded as `text`.

    `schema_version` is the recorded one, if known. Raises CompatibilityError with the path for
    an unknown field, a missing one without a default, a value of another type, or another
    schema version: an unknown value is an error, never a default.
    """
    what = f"recorded state of {cls.__name__}"
    if schema_version is not None and schema_version != cls.schema_version:
        raise CompatibilityError(
            f"{what} has schema version {schema_version}; the code has {cls.schema_version}. "
            "Add a migration, or keep a worker with the old version."
        )
    text = secrets.open_fields(text, secrets.secret_fields(cls), what=what)
    codec.loads(text, what=what)  # pydantic's reader would take the last of two equal keys
    try:
        return cls.model_validate_json(text, strict=True)
    except ValidationError as error:
        path, reason = first_problem(error)
        raise CompatibilityError(f"{what} cannot be read at {path or '/'}: {reason}.", path=path) from None


def state_from_input[S: State](cls: type[S], document: object, *, max_bytes: int = codec.MAX_BYTES) -> S:
    """The state a run starts with. Raises InputRefused with the path of the first problem.

    Types are taken strictly: "5" is not a number. None is not an empty document.
    """
    if not isinstance(document, Mapping):
        raise InputRefused(f"input is {type_name(document)}; {cls.__name__} wants a JSON object.")
    try:
        # As JSON, because there "2026-01-01" is a date and base64 is bytes.
        return cls.model_validate_json(codec.dumps(dict(document), what="input", max_bytes=max_bytes), strict=True)
    except PayloadRefused as refused:
        raise InputRefused(refused.detail, path=refused.path) from None
    except ValidationError as error:
        path, reason = first_problem(error)
        count = error.error_count()
        more = f" There are {count - 1} more problems." if count > 1 else ""
        raise InputRefused(f"input at {path or '/'} is not accepted: {reason}.{more}", path=path) from None


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Path and reason of the first problem, without the offending value: it may be a secret."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ""
    for step in problem["loc"]:
        path = pointer(path, step)
    return path, problem["msg"]


def _plain(state: State, what: str) -> dict[str, Any]:
    try:
        return state.model_dump(mode="json", round_trip=True, warnings=False)
    except _UNSERIALISABLE:
        for name, value in state:
            _refuse_field(state, name, value, what)
        raise


def _refuse_field(state: State, name: str, value: Any, what: str) -> None:
    """Raise PayloadRefused if it is this field; pydantic names a type, our own walk the place."""
    try:
        state.model_dump(mode="json", round_trip=True, warnings=False, include={name})
    except _UNSERIALISABLE as error:
        fault = find_fault(value, max_values=codec.MAX_BYTES)
        path = pointer("", name) + (fault.path if fault else "")
        reason = fault.reason if fault else f"is not JSON: {error}"
        raise PayloadRefused(f"{what} at {path} {reason}.", path=path) from None
