"""The review desk: a group of runs with the same finding, one of them in detail, and editing its state or step."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max, Min
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops.access import Permission
from durableops.authoring import registry
from durableops.checkpoints.codec import hash_hex, parse_input
from durableops.conf import get_conf
from durableops.console import diffs, guarding, reviewed
from durableops.console.access import NotAllowed
from durableops.console.http import ConsoleRequest, context_for, page, refusal, said
from durableops.engine import guard, reshaping
from durableops.engine.bulk import capture
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from durableops.errors import InputRefused, PlanChanged, TransitionRefused, WorkflowNotFound
from durableops.masking import mask
from runs.models import Review, Run

PER_PAGE = 50
MAX_SELECTED = 1000
MAX_EDITED_CHARACTERS = 200_000
_ALIKE = """
SELECT v.run_id AS id FROM runs_review v
WHERE v.tenant_id = %(of)s AND v.fingerprint = %(fingerprint)s AND v.closed_at IS NULL ORDER BY v.id DESC"""


@page("GET", "POST", permission=Permission.SIGNED_IN)
def group(request: ConsoleRequest, fingerprint: str) -> HttpResponse:
    """All that have one finding; POST captures the chosen ones, or all of one tenant, as a bulk migration."""
    tenants = [one.pk for one in request.access.tenants if request.access.may(Permission.REVIEW, one.pk)]
    alike = Review.objects.filter(tenant_id__in=tenants, fingerprint=fingerprint, closed_at=None)
    if not tenants:
        _refuse_members(request, fingerprint)
    if request.method == "POST":
        return _capture(request, fingerprint, tenants)
    after = request.GET.get("after", "")
    rows = alike.select_related("run__tenant", "plan", "target").order_by("id")
    found = list(rows.filter(pk__gt=int(after) if after.isdecimal() and len(after) < 19 else 0)[: PER_PAGE + 1])
    first = found[0] if found else rows.first()
    if first is None:
        raise Http404("There is no open review of this kind here.")
    counted = alike.values("tenant_id", "tenant__slug").annotate(n=Count("id"), oldest=Min("found_at"))
    by_tenant = counted.annotate(newest=Max("found_at")).order_by("tenant__slug")
    return render(request, "console/reviews/group.html", {
        **context_for(request, "inbox"), "first": first, "rows": found[:PER_PAGE], "by_tenant": list(by_tenant[:200]),
        "fingerprint": fingerprint, "following": found[PER_PAGE - 1].pk if len(found) > PER_PAGE else "",
        "plans": reviewed.side_by_side(first.plan, first.target, ""), "newest": _newest(first.workflow),
    })  # fmt: skip


@page("GET", permission=Permission.SIGNED_IN)
def one(request: ConsoleRequest, review_id: int) -> HttpResponse:
    """One finding: both plans, the checkpoint before and after, what is at stake, what happens next."""
    review, run = _find(request, review_id)
    sight = request.access.sees_payloads(run.tenant_id)
    alike = Review.objects.filter(tenant_id=review.tenant_id, fingerprint=review.fingerprint, closed_at=None)
    return render(request, "console/reviews/one.html", {
        **context_for(request, "inbox"), "review": review, "run": run, "sight": sight,
        "alike": alike.count() if review.closed_at is None else 0,
        "plans": reviewed.side_by_side(review.plan, review.target, run.step_id),
        "ahead": reviewed.ahead(review, run, sight=sight),
    })  # fmt: skip


@page("GET", "POST", permission=Permission.SIGNED_IN)
def edit(request: ConsoleRequest, review_id: int) -> HttpResponse:
    """Another state or step. It is shown as a difference first; sent once more as it was compared, it is applied."""
    review, run = _find(request, review_id)
    if request.method == "GET":
        return _ask(request, review, run)
    reason, step = request.POST.get("reason", "").strip(), request.POST.get("step", "")
    if not reason:
        return _ask(request, review, run, wrong="Say why: the reason stands in the audit.")
    try:
        state = _typed(request, run)
        mark = hash_hex(json.dumps([state, step, run.head_seq], sort_keys=True))
        if request.POST.get("compared", "") != mark:
            return _compare(request, review, run, state, step, mark)
        done = reshaping.edit(
            run.pk, tenant=run.tenant, actor=request.access.actor, reason=reason, state=state, step_id=step,
            finding=review.fingerprint, plan_hash=request.POST.get("plan_hash") or guard.UNSEEN,
        )  # fmt: skip
    except InputRefused as refused:
        return _ask(request, review, run, wrong=str(refused))
    except PlanChanged as refused:
        return _compare(request, review, run, state, step, mark, wrong=str(refused))
    except TransitionRefused as refused:
        return _ask(request, review, run, wrong=str(refused), status=409)
    said(request, f"The run was {done.message}")
    return redirect("console:run", run_id=run.pk)


def _refuse_members(request: ConsoleRequest, fingerprint: str) -> None:
    """Tell members without the right that they lack it; for others there is nothing here."""
    theirs = Review.objects.filter(tenant_id__in=request.access.tenant_ids, fingerprint=fingerprint, closed_at=None)
    found = theirs.select_related("tenant").first()
    if found is not None:
        raise NotAllowed(Permission.REVIEW, found.tenant.slug)


def _capture(request: ConsoleRequest, fingerprint: str, tenants: list[int]) -> HttpResponse:
    wanted = request.POST.get("tenant", "")
    tenant = next((one for one in request.access.tenants if one.slug == wanted and one.pk in tenants), None)
    if tenant is None:
        raise Http404("There is no such tenant.")
    first = Review.objects.filter(tenant=tenant, fingerprint=fingerprint, closed_at=None).first()
    if first is None:
        raise Http404("There is no open review of this kind here.")
    try:
        words, of = f"in review alike: {fingerprint[:8]}", {"of": tenant.pk, "fingerprint": fingerprint}
        if request.POST.get("which") == "all":
            chosen = Selection(words=f"all {words}", sql=_ALIKE, params=of)
        else:
            ids = _ticked(request)
            chosen = Selection(words=f"{len(ids)} selected, {words}", ids=ids)
        version = registry.workflow(first.workflow, None).version
        arguments = {"workflow": first.workflow, "version": version, "finding": fingerprint}
        made = capture.preview(verb("migrate"), chosen, tenant=tenant, actor=request.access.actor, arguments=arguments)
    except (InputRefused, WorkflowNotFound) as refused:
        return refusal(request, str(refused), status=422)
    return redirect("console:bulk", bulk_id=made.pk)


def _ticked(request: ConsoleRequest) -> list[UUID]:
    given = request.POST.getlist("run")[:MAX_SELECTED]
    try:
        ids = [UUID(one) for one in given]
    except ValueError:
        raise InputRefused("what was ticked are no runs.") from None
    if not ids:
        raise InputRefused("tick the runs that are meant first, or take all of them.")
    return ids


def _find(request: ConsoleRequest, review_id: int) -> tuple[Review, Run]:
    review = Review.objects.select_related("plan", "target").filter(pk=review_id).first()
    if review is None or review.tenant_id not in request.access.tenant_ids:
        raise Http404("There is no such review.")
    run = request.access.run(review.run_id)
    request.access.require_verb("migrate", run.tenant)
    return review, run


def _typed(request: ConsoleRequest, run: Run) -> dict[str, Any] | None:
    """The state as it was typed; None where it stays. Raises InputRefused."""
    text = request.POST.get("state", "").strip()
    if not text or not request.access.sees_payloads(run.tenant_id):
        return None
    state = parse_input(text, max_bytes=get_conf().payload_max_bytes, what="the state")
    if not isinstance(state, dict):
        raise InputRefused("the state is not a JSON object with the fields of its schema.", path="/state")
    return None if state == mask(json.loads(reviewed.state_text(run))) else state


def _compare(
    request: ConsoleRequest, review: Review, run: Run, state: dict[str, Any] | None, step: str, mark: str,
    wrong: str = "",
) -> HttpResponse:  # fmt: skip
    with connection.cursor() as cursor:
        found = reshaping.preview(cursor, run, state=state, step_id=step)
    sight = request.access.sees_payloads(run.tenant_id)
    told = diffs.lines(reviewed.state_text(run), found.becomes.state) if sight else []
    return _ask(
        request, review, run, wrong=wrong, diff=told, compared=mark, status=409 if wrong else 200, found=found.becomes,
        means=guarding.meanings(found.plan), plan_hash=found.plan.hash,
    )  # fmt: skip


def _ask(
    request: ConsoleRequest, review: Review, run: Run, *, wrong: str = "", status: int = 0, **more: Any
) -> HttpResponse:
    text, sight = reviewed.state_text(run), request.access.sees_payloads(run.tenant_id)
    context = {
        **context_for(request, "inbox"), "review": review, "run": run, "wrong": wrong, "sight": sight,
        "steps": reviewed.steps_ahead(run), "step": request.POST.get("step") or run.step_id,
        "edits": sight and len(text) <= MAX_EDITED_CHARACTERS, "newest": _newest(run.workflow),
        "state": request.POST.get("state") or json.dumps(mask(json.loads(text)), indent=2, ensure_ascii=False),
        "reason": request.POST.get("reason", ""), **more,
    }  # fmt: skip
    return render(request, "console/reviews/edit.html", context, status=status or (422 if wrong else 200))


def _newest(workflow: str) -> int | None:
    try:
        return registry.workflow(workflow, None).version
    except WorkflowNotFound:
        return None
