"""Bulk actions: a preview of the runs that were chosen, the action while it goes on, and what came of each run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from durableops.access import VERBS, Permission
from durableops.console import guarding, listing
from durableops.console.filters import RunFilter
from durableops.console.http import ConsoleRequest, context_for, page, refusal, said
from durableops.engine.bulk import capture, control, reading
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import BulkVerb, verb
from durableops.engine.commands import WHAT_WAS_DONE
from durableops.engine.compensation.ways import ways
from durableops.errors import BulkRefused, InputRefused
from runs.models import Bulk, Tenant
from runs.models.bulk import ITEM_STATES

WINDOW = 200_000
"""Runs of one tenant and state that are looked at for conditions that no index knows."""
SHOWN = 50
MAX_SELECTED = 1000
_CONTROLS = {"start": control.start, "pause": control.hold, "resume": control.go_on, "abort": control.abort}
_DONE = {"start": "It begins.", "pause": "It is paused: no further run is touched.", "resume": "It goes on.",
         "abort": "It is over: what was not done stays as it was."}  # fmt: skip


@page("GET", "POST", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The actions there are; POST captures the chosen runs and leads to the preview. Nothing is done to them yet."""
    if request.method == "GET":
        found = Bulk.objects.filter(tenant_id__in=request.access.tenant_ids).exclude(state="preview")
        rows = found.select_related("tenant").order_by("-id")[:SHOWN]
        return render(request, "console/bulk/list.html", {**context_for(request, "runs"), "bulks": rows})
    try:
        known = verb(request.POST.get("verb", ""))
        tenant, selection = _selection(request)
        request.access.require_verb(known.name, tenant)
        made = capture.preview(known, selection, tenant=tenant, actor=request.access.actor)
    except InputRefused as refused:
        return refusal(request, str(refused), status=422)
    return redirect("console:bulk", bulk_id=made.pk)


@page("GET", permission=Permission.SIGNED_IN)
def one(request: ConsoleRequest, bulk_id: int) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    bulk = _find(request, bulk_id)
    template = "console/bulk/_region.html" if request.htmx else "console/bulk/page.html"
    return render(request, template, bulk_context(request, bulk))


@page("POST", permission=Permission.SIGNED_IN)
def act(request: ConsoleRequest, bulk_id: int, verb: str) -> HttpResponse:
    """Start, pause, resume, abort it, or discard a preview."""
    bulk = _find(request, bulk_id)
    _require(request, bulk)
    actor, reason = request.access.actor, request.POST.get("reason", "").strip()
    try:
        if verb == "discard":
            control.discard(bulk.pk, tenant=bulk.tenant)
            said(request, "The preview is gone; nothing was done.")
            return redirect("console:runs")
        do = _CONTROLS.get(verb)
        if do is None:
            raise Http404("There is nothing of this kind to do.")
        more = _start_options(request, bulk) if verb == "start" else {}
        do(bulk.pk, tenant=bulk.tenant, actor=actor, reason=reason, **more)
    except (BulkRefused, InputRefused) as refused:
        context = {**bulk_context(request, _find(request, bulk_id)), "wrong": str(refused), "reason": reason}
        return render(request, "console/bulk/page.html", context, status=refused.http_status if verb else 422)
    said(request, _DONE[verb])
    return redirect("console:bulk", bulk_id=bulk.pk)


def _start_options(request: ConsoleRequest, bulk: Bulk) -> dict[str, Any]:
    if bulk.selection.get("unfiltered") and request.POST.get("typed", "").replace(",", "").strip() != str(bulk.runs):
        raise InputRefused(
            f"this is every run of {bulk.tenant.slug}: type {bulk.runs} to say that you mean all of them."
        )
    more: dict[str, Any] = {"plan_hash": request.POST.get("plan_hash", "")} if bulk.plan_hash else {}
    return more | ({"arguments": {"done": request.POST["done"]}} if "done" in request.POST else {})


def bulk_context(request: ConsoleRequest, bulk: Bulk) -> dict[str, Any]:
    """What the page of one action shows; page and refresh share it."""
    known = _known(bulk)
    state = request.GET.get("state", "")
    after = request.GET.get("after", "")
    preview = bulk.state == "preview"
    met = reading.meets(bulk, known) if preview and known else []
    return {
        **context_for(request, "runs"), "bulk": bulk, "known": known, "met": met,
        "fitting": sum(one.runs for one in met if one.fits), "counts": reading.counts(bulk),
        "plan": guarding.meanings(guarding.plan_of(bulk.plan)),
        "state": state if state in ITEM_STATES else "", "states": ITEM_STATES,
        "results": reading.results(bulk, state=state, limit=reading.SAMPLES if preview else reading.PER_PAGE,
                                   after=int(after) if after.isdecimal() and len(after) < 10 else 0),
        "choices": WHAT_WAS_DONE if preview and bulk.verb == "cancel" and ways() else (),
        "may": known is not None and request.access.may_verb(known.name, bulk.tenant_id),
    }  # fmt: skip


def _known(bulk: Bulk) -> BulkVerb | None:
    try:
        return verb(bulk.verb)
    except InputRefused:
        return None


def _find(request: ConsoleRequest, bulk_id: int) -> Bulk:
    tenants = request.access.tenant_ids
    found = Bulk.objects.select_related("tenant").filter(pk=bulk_id, tenant_id__in=tenants).first()
    if found is None:
        raise Http404("There is no such bulk action.")
    return found


def _require(request: ConsoleRequest, bulk: Bulk) -> None:
    if bulk.verb not in VERBS:
        raise Http404("This process does not know what this action does.")
    request.access.require_verb(bulk.verb, bulk.tenant)


def _selection(request: ConsoleRequest) -> tuple[Tenant, Selection]:
    """The chosen runs, of one tenant. Raises InputRefused."""
    asked = RunFilter.read(QueryDict(request.POST.get("filter", ""))).first_page()
    if request.POST.get("scope") == "all":
        return _all_matching(request, asked)
    ids = [found for text in request.POST.getlist("run")[:MAX_SELECTED] if (found := _id(text)) is not None]
    if not ids:
        raise InputRefused("no run was selected; tick some, or choose all that match.")
    tenants = set(request.access.runs().filter(pk__in=ids).values_list("tenant_id", flat=True))
    words = f"{len(ids)} selected"
    return _one_tenant(request, tenants), Selection(words=words, ids=ids, query=asked.query)


def _all_matching(request: ConsoleRequest, asked: RunFilter) -> tuple[Tenant, Selection]:
    scan = asked.scan()
    visible = request.access.tenants
    tenant = _one_tenant(request, {one.pk for one in visible if scan.tenants is None or one.slug in scan.tenants})
    sql, params = listing.everything(asked, tenant, most=capture.MOST_RUNS + 1, window=WINDOW)
    unfiltered = asked.view.name == "all" and not asked.conditions
    words = " · ".join(filter(None, ["" if asked.view.name == "all" else asked.view.label, asked.text]))
    return tenant, Selection(
        words=f"all that match {words}" if words else f"every run of {tenant.slug}", sql=sql, params=params,
        query=asked.query, unfiltered=unfiltered,
    )  # fmt: skip


def _one_tenant(request: ConsoleRequest, found: set[int]) -> Tenant:
    tenants = [tenant for tenant in request.access.tenants if tenant.pk in found]
    if not tenants:
        raise Http404("None of these runs is here.")
    if len(tenants) > 1:
        names = ", ".join(tenant.slug for tenant in tenants[:5])
        raise InputRefused(
            f"these runs belong to {len(tenants)} tenants ({names}), and a bulk action is one tenant's. "
            f"Narrow the list: tenant:{tenants[0].slug}."
        )
    return tenants[0]


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
