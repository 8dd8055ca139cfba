"""The API put together: routers, rights, refusals, and the document that describes them."""

from __future__ import annotations

import functools
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.renderers import BaseRenderer

from durableops.api import (
    approvals,
    branching,
    bulks,
    clocks,
    compensations,
    doubts,
    events,
    files,
    kept,
    messages,
    plans,
    problems,
    prompts,
    quotas,
    retention,
    reviews,
    runs,
    story,
    systems,
    verbs,
)
from durableops.api.bodies import StrictParser

PREFIX = "/api/v1"


class StrictRenderer(BaseRenderer):
    """JSON that every reader takes: no NaN, instants with their zone and microseconds."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> str:
        return json.dumps(data, allow_nan=False, default=_text)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in an answer")


def _refuse_everybody(request: HttpRequest) -> None:
    """What an address asks when its author forgot to say: nobody comes in."""


api = NinjaAPI(
    title="durableops",
    version="1",
    urls_namespace="api",
    description="Start runs, send events, read what became of them, and decide. Refusals are RFC 9457 problems.",
    auth=_refuse_everybody,
    renderer=StrictRenderer(),
    parser=StrictParser(),
    openapi_url=None,
    docs_url=None,
)
problems.install(api)
api.add_router("/runs", runs.router)
api.add_router("/runs", story.router)
api.add_router("/runs", verbs.router)
api.add_router("/runs", plans.router)
api.add_router("/runs", clocks.of_runs)
api.add_router("/runs", branching.router)
api.add_router("/runs", reviews.of_runs)
api.add_router("/runs", files.router)
api.add_router("/runs", prompts.router)
api.add_router("/runs", kept.router)
api.add_router("/events", events.router)
api.add_router("/approvals", approvals.router)
api.add_router("/clocks", clocks.router)
api.add_router("/doubts", doubts.router)
api.add_router("/quota", quotas.router)
api.add_router("/systems", systems.router)
api.add_router("/compensations", compensations.router)
api.add_router("/messages", messages.router)
api.add_router("/bulks", bulks.router)
api.add_router("/reviews", reviews.router)
api.add_router("/retention", retention.router)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI 3.1 description, with problems under their own media type."""
    document: dict[str, Any] = json.loads(openapi_text())
    return document


@functools.cache
def openapi_text() -> str:
    """The description as it is served; addresses do not change while a process lives."""
    document: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema(path_prefix=f"{PREFIX}/")))
    for shown_as_parameters in [name for name in document["components"]["schemas"] if name.endswith("Query")]:
        document["components"]["schemas"].pop(shown_as_parameters)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            # The framework adds a scheme of its own for each class of rights; ours names the scope.
            operation["security"] = [rule for rule in operation["security"] if "token" in rule]
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    answer["content"] = {problems.MEDIA_TYPE: answer["content"].pop("application/json")}
    return json.dumps(document, indent=1, ensure_ascii=False)
