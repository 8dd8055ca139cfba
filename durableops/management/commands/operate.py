"""`manage.py operate VERB …`: the operators' verbs for scripts and for hosts without a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine import commands
from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import DurableOpsError
from runs.models import PauseSwitch, Wait

ON_RUNS: dict[str, Callable[..., commands.Done]] = {
    "pause": commands.pause,
    "resume": commands.resume,
    "cancel": commands.cancel,
    "retry": commands.retry,
    "recheck": commands.recheck,
}
ON_APPROVALS: dict[str, Callable[..., commands.Done]] = {"approve": commands.approve, "refuse": commands.refuse}
ON_EVERYTHING = ("pause-all", "resume-all")


class Command(BaseCommand):
    help = "Do what an operator does: each verb is recorded with its actor and reason."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=[*ON_RUNS, *ON_APPROVALS, *ON_EVERYTHING])
        parser.add_argument("run", nargs="?", type=UUID, help="the run's id; not for pause-all and resume-all")
        parser.add_argument("--reason", required=True, help="why; it stands in the audit log")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--actor", default="command line")
        parser.add_argument("--approval", help="name of the approval, where the run has several open")

    def handle(self, *args: Any, **options: Any) -> None:
        verb, run_id = options["verb"], options["run"]
        said = {"actor": options["actor"], "reason": options["reason"]}
        if verb in ON_EVERYTHING:
            self.stdout.write(_switch(verb, **said))
            return
        if run_id is None:
            raise CommandError(f"'{verb}' needs the id of a run.")
        tenant = get_or_make_tenant(options["tenant"])
        try:
            if verb in ON_RUNS:
                done = ON_RUNS[verb](run_id, tenant=tenant, **said)
            else:
                done = ON_APPROVALS[verb](_open_approval(run_id, options["approval"]), tenant=tenant, **said)
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"run {run_id}: {done.message}")


def _open_approval(run_id: UUID, name: str | None) -> int:
    found = Wait.objects.filter(run_id=run_id, kind="approval", state="open")
    waits = list(found.filter(name=name) if name else found)
    if len(waits) != 1:
        raise CommandError(f"run {run_id} has {len(waits)} open approvals; name one with --approval.")
    return waits[0].pk


def _switch(verb: str, *, actor: str, reason: str) -> str:
    if verb == "pause-all":
        commands.set_switch("all", actor=actor, reason=reason)
        return "everything is paused: nothing is claimed, and what runs is handed back at its next commit."
    switch = PauseSwitch.objects.filter(scope="all").first()
    if switch is None or not commands.lift_switch(switch, actor=actor, reason=reason):
        raise CommandError("nothing is paused as a whole.")
    return "everything goes on."
