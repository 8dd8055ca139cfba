"""Verbs on one run, on what it asks people, and on everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from django.core.management.base import CommandError
from django.db import connection

from durableops.checkpoints.codec import hash_hex
from durableops.engine import branching, commands, compensating, guard, reviewing
from durableops.engine.acting import Done
from durableops.engine.retention import holds
from durableops.errors import RunNotFound
from durableops.management.given import json_of_file
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.plans import as_text
from runs.models import PauseSwitch, Run, Tenant, Wait


def told(asked: Asked, done: Done) -> Told:
    """What a verb on a run came to."""
    facts = {"verb": asked.verb, "run": str(done.run_id), "state": done.state}
    return Told(message=done.message, facts=facts)


def _plain(verb: Callable[..., Done]) -> Callable[[Asked], Told]:
    return lambda asked: told(asked, verb(asked.run_id(), tenant=asked.tenant, **asked.said))


def _guarded(verb: Callable[..., Done], **more: Callable[[Asked], Any]) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        given = {name: read(asked) for name, read in more.items()}
        return told(asked, verb(asked.run_id(), tenant=asked.tenant, plan_hash=asked.plan_hash, **asked.said, **given))

    return do


def planned(verb: str, **more: Callable[[Asked], Any]) -> Callable[[Asked], Told]:
    """What the guard says of a verb on a run."""

    def show(asked: Asked) -> Told:
        run_id = asked.run_id()
        if not Run.objects.filter(pk=run_id, tenant=asked.tenant).exists():
            raise RunNotFound(f"there is no run {run_id} here.", run=str(run_id))
        with connection.cursor() as cursor:
            found = guard.plan(cursor, verb, run_id, **{name: read(asked) for name, read in more.items()})
        return Told(message=as_text(found.as_json()), facts={"run": str(run_id), **found.as_json()})

    return show


def _ended(verb: Callable[..., Done]) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        becomes = asked.options["done"] or commands.WHAT_WAS_DONE[0]
        return told(asked, verb(asked.run_id(), tenant=asked.tenant, done=becomes, **asked.said))

    return do


def _retry_from(asked: Asked) -> Told:
    done = branching.retry_from(
        asked.run_id(), tenant=asked.tenant, seq=asked.checkpoint(), plan_hash=asked.plan_hash, **asked.said
    )
    return told(asked, done)


def _fork(asked: Asked) -> Told:
    """Once for each --key: a script that is called again gets the fork it made."""
    file = asked.options["state_file"]
    key = asked.options["key"]
    done = branching.fork(
        asked.run_id(), tenant=asked.tenant, seq=asked.checkpoint(), plan_hash=asked.plan_hash,
        once=f"operate-{uuid4() if key is None else hash_hex(key)}",
        state=None if file is None else json_of_file(file, what="--state-file"), **asked.said,
    )  # fmt: skip
    facts = {"verb": asked.verb, "run": str(done.run_id), "forked_from": asked.subject, "state": done.state}
    return Told(message=done.message, facts=facts)


def _decided(verb: Callable[..., Done]) -> Callable[[Asked], Told]:
    def do(asked: Asked) -> Told:
        run_id, tenant = asked.run_id(), asked.tenant
        wait_id = _open_approval(run_id, tenant, asked.options["approval"])
        return told(asked, verb(wait_id, tenant=tenant, **asked.said))

    return do


def _open_approval(run_id: UUID, tenant: Tenant, name: str | None) -> int:
    found = Wait.objects.filter(run_id=run_id, tenant=tenant, kind="approval", state="open").order_by("pk")
    waits = list(found.filter(name=name) if name else found)
    if len(waits) == 1:
        return waits[0].pk
    if waits:
        raise CommandError(f"run {run_id} asks for {', '.join(wait.name for wait in waits)}: name one with --approval.")
    asked = f" named {name!r}" if name else ""
    raise CommandError(f"run {run_id} of tenant {tenant.slug!r} has no open approval{asked}. Nothing was changed.")


def _pause_all(asked: Asked) -> Told:
    asked.nothing_named()
    said = asked.said
    commands.set_switch("all", actor=said["actor"], reason=said["reason"])
    message = "everything is paused: nothing is claimed, and what runs is handed back at its next commit."
    return Told(message=message, facts={"verb": asked.verb})


def _resume_all(asked: Asked) -> Told:
    asked.nothing_named()
    switch = PauseSwitch.objects.filter(scope="all").first()
    if switch is None or not commands.lift_switch(switch, **asked.said):
        raise CommandError("nothing is paused as a whole.")
    return Told(message="everything goes on.", facts={"verb": asked.verb})


VERBS: dict[str, Verb] = {
    "pause": Verb(do=_plain(commands.pause), about="a run"),
    "resume": Verb(do=_plain(commands.resume), about="a run"),
    "cancel": Verb(
        do=_ended(commands.cancel), about="a run (--done: what becomes of what it did)", plan=planned("cancel")
    ),
    "retry": Verb(do=_guarded(commands.retry), about="a run that ended badly", plan=planned("retry")),
    "retry-from": Verb(
        do=_retry_from, about="a run that goes back (--checkpoint)", plan=planned("retry_from", seq=Asked.checkpoint)
    ),
    "fork": Verb(do=_fork, about="a run (--checkpoint, --state-file)", plan=planned("fork", seq=Asked.checkpoint)),
    "compensate": Verb(
        do=_guarded(compensating.compensate), about="a finished run: what it did is undone", plan=planned("compensate")
    ),
    "recheck": Verb(do=_plain(commands.recheck), about="a run in review"),
    "migrate": Verb(do=_guarded(reviewing.migrate), about="a run of an older version", plan=planned("migrate")),
    "revert": Verb(do=_plain(reviewing.revert), about="a run that was migrated"),
    "pin": Verb(do=_guarded(reviewing.pin), about="a run", plan=planned("pin")),
    "unpin": Verb(do=_plain(reviewing.unpin), about="a run"),
    "reject": Verb(do=_ended(reviewing.reject), about="a run in review (--done)", plan=planned("cancel")),
    "ask_second": Verb(do=_plain(reviewing.ask_second), about="a run in review"),
    "approve": Verb(do=_decided(commands.approve), about="a run that asks (--approval)"),
    "refuse": Verb(do=_decided(commands.refuse), about="a run that asks (--approval)"),
    "place_hold": Verb(do=_plain(holds.hold_run), about="a run: nothing of it goes while the legal hold stands"),
    "lift_hold": Verb(do=_plain(holds.let_run_go), about="a run that is held by itself"),
    "pause-all": Verb(do=_pause_all, about="nothing: everything"),
    "resume-all": Verb(do=_resume_all, about="nothing: everything"),
}
