"""Answers, problems, and reading the fields of a body; nothing about sockets or storage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

MAX_BODY_BYTES = 256 * 1024
MAX_TEXT_CHARACTERS = 500
JSON = "application/json"


class BadRequest(Exception):
    """The request cannot be understood; the message says what was wanted."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A status, a text and extra headers."""

    status: int
    body: str
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Answer:
    """An error as problem details."""
    return Answer(status=status, body=json.dumps({"status": status, "detail": detail}), headers=headers or {})


def json_answer(value: Any, *, status: int = 200) -> Answer:
    """Any JSON value as an answer."""
    return Answer(status=status, body=json.dumps(value))


def read_object(body: bytes, *, wanted: str) -> dict[str, Any]:
    """Read a body that has to be a JSON object. Raises BadRequest, which says what was wanted."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRequest(f"the body is not an object; wanted {wanted}")
    return fields


def read_text(fields: dict[str, Any], name: str) -> str:
    """Read a text that is there and not too long. Raises BadRequest."""
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{name} is missing or empty; wanted a text")
    if not value.isprintable() and not _is_unicode(value):
        raise BadRequest(f"{name} has lone surrogates; wanted Unicode text")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise BadRequest(f"{name} has {len(value)} characters; at most {MAX_TEXT_CHARACTERS} are taken")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
