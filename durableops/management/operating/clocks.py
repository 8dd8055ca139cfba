"""More time for a run, or for one of its waits."""

from __future__ import annotations

from datetime import datetime

from django.core.management.base import CommandError

from durableops.engine import commands
from durableops.management.operating.asked import Asked, Told, Verb
from durableops.management.operating.runs import told
from runs.models import Wait


def _extend(asked: Asked) -> Told:
    run_id, tenant, until = asked.run_id(), asked.tenant, _until(asked)
    name = asked.options["wait"]
    if not name:
        return told(asked, commands.extend_deadline(run_id, tenant=tenant, deadline_at=until, **asked.said))
    waits = list(Wait.objects.filter(run_id=run_id, tenant=tenant, name=name, state="open").order_by("pk")[:2])
    if len(waits) != 1:
        found = "several open waits" if waits else "no open wait"
        raise CommandError(f"run {run_id} has {found} named {name!r}. Nothing was changed.")
    return told(asked, commands.extend_wait(waits[0].pk, tenant=tenant, expires_at=until, **asked.said))


def _until(asked: Asked) -> datetime:
    try:
        until = datetime.fromisoformat(asked.options["until"] or "")
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        raise CommandError("'extend' needs --until, an instant with its time zone, such as 2026-12-24T18:00:00Z.")
    return until


VERBS: dict[str, Verb] = {
    "extend": Verb(do=_extend, about="a run (--until): its deadline, or the end of a wait (--wait)"),
}
