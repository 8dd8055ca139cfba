"""Which address leads to which part. The parts' own addresses live with them."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [path("admin/", admin.site.urls)]

# Parts are found by name, so that a deployment may leave one out and this module imports none of them.
for prefix, module in (("api/", "durableops.api"), ("", "durableops.console")):
    if find_spec(module) is not None and find_spec(f"{module}.urls") is not None:
        urlpatterns.append(path(prefix, include(f"{module}.urls")))
