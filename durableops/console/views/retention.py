"""Retention of one tenant, for its admins: how long what is kept, what would go, what went, holds, erasures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops import clock
from durableops.access import Permission
from durableops.console import retention
from durableops.console.access import NotAllowed
from durableops.console.http import ConsoleRequest, chosen, context_for, page, said, status_of
from durableops.engine.retention import erasures, holds, rules
from durableops.engine.retention.lengths import Length, parse
from durableops.errors import DurableOpsError, InputRefused
from durableops.upkeep.retention import preview, rehearsal, sizes
from runs.models import RetentionPreview, Tenant
from runs.retention.classes import SUBJECTS, in_words

TABS = (("rules", "Rules"), ("preview", "Preview"), ("log", "Cleanup log"), ("holds", "Legal holds"),
        ("erasures", "Erasures"))  # fmt: skip
MOST_LOOKED_AT = 2000
"""Runs that one preview made here looks at; the command looks at all."""

type Answer = HttpResponse | dict[str, Any]
"""Where to go next, or what the same page shows in addition."""


@page("GET", "POST", permission=Permission.ADMINISTER)
def show(request: ConsoleRequest, slug: str) -> HttpResponse:
    """The page; POST does one thing, or shows first what it would do."""
    tenant = request.access.tenant_to_administer(slug)
    if request.method == "GET":
        return _answer(request, tenant)
    act = chosen(request, _ACTS)
    try:
        done = act(request, tenant)
    except DurableOpsError as refused:
        return _answer(request, tenant, wrong=str(refused), status=status_of(refused))
    return done if isinstance(done, HttpResponse) else _answer(request, tenant, **done)


def _wanted(request: ConsoleRequest, tenant: Tenant) -> tuple[str, Length, Tenant | None, str]:
    """Which rule somebody asks about."""
    given = request.POST
    subject, workflow = given.get("subject", ""), given.get("workflow", "").strip()
    everybody = given.get("scope") == "all"
    if everybody and not request.access.everything:
        raise NotAllowed(Permission.ADMINISTER, "every tenant")
    return subject, parse(given.get("length", "")), None if everybody else tenant, workflow


def _rehearse(request: ConsoleRequest, tenant: Tenant) -> Answer:
    subject, length, place, workflow = _wanted(request, tenant)
    seen = rehearsal.rehearse(
        subject, keeps=length.keeps, seconds=length.seconds, tenant=place, workflow=workflow
    )  # fmt: skip
    return {"rehearsal": seen}


def _set(request: ConsoleRequest, tenant: Tenant) -> Answer:
    subject, length, place, workflow = _wanted(request, tenant)
    made = rules.set_rule(
        subject, keeps=length.keeps, seconds=length.seconds, tenant=place, workflow=workflow,
        actor=request.access.actor, reason=request.POST.get("reason", ""),
    )  # fmt: skip
    said(request, f"Rule {made.pk} is set. Upkeep looks at the runs it concerns again.")
    return _to(tenant, "rules")


def _preview(request: ConsoleRequest, tenant: Tenant) -> Answer:
    database = rehearsal.OfRequest()
    seen = preview.look(database, clock.db_now(), tenant=tenant, most=MOST_LOOKED_AT)
    stored = preview.store(seen, tenant=tenant, by=request.access.actor)
    return redirect(f"{_address(tenant, 'preview')}&preview={stored.pk}")


def _place(request: ConsoleRequest, tenant: Tenant) -> Answer:
    given = request.POST
    what = given.get("what", "")
    if what not in ("run", "label", "tenant"):
        raise InputRefused("say whether a run, a label or the whole tenant is to be held.")
    label = given.get("label", "").strip() if what == "label" else ""
    if what == "label" and not label:
        raise InputRefused("name the label that is to be held.")
    made = holds.place(
        tenant=tenant, run_id=_run_id(given.get("run", "")) if what == "run" else None, label=label,
        value=given.get("value", "").strip() if label else "", actor=request.access.actor,
        reason=given.get("reason", ""),
    )  # fmt: skip
    said(request, f"Legal hold {made.pk} stands. Nothing of what it names goes any more.")
    return _to(tenant, "holds")


def _lift(request: ConsoleRequest, tenant: Tenant) -> Answer:
    number = request.POST.get("hold", "")
    if not number.isdecimal() or len(number) > 18:
        raise InputRefused("say which hold.")
    holds.lift(
        int(number), tenant=tenant, actor=request.access.actor, reason=request.POST.get("reason", "")
    )  # fmt: skip
    said(request, f"Legal hold {number} is lifted. What is due goes with the cleaner's next looks.")
    return _to(tenant, "holds")


def _asked(request: ConsoleRequest) -> tuple[str, str]:
    given = request.POST
    if given.get("what") == "everything":
        return "", ""
    label = given.get("label", "").strip()
    if given.get("what") != "label" or not label:
        raise InputRefused("name the label, or say that everything is meant.")
    return label, given.get("value", "").strip()


def _ask(request: ConsoleRequest, tenant: Tenant) -> Answer:
    label, value = _asked(request)
    return {"concerned": retention.concerned(tenant, label=label, value=value), "label": label, "value": value}


def _erase(request: ConsoleRequest, tenant: Tenant) -> Answer:
    label, value = _asked(request)
    if request.POST.get("sure") != tenant.slug:
        shown = retention.concerned(tenant, label=label, value=value)
        wrong = f"type {tenant.slug} to show that you mean it: what was erased does not come back."
        return {"concerned": shown, "label": label, "value": value, "wrong": wrong, "status": 422}
    made = erasures.request(
        tenant=tenant, label=label, value=value, actor=request.access.actor, reason=request.POST.get("reason", "")
    )
    said(request, f"Erasure {made.pk} is asked for. Upkeep does it; what has to stay will be said here, and why.")
    return _to(tenant, "erasures")


_ACTS: dict[str, Callable[[ConsoleRequest, Tenant], Answer]] = {
    "rehearse": _rehearse,
    "set": _set,
    "preview": _preview,
    "place": _place,
    "lift": _lift,
    "ask": _ask,
    "erase": _erase,
}


def _run_id(text: str) -> UUID:
    try:
        return UUID(text.strip())
    except ValueError:
        raise InputRefused(f"{text[:40]!r} is no run's id.") from None


def _address(tenant: Tenant, tab: str) -> str:
    return f"{reverse('console:retention', args=[tenant.slug])}?tab={tab}"


def _to(tenant: Tenant, tab: str) -> HttpResponse:
    return redirect(_address(tenant, tab))


def _answer(request: ConsoleRequest, tenant: Tenant, *, status: int = 200, **more: Any) -> HttpResponse:
    asked = request.GET.get("tab", "rules")
    tab = asked if asked in dict(TABS) else "rules"
    context = {
        **context_for(request, "retention"), "tenant": tenant, "tab": tab, "tabs": TABS,
        "tenants": [one for one in request.access.tenants if request.access.may(Permission.ADMINISTER, one.pk)],
        "given": request.POST if request.method == "POST" else request.GET,
        **_PARTS[tab](request, tenant), **more,
    }  # fmt: skip
    return render(request, "console/retention/page.html", context, status=status)


def _rules(request: ConsoleRequest, tenant: Tenant) -> dict[str, Any]:
    measured = sizes.growth()
    return {
        "subjects": SUBJECTS,
        "matrix": retention.matrix(tenant),
        "sizes": measured,
        "total": sum(one.bytes for one in measured),
        "everything": request.access.everything,
    }


def _previews(request: ConsoleRequest, tenant: Tenant) -> dict[str, Any]:
    made = list(RetentionPreview.objects.filter(tenant=tenant).order_by("-pk")[:10])
    number = request.GET.get("preview", "")
    chosen = next((one for one in made if str(one.pk) == number), made[0] if made else None)
    stays = [(one, in_words(one["why"])) for one in chosen.figures["stays"]] if chosen else []
    return {"previews": made, "chosen": chosen, "stays": stays, "most": MOST_LOOKED_AT}


def _log(request: ConsoleRequest, tenant: Tenant) -> dict[str, Any]:
    given = request.GET.get("before", "")
    before = int(given) if given.isdecimal() and len(given) < 19 else None
    rows, older = retention.cleanups(tenant, before=before)
    return {"cleanups": rows, "older": older, "before": before}


def _holds(_request: ConsoleRequest, tenant: Tenant) -> dict[str, Any]:
    standing, lifted = retention.holds(tenant)
    return {"standing": standing, "lifted": lifted}


def _erasures(_request: ConsoleRequest, tenant: Tenant) -> dict[str, Any]:
    return {"erasures": retention.erasures(tenant)}


_PARTS: dict[str, Callable[[ConsoleRequest, Tenant], dict[str, Any]]] = {
    "rules": _rules,
    "preview": _previews,
    "log": _log,
    "holds": _holds,
    "erasures": _erasures,
}
