"""Verbs on many runs at once: captured at a preview, started with its plan, held, and what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.http import QueryDict

from durableops.console import listing
from durableops.console.filters import RunFilter
from durableops.engine.bulk import capture, control, reading
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb, verbs
from durableops.management.operating.asked import Asked, Told, Verb, listed
from durableops.management.operating.plans import as_text
from runs.models import Bulk, Tenant

WINDOW = 200_000
"""Runs that are looked at for conditions that no index knows."""
A_BULK = "a bulk action; `operate bulk-preview` and GET /bulks show it"


def _preview(asked: Asked) -> Told:
    known = verb(asked.subject or "")
    if not known.offered:
        offered = ", ".join(each.name for each in verbs() if each.offered)
        raise CommandError(f"{known.name!r} begins elsewhere (`manage.py migrate_runs`); here: {offered}.")
    tenant, actor = asked.tenant, asked.actor
    arguments = {"done": asked.options["done"]} if asked.options["done"] else {}
    made = capture.preview(known, _selection(asked, tenant), tenant=tenant, actor=actor, arguments=arguments)
    met = reading.meets(made, known)
    fits = sum(one.runs for one in met if one.fits)
    text = [f"bulk action {made.pk} would {known.name} {fits} of {made.runs} runs ({made.selection['words']})."]
    text += [as_text(_plan(made))] if made.plan else []
    return Told(message="\n".join(text), facts=_facts(made) | {"fits": fits})


def _selection(asked: Asked, tenant: Tenant) -> Selection:
    named, text = asked.options["runs"], asked.options["filter"]
    if bool(named) == (text is not None):
        raise CommandError("choose the runs with --runs ID … or with --filter TEXT, one of them.")
    if text is None:
        return Selection(words=f"{len(named)} named", ids=[_id(each) for each in named])
    query = QueryDict(mutable=True)
    query["q"] = text
    chosen = RunFilter.read(query)
    for condition in chosen.conditions:
        if condition.wrong:
            raise CommandError(f"--filter: {condition}: {condition.wrong}")
    sql, params = listing.everything(chosen, tenant, most=capture.MOST_RUNS + 1, window=WINDOW)
    return Selection(words=chosen.text or "every run", sql=sql, params=params)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise CommandError(f"{text!r} is not the id of a run.") from None


def _plan(bulk: Bulk) -> dict[str, Any]:
    return {**bulk.plan, "plan_hash": bulk.plan_hash} if bulk.plan else {}


def _facts(bulk: Bulk) -> dict[str, Any]:
    counts = reading.counts(bulk)
    return {
        "bulk": bulk.pk, "verb": bulk.verb, "state": bulk.state, "runs": bulk.runs, "plan": _plan(bulk),
        "outcomes": asdict(counts),
    }  # fmt: skip


def _found(asked: Asked) -> Bulk:
    return control.find(asked.number(A_BULK), tenant=asked.tenant)


def _show(asked: Asked) -> Told:
    bulk = _found(asked)
    facts = _facts(bulk)
    counted = ", ".join(f"{number} {name}" for name, number in facts["outcomes"].items())
    return Told(message=f"bulk action {bulk.pk} ({bulk.verb}) is {bulk.state}: {counted}.", facts=facts)


def _plan_of(asked: Asked) -> Told:
    bulk = _found(asked)
    if not bulk.plan:
        raise CommandError(f"{bulk.verb!r} sends nothing again, so bulk action {bulk.pk} has no plan.")
    return Told(message=as_text(_plan(bulk)), facts={"bulk": bulk.pk, **_plan(bulk)})


def _results(asked: Asked) -> Told:
    bulk, limit = _found(asked), asked.limit
    page = reading.results(bulk, state=asked.options["state"] or "", after=asked.options["after"], limit=limit)
    facts = [
        {"seq": row.item.seq, "run": str(row.item.run_id), "state": row.item.state, "message": row.item.message}
        for row in page.rows
    ]
    lines = [f"{one['seq']}  {one['state']}  run {one['run']}  {one['message']}" for one in facts]
    told = listed(asked, "results", facts, lines, more=page.next is not None)
    return Told(message=told.message, facts={**told.facts, "bulk": bulk.pk, "next": page.next})


def _controlled(do: Callable[..., Bulk], *, guarded: bool = False) -> Callable[[Asked], Told]:
    def act(asked: Asked) -> Told:
        more = {"plan_hash": asked.plan_hash} if guarded else {}
        bulk = do(asked.number(A_BULK), tenant=asked.tenant, **asked.said, **more)
        return Told(message=f"bulk action {bulk.pk} is {bulk.state}; upkeep executes it.", facts=_facts(bulk))

    return act


VERBS: dict[str, Verb] = {
    "bulk-preview": Verb(do=_preview, about="a verb: captures runs (--runs or --filter) and tells what it would do"),
    "bulk-start": Verb(do=_controlled(control.start, guarded=True), about="a previewed bulk action", plan=_plan_of),
    "bulk-show": Verb(do=_show, about="a bulk action: how far it is"),
    "bulk-results": Verb(do=_results, about="a bulk action: what came of each run (--state, --after)"),
    "bulk-pause": Verb(do=_controlled(control.hold), about="a bulk action"),
    "bulk-resume": Verb(do=_controlled(control.go_on), about="a bulk action"),
    "bulk-abort": Verb(do=_controlled(control.abort), about="a bulk action"),
}
