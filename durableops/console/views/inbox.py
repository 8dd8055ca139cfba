"""The Inbox: the queues a person may work on, one of them open; claiming an entry and releasing it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops.access import Permission
from durableops.console.access import NotAllowed
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.inbox import frame
from durableops.console.inbox import queues as queues  # registers them
from durableops.console.inbox.frame import Asked, Queue, shown_count
from durableops.errors import TransitionRefused


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    template = "console/inbox/_region.html" if request.htmx else "console/inbox/page.html"
    return render(request, template, inbox_context(request))


@page("POST", permission=Permission.SIGNED_IN)
def claim(request: ConsoleRequest, queue: str, key: str, verb: str) -> HttpResponse:
    """Say that one is on an entry, or that one is not any more."""
    known, tenants = _find(request, queue)
    if verb not in ("claim", "release") or not known.can_be_claimed:
        raise Http404("There is nothing of this kind here.")
    done = known.claim if verb == "claim" else known.release
    text, kind, status = ("It is yours." if verb == "claim" else "It is free again."), "info", 200
    try:
        done(key, access=request.access, tenants=tenants)
    except TransitionRefused as refused:
        text, kind, status = str(refused), "error", 409
    if not request.htmx and status == 200:
        said(request, text)
        return redirect(f"{reverse('console:inbox')}?{_query(queue=queue)}")
    template = "console/inbox/_region.html" if request.htmx else "console/inbox/page.html"
    shown = {**inbox_context(request, queue=queue), "said": text, "said_kind": kind}
    return render(request, template, shown, status=status)


def _find(request: ConsoleRequest, name: str) -> tuple[Queue, list[int]]:
    for queue, tenants in frame.queues(request.access):
        if queue.name == name:
            return queue, tenants
    known = frame.queue(name)
    if known is None or not request.access.tenants:
        raise Http404("There is no such queue.")
    raise NotAllowed(known.permission, request.access.tenants[0].slug)


def inbox_context(request: ConsoleRequest, *, queue: str = "") -> dict[str, Any]:
    """Every queue with its number, and a page of the one that is open: the one asked for, or the first with work."""
    found = frame.queues(request.access)
    counts = {known.name: known.count(tenants) for known, tenants in found}
    wanted = queue or request.GET.get("queue", "")
    chosen = next((one for one in found if one[0].name == wanted), None)
    chosen = chosen or next((one for one in found if counts[one[0].name]), None) or (found[0] if found else None)
    context = {
        **context_for(request, "inbox"),
        "rail": [(known, shown_count(counts[known.name]), _query(queue=known.name)) for known, _ in found],
        "queue": None,
    }
    if chosen is None:
        return context
    known, tenants = chosen
    mine, cursor = request.GET.get("mine", "") == "1", request.GET.get("after", "")[:100]
    shown = known.page(Asked(access=request.access, tenants=tenants, cursor=cursor, mine=mine))
    here = {"queue": known.name, **({"mine": "1"} if mine else {})}
    return {
        **context, "queue": known, "shown": shown, "mine": mine, "cursor": cursor,
        "count": shown_count(counts[known.name]), "several_tenants": len(tenants) > 1,
        "query": _query(**here, **({"after": cursor} if cursor else {})),
        "first": _query(**here) if cursor else "",
        "following": _query(**here, after=shown.following) if shown.following else "",
        "other_way": _query(queue=known.name, **({} if mine else {"mine": "1"})),
    }  # fmt: skip


def _query(**conditions: str) -> str:
    found = QueryDict(mutable=True)
    found.update(conditions)
    return found.urlencode()
