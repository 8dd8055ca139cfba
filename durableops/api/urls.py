"""The API's addresses. Whatever is not one of them is a problem too, never a page."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from durableops.api import docs
from durableops.api.app import api
from durableops.api.door import door
from durableops.api.problems import not_found


def _addresses() -> list[URLPattern | URLResolver]:
    found: list[URLPattern | URLResolver] = []
    for pattern in api.urls[0]:
        # The framework's root has nothing to show.
        if isinstance(pattern, URLPattern) and pattern.name != "api-root":
            pattern.callback = door(pattern.callback, streams=pattern.name == "bring_file")
            found.append(pattern)
    return [
        path("v1/openapi.json", door(docs.openapi), name="openapi"),
        path("v1/docs", door(docs.page), name="docs"),
        path("v1/", include((found, "api"))),
        re_path(r"", door(lambda request: not_found(request)), name="nothing"),
    ]


app_name = "api_v1"
urlpatterns = _addresses()
