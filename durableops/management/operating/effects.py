"""Verbs on effects in doubt and on the queues of legacy systems."""

from __future__ import annotations

from collections.abc import Callable

from django.core.management.base import CommandError

from durableops.engine import choices, settlements, settling, systems
from durableops.errors import DoubtNotFound
from durableops.management.given import json_of_text
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.plans import as_text
from runs.models import Doubt, System

A_DOUBT = "a doubt; the Inbox and GET /doubts show it"


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


VERBS: dict[str, Verb] = {
    "settle": Verb(do=_settle, about="a doubt (--as, --evidence)", plan=_plan_of_settling),
    "release": Verb(do=_release, about="a doubt: its system's queue goes on"),
    "pause-system": Verb(do=_system(systems.pause), about="a legacy system"),
    "resume-system": Verb(do=_system(systems.resume), about="a legacy system"),
}
