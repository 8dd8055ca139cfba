"""What every view of the console shares: the sign-in check, caching off, fragments, and refusals as answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from durableops.access import Permission
from durableops.console import demo
from durableops.console.access import Access, NotAllowed, access_of
from durableops.errors import DurableOpsError, InputRefused, NotPermitted

YEAR_SECONDS = 365 * 24 * 3600
"""How long a browser remembers how the pages shall look."""


class ConsoleRequest(HttpRequest):
    """A request of a signed-in person, with their rights and what htmx says about it."""

    access: Access
    htmx: HtmxDetails


type View[**P] = Callable[Concatenate[ConsoleRequest, P], HttpResponseBase]


def page[**P](*methods: str, permission: Permission) -> Callable[[View[P]], View[P]]:
    """Mark a function as a view: allowed methods, who may call it, and nothing of it in any cache.

    The permission is what the view asks of `access`; a test walks all routes and fails for one that has none.
    """

    def decorate(view: View[P]) -> View[P]:
        @functools.wraps(view)
        def wrapped(request: ConsoleRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            if permission is not Permission.ANYBODY and not request.user.is_authenticated:
                return to_sign_in(request)
            if request.user.is_authenticated:
                request.access = access_of(request)
            with timezone.override(zone_of(request)):
                try:
                    response = view(request, *args, **kwargs)
                except (NotAllowed, NotPermitted) as refused:
                    response = refusal(request, str(refused), status=403)
            # History and shared machines keep nothing of it (a page of a run may show payloads).
            response["Cache-Control"] = "no-store"
            return response

        wrapped.permission = permission  # type: ignore[attr-defined]
        wrapped.methods = methods  # type: ignore[attr-defined]
        return wrapped  # type: ignore[return-value]  # mypy takes the first name of the request to be part of it

    return decorate


def zone_of(request: HttpRequest) -> ZoneInfo:
    """The person's time zone, as their browser said it; UTC until it did, and when they chose so."""
    name = request.COOKIES.get("zone", "UTC")
    try:
        return ZoneInfo(name)
    except (ValueError, OSError):  # an unknown key is a ZoneInfoNotFoundError, which is a KeyError's cousin in 3.12
        return ZoneInfo("UTC")
    except KeyError:
        return ZoneInfo("UTC")


def to_sign_in(request: ConsoleRequest) -> HttpResponse:
    """Send the whole page to the sign-in, never a fragment of it, and come back to where the person was."""
    if not request.htmx:
        return redirect(f"{reverse('console:sign_in')}?next={quote(request.get_full_path())}")
    shown = urlsplit(request.htmx.current_url or "/")
    back = f"{shown.path}?{shown.query}" if shown.query else shown.path
    return HttpResponseClientRedirect(f"{reverse('console:sign_in')}?lost=1&next={quote(back)}")


def notice(request: ConsoleRequest, text: str, *, kind: str, status: int = 200) -> HttpResponse:
    """One sentence for an htmx request that changes nothing on the page."""
    response = render(request, "console/_notice_oob.html", {"text": text, "kind": kind}, status=status)
    response["HX-Reswap"] = "none"
    return response


def refusal(request: ConsoleRequest, text: str, *, status: int) -> HttpResponse:
    """A refusal in one sentence: a notice for htmx, else a page of its own."""
    if request.htmx:
        return notice(request, text, kind="error", status=status)
    return render(request, "console/refused.html", {"text": text, "status": status}, status=status)


def chosen[A](request: ConsoleRequest, acts: Mapping[str, A]) -> A:
    """What a form of a page with several asks for. Raises Http404."""
    act = acts.get(request.POST.get("act", ""))
    if act is None:
        raise Http404("There is no such verb.")
    return act


def status_of(refused: DurableOpsError) -> int:
    """As what a page answers that shows a refusal beside its form: input that makes no sense is no bad request here."""
    return 422 if isinstance(refused, InputRefused) else refused.http_status


def said(request: ConsoleRequest, text: str) -> None:
    """Keep one sentence for the next full page."""
    messages.success(request, text)


def context_for(request: ConsoleRequest, section: str, **extra: Any) -> dict[str, Any]:
    """What the shell of every page needs."""
    return {
        "access": request.access,
        "section": section,
        "theme": request.COOKIES.get("theme", "") if request.COOKIES.get("theme") in ("light", "dark") else "",
        "zone": timezone.get_current_timezone_name(),
        # A demo explains itself until the person has had enough of it.
        "about": ("hidden" if request.COOKIES.get("about") == "hide" else "shown") if demo.is_on() else "",
        **extra,
    }
