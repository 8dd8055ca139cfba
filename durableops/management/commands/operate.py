"""`manage.py operate VERB …`: the operators' verbs for scripts and for hosts without a browser."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine import commands, settlements, systems
from durableops.errors import DurableOpsError
from durableops.management.operating import budgets, bulks, clocks, compensations, effects, messages, quotas, runs
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.plans import as_text

VERBS: dict[str, Verb] = (
    runs.VERBS
    | budgets.VERBS
    | clocks.VERBS
    | effects.VERBS
    | compensations.VERBS
    | messages.VERBS
    | bulks.VERBS
    | quotas.VERBS
)
LISTED = ("poisoned", "pending", "done", "refused", "failed")


class Command(BaseCommand):
    help = "Do what an operator does: each verb is recorded with its actor and reason."

    def add_arguments(self, parser: CommandParser) -> None:
        about = "; ".join(f"{name}: {verb.about}" for name, verb in VERBS.items())
        parser.add_argument("verb", choices=VERBS, metavar="VERB", help=f"what to do, and to what. {about}")
        parser.add_argument("subject", nargs="?", help="the id of the run, the number or the name it is about")
        parser.add_argument("--reason", help="why; it stands in the audit log")
        parser.add_argument("--tenant", default="default", help="whose it is (default: %(default)s)")
        parser.add_argument("--actor", default="command line", help="who; it stands in the audit log")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
        plan = parser.add_argument_group("what would be sent again")
        plan.add_argument("--plan", action="store_true", help="only tell what the verb would send again, and reuse")
        plan.add_argument("--plan-hash", metavar="HASH", help="do it only if that is still the plan")
        plan.add_argument("--yes", action="store_true", help="do it whatever the plan is by now")
        parser.add_argument("--approval", metavar="NAME", help="which approval, where the run has several open")
        parser.add_argument("--until", metavar="INSTANT", help="extend: the new end, such as 2026-12-24T18:00:00Z")
        parser.add_argument("--wait", metavar="NAME", help="extend: the wait whose end it is; else the run's deadline")
        parser.add_argument(
            "--budget", metavar="UNIT=AMOUNT", action="append", help="add-budget, add-tenant-budget: more"
        )
        parser.add_argument("--set", metavar="NAME=VALUE", action="append", help="set-quota: a limit, or none")
        parser.add_argument("--resource", help="set-quota: the shared resource, instead of a tenant")
        parser.add_argument("--as", dest="how", choices=settlements.HOW, help="settle: what became of it")
        parser.add_argument("--downstream-id", default="", help="the other side's id of what was made")
        parser.add_argument("--result", help="settle: what the step gets, as JSON")
        parser.add_argument("--evidence", default="", help="how it is known, or what proves it")
        parser.add_argument("--to", choices=systems.MOVES, help="move-call: where among its tenant's")
        parser.add_argument("--checkpoint", type=int, help="retry-from, fork: where it begins")
        parser.add_argument("--state-file", metavar="FILE", help="fork: the whole edited state as JSON; - reads it")
        parser.add_argument("--key", help="fork: once for this key, however often it is called")
        many = parser.add_argument_group("many runs, and lists")
        many.add_argument("--runs", nargs="+", metavar="ID", help="bulk-preview: these runs")
        many.add_argument("--filter", metavar="TEXT", help="bulk-preview: those that match, as the console's list")
        many.add_argument("--done", choices=commands.WHAT_WAS_DONE, help="cancel, reject: what was done")
        many.add_argument("--state", choices=LISTED, help="messages, bulk-results: only those")
        many.add_argument("--after", type=int, default=0, help="bulk-results: after this line")
        many.add_argument("--limit", type=int, default=100, help="how many are listed (default: %(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        verb = VERBS[options["verb"]]
        asked = Asked(verb=options["verb"], subject=options["subject"], options=options)
        try:
            told = self._asked(verb, asked)
        except DurableOpsError as error:
            plan = error.context.get("plan")
            shown = f"\n{as_text(plan)}\nGive it with --plan-hash, or --yes for whatever it is by then." if plan else ""
            raise CommandError(f"{error}{shown}") from error
        names_run = "run" in told.facts and not asked.wants_plan and asked.verb != "fork"
        subject = f"run {told.facts['run']}: " if names_run else ""
        facts = told.facts if asked.wants_plan else {**told.facts, "message": told.message}
        self.stdout.write(json.dumps(facts, default=str) if options["json"] else f"{subject}{told.message}")

    def _asked(self, verb: Verb, asked: Asked) -> Told:
        if asked.wants_plan:
            if verb.plan is None:
                raise CommandError(f"{asked.verb!r} sends nothing again, so it has no plan.")
            return verb.plan(asked)
        return verb.do(asked)
