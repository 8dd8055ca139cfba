"""Bodies and header texts as values, or a refusal: read no further than the limit, by our own strict reader."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from durableops import clock
from durableops.checkpoints.codec import check_key, parse_input
from durableops.conf import get_conf
from durableops.errors import DurableOpsError, InputRefused, InputTooLarge

ENVELOPE_BYTES = 64 * 1024
"""Room for what stands around an input or payload: workflow, labels, reason."""


LATEST = timedelta(days=3653)
"""Instants further away are mistakes, and beyond the calendar's end the database could not give them back."""


class LengthRequired(DurableOpsError):
    """A body came without saying how long it is."""

    code = "request.length_required"
    http_status = 411


class WrongMediaType(DurableOpsError):
    """A body came that is not said to be JSON."""

    code = "request.wrong_media_type"
    http_status = 415


def largest_body() -> int:
    return get_conf().payload_max_bytes + ENVELOPE_BYTES


def refuse_large_body(request: HttpRequest, *, most: int | None) -> None:
    """Refuse by the announced length alone, before a byte of the body is read; None leaves that to the view."""
    if request.META.get("HTTP_TRANSFER_ENCODING"):
        raise LengthRequired("the body does not say how long it is: send Content-Length.")
    announced = request.META.get("CONTENT_LENGTH") or "0"
    if not (announced.isascii() and announced.isdigit()):
        raise InputRefused("Content-Length is not a number.", place="header")
    # Compared as text first: a number of thousands of digits is not worth converting.
    if len(announced) > 15 or (most is not None and int(announced) > most):
        raise InputTooLarge(
            f"the body has {announced[:15]} bytes; at most {most} are accepted. Send references to contents.",
            place="body",
        )


class StrictParser(Parser):
    """The framework's parser with the rules of `checkpoints.codec`."""

    def parse_body(self, request: HttpRequest) -> Any:
        if request.content_type != "application/json":
            raise WrongMediaType(f"the body is said to be {request.content_type!r}; send application/json.")
        if (request.content_params or {}).get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            raise WrongMediaType("the body is said not to be UTF-8; JSON is UTF-8.")
        return parse_input(request.body, max_bytes=largest_body(), what="the body")


def idempotency_key(request: HttpRequest) -> str | None:
    """The `Idempotency-Key` header, or None. Compared byte by byte; refused if it cannot be a key."""
    raw = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if raw is None:
        return None
    try:
        # Servers hand header bytes over as latin-1.
        text = raw.encode("latin-1").decode()
    except UnicodeError:
        raise InputRefused("Idempotency-Key is not UTF-8 text.", path="Idempotency-Key", place="header") from None
    try:
        return check_key(text, what="Idempotency-Key")
    except InputRefused as refused:
        raise InputRefused(refused.detail, path="Idempotency-Key", place="header") from None


def refuse_far(moment: datetime | None, *, path: str) -> None:
    """Refuse an instant that is more than ten years away."""
    if moment is not None and moment > clock.now() + LATEST:
        raise InputRefused(f"{path[1:]} is more than ten years away.", path=path, place="body")
