"""Every refusal of the API in one shape: RFC 9457 problem details with a stable code. Who refuses is elsewhere."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from durableops.checkpoints.failures import safe_text
from durableops.checkpoints.faults import pointer
from durableops.errors import DurableOpsError, RateLimited, TokenRefused

MEDIA_TYPE = "application/problem+json"
DOCS_PATH = "/api/v1/docs"
RETRY_AFTER_SECONDS = 5
LONGEST_DETAIL = 2000
# Facts of an error that clients may rely on; whatever else an error carries is for our own logs.
_TOLD = ("run", "state", "wanted", "needs", "plan")

logger = logging.getLogger("durableops.api")


def problem(status: int, code: str, detail: str, *, path: str = "", place: str = "", **facts: Any) -> HttpResponse:
    """One problem. `path` is the pointer to the offending value, in the `place` of the request it was found."""
    document = {
        "type": f"{DOCS_PATH}#{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": safe_text(detail, limit=LONGEST_DETAIL),
        **({"in": place} if place else {}),
        **({"path": safe_text(path, limit=LONGEST_DETAIL)} if path else {}),
        **{name: value for name, value in facts.items() if value not in ("", None)},
    }
    response = HttpResponse(json.dumps(document, allow_nan=False), status=status, content_type=MEDIA_TYPE)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = 'Bearer realm="durableops"'
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def from_error(error: DurableOpsError) -> HttpResponse:
    """The problem of one of our own errors, by its own status and code."""
    facts = {name: _plain(error.context[name]) for name in _TOLD if name in error.context}
    place = error.context.get("place", "body" if error.context.get("path") else "")
    response = problem(
        error.http_status, error.code, error.detail, path=error.context.get("path", ""), place=place, **facts
    )
    if isinstance(error, RateLimited):
        response["Retry-After"] = str(max(1, math.ceil(error.after_seconds)))
    return response


def not_found(request: HttpRequest) -> HttpResponse:
    """The problem of an address that does not exist."""
    return problem(404, "address.not_found", f"there is nothing at {request.path}. {DOCS_PATH} lists what there is.")


def method_not_allowed(request: HttpRequest, allowed: list[str]) -> HttpResponse:
    """The problem of a method that an address does not have."""
    methods = ", ".join(allowed)
    response = problem(405, "method.not_allowed", f"{request.method} is not possible here; there is: {methods}.")
    response["Allow"] = methods
    return response


def unforeseen(error: Exception) -> HttpResponse:
    """Whatever nobody foresaw: logged whole, told in one sentence."""
    if isinstance(error, OperationalError | InterfaceError):
        logger.warning("the database did not answer a request of the API: %s", error)
        return problem(503, "database.unavailable", "the database does not answer; try again with the same key.")
    if isinstance(error, RequestDataTooBig):
        return problem(413, "input.too_large", "the body is larger than is accepted. Send references, not contents.")
    if isinstance(error, SuspiciousOperation):
        return problem(400, "request.malformed", "the request could not be understood.")
    logger.error("a request of the API failed", exc_info=error)
    return problem(500, "server.error", "this request met an error of ours, which is logged. Nothing says it was done.")


def install(api: NinjaAPI) -> None:
    """Let every error of the API's views become a problem."""
    answers: dict[type[Exception], Callable[[Any], HttpResponse]] = {
        DurableOpsError: from_error,
        AuthenticationError: lambda error: from_error(TokenRefused(_NO_TOKEN)),
        ValidationError: _invalid,
        HttpError: _from_framework,
        Exception: unforeseen,
    }
    for kind, answer in answers.items():
        api.add_exception_handler(kind, _without_request(answer))
    api.add_exception_handler(Http404, lambda request, error: not_found(request))


def _without_request(answer: Callable[[Any], HttpResponse]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: answer(error)


_NO_TOKEN = "this address wants a token: send it as 'Authorization: Bearer dop_…'."  # noqa: S105


def _from_framework(error: HttpError) -> HttpResponse:
    # The framework wraps what the parser of bodies raises.
    if isinstance(error.__cause__, DurableOpsError):
        return from_error(error.__cause__)
    if error.__cause__ is not None:
        return unforeseen(error.__cause__) if isinstance(error.__cause__, Exception) else unforeseen(error)
    return problem(error.status_code, "request.refused", str(error))


def _invalid(error: ValidationError) -> HttpResponse:
    """The first of the problems the schema found, without the value: it may be a secret."""
    first = error.errors[0]
    place, *steps = first["loc"]
    # The framework puts the name of the view's own argument first.
    if place == "body":
        steps = steps[1:]
    if place in ("query", "header"):
        path = ".".join(str(step) for step in steps[-1:])
    else:
        path = ""
        for step in steps:
            path = pointer(path, step)
    more = f" There are {len(error.errors) - 1} more problems." if len(error.errors) > 1 else ""
    where = f"{place} at {path}" if path else f"the {place}"
    told = first["msg"].removeprefix("Value error, ").rstrip(".")
    reason = "is missing" if first["type"] == "missing" else f"is not accepted: {told}"
    return problem(400, "input.refused", f"{where} {reason}.{more}", path=path, place=place)


def _plain(value: Any) -> Any:
    # A plan is told whole: whoever was refused looks at it and asks again with its hash.
    return value if isinstance(value, str | int | bool | dict) else str(value)
