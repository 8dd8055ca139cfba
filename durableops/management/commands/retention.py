"""`manage.py retention`: what would go, what stays and why; and the cleaning itself. How it is done is upkeep's."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine.database import ConnectionLost, Database
from durableops.engine.retention.lengths import say
from durableops.management.given import existing_tenant
from durableops.upkeep.retention import preview, relooks
from durableops.upkeep.retention.cleaner import LOCK_TIMEOUT
from runs.models import RetentionPreview
from runs.retention.classes import in_words

ACTOR = "command line"


class Command(BaseCommand):
    help = "Remove what is old enough and nothing needs any more, or (--dry-run) say what that is and what stays."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="remove nothing: say what would go, and what stays")
        parser.add_argument("--preview", type=int, metavar="ID", help="do what this dry run said, or say what differs")
        parser.add_argument("--tenant", help="with --dry-run: look at one tenant only")
        parser.add_argument("--most", type=int, metavar="RUNS", help="with --dry-run: look at so many runs at most")
        parser.add_argument("--json", action="store_true", help="print exactly one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"] and options["preview"] is not None:
            raise CommandError("--dry-run makes a preview, --preview carries one out; give one of them.")
        database = Database(name="retention command", options=LOCK_TIMEOUT)
        try:
            told = self._dry(database, options) if options["dry_run"] else self._clean(database, options["preview"])
        except ConnectionLost as lost:
            raise CommandError(f"the database is away: {str(lost).splitlines()[0]}") from lost
        finally:
            database.close()
        self.stdout.write(json.dumps(told) if options["json"] else "\n".join(_lines(told)))

    def _dry(self, database: Database, options: dict[str, Any]) -> dict[str, Any]:
        tenant = existing_tenant(options["tenant"]) if options["tenant"] else None
        # What a rule or a hold that was lifted has made due is due now: the cleaner begins with these, too.
        relooks.look_again_at_all(database)
        as_of = database.fetch("SELECT clock_timestamp()")[0][0]
        seen = preview.look(database, as_of, tenant=tenant, most=options["most"])
        stored = preview.store(seen, tenant=tenant, by=ACTOR)
        return {"preview": stored.pk, "rule": stored.rule, **seen.as_json()}

    def _clean(self, database: Database, wanted: int | None) -> dict[str, Any]:
        relooks.look_again_at_all(database)
        if wanted is None:
            as_of = database.fetch("SELECT clock_timestamp()")[0][0]
            stored = preview.store(preview.look(database, as_of), tenant=None, by=ACTOR)
        else:
            found = RetentionPreview.objects.filter(pk=wanted).first()
            if found is None:
                raise CommandError(f"there is no preview {wanted}; `manage.py retention --dry-run` makes one.")
            if found.ran_at is not None:
                raise CommandError(f"preview {wanted} was carried out at {found.ran_at.isoformat(timespec='seconds')}.")
            stored = found
        done = preview.execute(database, stored, by=ACTOR)
        assert stored.outcome is not None
        return {
            "preview": stored.pk,
            "as_of": stored.as_of.isoformat(),
            "runs": done.runs,
            "by_class": dict(done.by_class),
            **stored.outcome,
        }


def _lines(told: dict[str, Any]) -> list[str]:
    return _of_preview(told) if "goes" in told else _of_cleaning(told)


def _of_preview(told: dict[str, Any]) -> list[str]:
    more = "" if told["complete"] else " (there are more)"
    return [
        f"as of {told['as_of']}, {told['runs']:,} runs that are due were looked at{more}",
        *map(_going, told["goes"]),
        *map(_staying, told["stays"]),
        f"{told['rows']:,} rows, {told['bytes']:,} bytes. `manage.py retention --preview {told['preview']}` does it.",
    ]


def _going(one: dict[str, Any]) -> str:
    size = f"{one['rows']:>10,} rows {one['bytes']:>14,} bytes of {one['runs']:,} runs"
    place = f"{one['workflow']:<24} {one['data_class']:<14}"
    return f"goes   {place} {size}, kept {say(one['seconds'])}, such as {one['sample'][0]}"


def _staying(one: dict[str, Any]) -> str:
    place = f"{one['workflow']:<24} {one['data_class']:<14}"
    return f"stays  {place} of {one['runs']:,} runs: {in_words(one['why'])}, such as {one['sample'][0]}"


def _of_cleaning(told: dict[str, Any]) -> list[str]:
    if told["busy"]:
        return ["another cleaner is at it; nothing more was done here."]
    return [
        *(f"{name:<14} {rows:>12,} rows" for name, rows in sorted(told["by_class"].items())),
        f"{told['rows']:,} rows, {told['bytes']:,} bytes, {told['files']:,} files of {told['runs']:,} runs.",
        *(f"left for the next time, for somebody holds it: run {run}" for run in told["skipped"]),
        *map(_different, told["different"]),
        *(f"since the preview: {why}" for why in told["because"]),
    ]


def _different(one: dict[str, Any]) -> str:
    place = f"{one['workflow']} {one['data_class']}"
    return f"different from the preview: {place}, {one['said']:,} rows said, {one['went']:,} went"
