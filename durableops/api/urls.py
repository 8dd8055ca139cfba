"""The API's addresses. Whatever is not one of them is a problem too, never a page."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path

from durableops.api import docs
from durableops.api.app import api
from durableops.api.door import door
from durableops.api.problems import not_found


def _addresses() -> list[URLPattern | URLResolver]:
    found, _app, _namespace = api.urls
    for pattern in found:
        if isinstance(pattern, URLPattern):
            pattern.callback = door(pattern.callback)
    return [
        path("v1/openapi.json", door(docs.openapi), name="openapi"),
        path("v1/docs", door(docs.page), name="docs"),
        path("v1/", include_api(found)),
        re_path(r"", door(lambda request: not_found(request)), name="nothing"),
    ]


def include_api(found: list[URLPattern | URLResolver]) -> tuple[list[URLPattern | URLResolver], str, str]:
    return found, "ninja", "api"


app_name = "api_v1"
urlpatterns = _addresses()
