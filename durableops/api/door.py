"""What every address of the API shares, before and after its view: sizes, methods, caching, and problems as answers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from durableops.api import problems
from durableops.api.bodies import largest_body, refuse_large_body
from durableops.errors import DurableOpsError

type View = Callable[..., HttpResponseBase]


def door(view: View, *, streams: bool = False) -> View:
    """Wrap one view of the API. One that `streams` reads its body in pieces and says itself how large it may be."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        asked = request.method
        try:
            refuse_large_body(request, most=None if streams else largest_body())
            if asked == "HEAD":
                request.method = "GET"
            response = view(request, *args, **kwargs)
        except DurableOpsError as error:
            response = problems.from_error(error)
        except Http404:
            response = problems.not_found(request)
        except Exception as error:  # noqa: BLE001  # the last door: no error leaves as anything but a problem
            response = problems.unforeseen(error)
        request.method = asked
        if response.status_code == 405 and response.headers["Content-Type"] != problems.MEDIA_TYPE:
            allowed = {name.strip() for name in response["Allow"].split(",")}
            response = problems.method_not_allowed(request, sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))
        if asked == "HEAD" and isinstance(response, StreamingHttpResponse):
            response.close()
            response.streaming_content = iter(())
        elif asked == "HEAD" and isinstance(response, HttpResponse):
            response["Content-Length"] = str(len(response.content))
            response.content = b""
        response["Cache-Control"] = "no-store"
        return response

    guarded.csrf_exempt = True  # type: ignore[attr-defined]  # cookies are never looked at
    return guarded
