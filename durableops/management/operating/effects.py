"""Verbs on effects in doubt and on the queues of legacy systems."""

from __future__ import annotations

from collections.abc import Callable

from django.core.management.base import CommandError

from durableops.engine import choices, settlements, settling, system_view, systems
from durableops.errors import DoubtNotFound, SystemNotFound
from durableops.management.given import json_of_text
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.plans import as_text
from runs.models import Doubt, IdempotencyRecord, System

A_DOUBT = "a doubt; the Inbox and GET /doubts show it"
A_CALL = "a call that waits; the Systems page and GET /systems/{name} show it"


def _settle(asked: Asked) -> Told:
    options, doubt = asked.options, asked.number(A_DOUBT)
    result = options["result"]
    settlement = settlements.Settlement(
        how=options["how"] or "", downstream_id=options["downstream_id"], evidence=options["evidence"],
        result=None if result is None else json_of_text(result.encode(), what="--result"),
        has_result=result is not None,
    )  # fmt: skip
    done = settling.settle(
        doubt, tenant=asked.tenant, settlement=settlement, plan_hash=asked.plan_hash, **asked.said
    )  # fmt: skip
    facts = {"verb": asked.verb, "doubt": doubt, "run": str(done.run_id), "state": done.state}
    return Told(message=done.message, facts=facts)


def _plan_of_settling(asked: Asked) -> Told:
    number = asked.number(A_DOUBT)
    doubt = Doubt.objects.select_related("effect", "run").filter(pk=number, tenant=asked.tenant).first()
    if doubt is None:
        raise DoubtNotFound(f"there is no doubt {number} here.")
    found = choices.choices(doubt, doubt.run).as_json()
    return Told(message=as_text(found), facts={"doubt": number, "run": str(doubt.run_id), **found})


def _release(asked: Asked) -> Told:
    doubt = asked.number(A_DOUBT)
    done = settling.release(doubt, tenant=asked.tenant, **asked.said)
    facts = {"verb": asked.verb, "doubt": doubt, "run": str(done.run_id), "state": done.state}
    return Told(message=done.message, facts=facts)


def _system(verb: Callable[..., System]) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        if not asked.subject:
            raise CommandError(f"{asked.verb!r} needs the name of a system.")
        system = verb(asked.subject, tenant=asked.tenant, **asked.said)
        shown = "is paused: nothing more goes to it, of whichever tenant." if system.paused else "goes on."
        return Told(message=f"system {system.name} {shown}", facts={"verb": asked.verb, "system": system.name})

    return do


def _move(asked: Asked) -> Told:
    call = asked.number(A_CALL)
    done = systems.move(
        call, tenant=asked.tenant, to=asked.options["to"] or "", plan_hash=asked.plan_hash, **asked.said
    )
    return Told(message=done.message, facts={"verb": asked.verb, "call": call, "run": str(done.run_id)})


def _plan_of_moving(asked: Asked) -> Told:
    number, tenant = asked.number(A_CALL), asked.tenant
    call = IdempotencyRecord.objects.filter(pk=number, tenant=tenant, safety="legacy").first()
    own = [] if call is None else [one.effect_id for one in system_view.queue(call.system, [tenant.pk])]
    if call is None or number not in own:
        raise SystemNotFound(f"there is no call {number} that waits in a queue here.")
    found = systems.plan_of_move(call, own).as_json()
    place = {"system": call.system, "place": own.index(number) + 1, "of": len(own)}
    shown = f"it is number {place['place']} of {place['of']} of its tenant's at {call.system}."
    return Told(message=f"{shown}\n{as_text(found)}", facts={"call": number, **place, **found})


VERBS: dict[str, Verb] = {
    "settle": Verb(do=_settle, about="a doubt (--as, --evidence)", plan=_plan_of_settling),
    "release": Verb(do=_release, about="a doubt: its system's queue goes on"),
    "move-call": Verb(
        do=_move, about="a call that waits for a legacy system (--to first, up, down or last)", plan=_plan_of_moving
    ),
    "pause-system": Verb(do=_system(systems.pause), about="a legacy system"),
    "resume-system": Verb(do=_system(systems.resume), about="a legacy system"),
}
