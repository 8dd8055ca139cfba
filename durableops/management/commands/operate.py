"""`manage.py operate VERB …`: the operators' verbs for scripts and for hosts without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.checkpoints.codec import parse_input
from durableops.conf import get_conf
from durableops.engine import commands, reviewing, settlements, settling, systems
from durableops.errors import DurableOpsError
from durableops.management.given import existing_tenant
from runs.models import PauseSwitch, System, Tenant, Wait

ON_RUNS: dict[str, Callable[..., commands.Done]] = {
    "pause": commands.pause,
    "resume": commands.resume,
    "cancel": commands.cancel,
    "retry": commands.retry,
    "recheck": commands.recheck,
    "migrate": reviewing.migrate,
    "revert": reviewing.revert,
    "pin": reviewing.pin,
    "unpin": reviewing.unpin,
    "reject": reviewing.reject,
    "ask_second": reviewing.ask_second,
}
ON_DOUBTS = ("settle", "release")
ON_SYSTEMS: dict[str, Callable[..., System]] = {"pause-system": systems.pause, "resume-system": systems.resume}
ON_APPROVALS: dict[str, Callable[..., commands.Done]] = {"approve": commands.approve, "refuse": commands.refuse}
LONGEST_ACTOR = 200
ON_EVERYTHING = ("pause-all", "resume-all")


class Command(BaseCommand):
    help = "Do what an operator does: each verb is recorded with its actor and reason."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = [*ON_RUNS, *ON_APPROVALS, *ON_DOUBTS, *ON_SYSTEMS, *ON_EVERYTHING]
        parser.add_argument("verb", choices=verbs, help="what to do")
        parser.add_argument(
            "run", nargs="?", help="the run's id; the doubt's number, the system's name; not for pause-all, resume-all"
        )
        parser.add_argument("--reason", required=True, help="why; it stands in the audit log")
        parser.add_argument("--tenant", default="default", help="whose run it is (default: %(default)s)")
        parser.add_argument("--actor", default="command line", help="who; it stands in the audit log")
        parser.add_argument("--approval", metavar="NAME", help="which approval, where the run has several open")
        parser.add_argument("--as", dest="how", choices=settlements.HOW, help="settle: what became of it")
        parser.add_argument("--downstream-id", default="", help="settle: the other side's id of what was made")
        parser.add_argument("--result", help="settle: what the step gets, as JSON")
        parser.add_argument("--evidence", default="", help="settle: how it is known")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        verb, said = options["verb"], {"actor": options["actor"].strip(), "reason": options["reason"].strip()}
        for name, text in said.items():
            if not text:
                raise CommandError(f"--{name} is empty; it stands in the audit log, so say it.")
        if not said["actor"].isprintable() or len(said["actor"]) > LONGEST_ACTOR:
            raise CommandError(f"--actor is no name: give one line of at most {LONGEST_ACTOR} characters.")
        try:
            done = _switched(verb, options["run"], **said) if verb in ON_EVERYTHING else _done(verb, options, said)
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        subject = f"run {done['run']}: " if "run" in done else ""
        self.stdout.write(json.dumps(done) if options["json"] else f"{subject}{done['message']}")


def _done(verb: str, options: dict[str, Any], said: dict[str, str]) -> dict[str, Any]:
    if verb in ON_DOUBTS:
        return _about_doubt(verb, options, said)
    if verb in ON_SYSTEMS:
        if not options["run"]:
            raise CommandError(f"{verb!r} needs the name of a system.")
        system = ON_SYSTEMS[verb](options["run"], tenant=existing_tenant(options["tenant"]), **said)
        shown = "is paused: nothing more goes to it, of whichever tenant." if system.paused else "goes on."
        return {"verb": verb, "system": system.name, "message": f"system {system.name} {shown}"}
    run_id, tenant = _run_id(verb, options["run"]), existing_tenant(options["tenant"])
    if verb in ON_RUNS:
        done = ON_RUNS[verb](run_id, tenant=tenant, **said)
    else:
        done = ON_APPROVALS[verb](_open_approval(run_id, tenant, options["approval"]), tenant=tenant, **said)
    return {"verb": verb, "run": str(run_id), "state": done.state, "message": done.message}


def _about_doubt(verb: str, options: dict[str, Any], said: dict[str, str]) -> dict[str, Any]:
    given, tenant = options["run"] or "", existing_tenant(options["tenant"])
    if not given.isdecimal() or len(given) > 18:
        raise CommandError(f"{verb!r} needs the number of a doubt; the Inbox and GET /doubts show it.")
    if verb == "release":
        done = settling.release(int(given), tenant=tenant, **said)
    else:
        settlement = settlements.Settlement(
            how=options["how"] or "", downstream_id=options["downstream_id"], evidence=options["evidence"],
            result=_json(options["result"]), has_result=options["result"] is not None,
        )  # fmt: skip
        done = settling.settle(int(given), tenant=tenant, settlement=settlement, **said)
    return {"verb": verb, "doubt": int(given), "run": str(done.run_id), "state": done.state, "message": done.message}


def _json(text: str | None) -> Any:
    if text is None:
        return None
    return parse_input(text.encode(), max_bytes=get_conf().payload_max_bytes, what="--result")


def _run_id(verb: str, given: str | None) -> UUID:
    if given is None:
        raise CommandError(f"{verb!r} needs the id of a run.")
    try:
        return UUID(given)
    except ValueError:
        raise CommandError(f"{given!r} is not the id of a run; `manage.py start` and the console show it.") from None


def _open_approval(run_id: UUID, tenant: Tenant, name: str | None) -> int:
    found = Wait.objects.filter(run_id=run_id, tenant=tenant, kind="approval", state="open").order_by("pk")
    waits = list(found.filter(name=name) if name else found)
    if len(waits) == 1:
        return waits[0].pk
    if waits:
        raise CommandError(f"run {run_id} asks for {', '.join(wait.name for wait in waits)}: name one with --approval.")
    asked = f" named {name!r}" if name else ""
    raise CommandError(f"run {run_id} of tenant {tenant.slug!r} has no open approval{asked}. Nothing was changed.")


def _switched(verb: str, run: str | None, *, actor: str, reason: str) -> dict[str, Any]:
    if run is not None:
        raise CommandError(f"{verb!r} is about everything; leave out {run!r}.")
    if verb == "pause-all":
        commands.set_switch("all", actor=actor, reason=reason)
        message = "everything is paused: nothing is claimed, and what runs is handed back at its next commit."
        return {"verb": verb, "message": message}
    switch = PauseSwitch.objects.filter(scope="all").first()
    if switch is None or not commands.lift_switch(switch, actor=actor, reason=reason):
        raise CommandError("nothing is paused as a whole.")
    return {"verb": verb, "message": "everything goes on."}
