"""The API described: the OpenAPI document for machines, and one plain page for people, without scripts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET

from durableops import errors
from durableops.access import SCOPES
from durableops.api.app import PREFIX, openapi_document, openapi_text
from durableops.api.bodies import LengthRequired, WrongMediaType
from durableops.engine.retention.erasures import ErasureNotFound
from durableops.upkeep.retention.preview import PreviewNotFound

_ERRORS: tuple[type[errors.DurableOpsError], ...] = (
    errors.InputRefused,
    errors.InputTooLarge,
    errors.TokenRefused,
    errors.NotPermitted,
    errors.RunNotFound,
    errors.WorkflowNotFound,
    errors.ArtifactNotFound,
    errors.ArtifactGone,
    errors.ArtifactDamaged,
    errors.SealBroken,
    errors.PromptNotFound,
    errors.DoubtNotFound,
    errors.HoldNotFound,
    ErasureNotFound,
    PreviewNotFound,
    errors.SystemNotFound,
    errors.CompensationNotFound,
    errors.MessageNotFound,
    errors.BulkNotFound,
    errors.BulkRefused,
    errors.BulkPlanChanged,
    errors.TransitionRefused,
    errors.PlanChanged,
    errors.PlanWanted,
    errors.MigrationRefused,
    errors.StartConflict,
    errors.EventConflict,
    LengthRequired,
    WrongMediaType,
)
_MORE = {
    "address.not_found": (404, "There is nothing at this address."),
    "method.not_allowed": (405, "The address has other methods; `Allow` names them."),
    "request.malformed": (400, "The request could not be understood."),
    "request.refused": (400, "The request was refused before its content was looked at."),
    "database.unavailable": (503, "The database does not answer. Try again, with the same key."),
    "server.error": (500, "An error of ours, which is logged."),
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One parameter or property, in words."""

    name: str
    type: str
    required: bool
    about: str


@dataclass(frozen=True, kw_only=True)
class Address:
    """One method of one address."""

    id: str
    method: str
    path: str
    summary: str
    about: list[SafeString]
    scope: str
    parameters: list[Field]
    body: str
    answers: list[tuple[str, str, str]]


def problem_codes() -> dict[str, tuple[int, str]]:
    """Every code a problem may have, with its status and meaning."""
    ours = {kind.code: (kind.http_status, inspect.cleandoc(kind.__doc__ or "")) for kind in _ERRORS}
    return dict(sorted({**ours, **_MORE}.items()))


@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document."""
    return HttpResponse(openapi_text(), content_type="application/json")


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    """The page for people."""
    document = openapi_document()
    addresses = [
        _address(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = {name: _fields(schema) for name, schema in sorted(document["components"]["schemas"].items())}
    context = {
        "info": document["info"],
        "prefix": PREFIX,
        "addresses": addresses,
        "schemas": {name: fields for name, fields in schemas.items() if fields},
        "codes": problem_codes(),
        "scopes": [scope.value for scope in SCOPES],
    }
    return render(request, "api/docs.html", context)


def _address(path: str, method: str, operation: dict[str, Any]) -> Address:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return Address(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        about=[
            _with_code(paragraph)
            for paragraph in operation.get("description", "").split("\n\n")
            if paragraph.rstrip(".") != operation["summary"]
        ],
        scope=operation["security"][0]["token"][0],
        parameters=[
            Field(name=each["name"], type=_type(each["schema"]), required=each.get("required", False),
                  about=each.get("description", each["schema"].get("description", "")))
            for each in operation["parameters"]
        ],
        body=_type(body) if body else "",
        answers=[
            (status, answer["description"], _type(next(iter(answer["content"].values()))["schema"]))
            for status, answer in sorted(operation["responses"].items())
            if int(status) < 400
        ],
    )  # fmt: skip


def _with_code(paragraph: str) -> SafeString:
    """Text between backticks as code."""
    pieces = (
        (f"<code>{escape(text)}</code>" if n % 2 else escape(text)) for n, text in enumerate(paragraph.split("`"))
    )
    return mark_safe("".join(pieces))  # noqa: S308  # every piece was escaped


def _fields(schema: dict[str, Any]) -> list[Field]:
    required = schema.get("required", [])
    return [
        Field(name=name, type=_type(each), required=name in required, about=each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]


def _type(schema: dict[str, Any]) -> str:
    """A type in a few words: `text`, `Run`, `list of Gate`, `time or nothing`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "allOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if "enum" in schema:
        return " · ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false", "null": "nothing"}
    formats = {"date-time": "time", "uuid": "UUID"}
    kind = str(schema.get("type", "anything"))
    return formats.get(str(schema.get("format", "")), words.get(kind, kind))
