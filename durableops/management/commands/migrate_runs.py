"""`manage.py migrate_runs WORKFLOW`: migrate the open runs of older versions, as a bulk action of upkeep."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.authoring import registry
from durableops.engine import guard, reviewing
from durableops.engine.bulk import capture, control
from durableops.engine.bulk.verbs import verb
from durableops.errors import BulkPlanChanged, DurableOpsError
from durableops.management.operating.plans import as_text
from runs.models import Bulk, Tenant
from runs.states import PARKED

_OLDER = """
SELECT r.id FROM runs_run r JOIN runs_workflow_plan p ON p.id = r.plan_id
WHERE r.workflow = %(workflow)s AND r.state = ANY(%(states)s) AND p.version < %(version)s AND NOT r.pinned
  AND (%(from)s::int IS NULL OR p.version = %(from)s)
ORDER BY r.id DESC LIMIT %(most)s"""


class Command(BaseCommand):
    help = (
        "Migrate the open runs of older versions of a workflow. Pinned runs stay; what cannot be migrated is listed. "
        "Where something would be sent again, the plan is shown first and nothing is begun."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workflow")
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--to", type=int, help="the version to migrate to; by default the newest there is here")
        parser.add_argument("--from", type=int, dest="from_version", help="only runs of this version")
        parser.add_argument("--actor", required=True, help="who decides this; kept in the audit")
        parser.add_argument("--reason", required=True)
        parser.add_argument("--plan", action="store_true", help="only capture them, and tell what would be sent again")
        parser.add_argument("--yes", action="store_true", help="begin whatever the plan is")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise CommandError(f"there is no tenant {options['tenant']!r}.")
        try:
            version = registry.workflow(options["workflow"], options["to"]).version
            params = {
                "workflow": options["workflow"],
                "version": version,
                "from": options["from_version"],
                "states": sorted(PARKED),
                "most": verb(reviewing.MIGRATE).most,
            }
            words = f"open runs of {options['workflow']} before version {version}"
            bulk = capture.preview(
                verb(reviewing.MIGRATE), capture.Selection(words=words, sql=_OLDER, params=params), tenant=tenant,
                actor=options["actor"], arguments={"workflow": options["workflow"], "version": version},
            )  # fmt: skip
            if options["plan"]:
                self.stdout.write(_to_look_at(bulk))
                return
            plan_hash = None if options["yes"] else guard.UNSEEN
            control.start(bulk.pk, tenant=tenant, actor=options["actor"], reason=options["reason"], plan_hash=plan_hash)
        except BulkPlanChanged as unseen:
            bulk.refresh_from_db()
            raise CommandError(f"{unseen.detail}\n{_to_look_at(bulk)}") from unseen
        except DurableOpsError as error:
            raise CommandError(error.detail) from error
        more = " There may be more: call it again once this is done." if bulk.runs == params["most"] else ""
        told = f"bulk action {bulk.pk} migrates {bulk.runs} runs to version {version}; upkeep executes it."
        self.stdout.write(f"{told}{more}")


def _to_look_at(bulk: Bulk) -> str:
    """The plan of a captured bulk action, and how exactly that is begun."""
    plan = as_text({**bulk.plan, "plan_hash": bulk.plan_hash})
    begin = f"manage.py operate bulk-start {bulk.pk} --tenant {bulk.tenant.slug} --plan-hash {bulk.plan_hash}"
    return f"bulk action {bulk.pk} holds {bulk.runs} runs.\n{plan}\nBegin it with: {begin} --reason TEXT"
