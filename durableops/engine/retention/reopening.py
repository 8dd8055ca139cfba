"""Whether a run that ended badly may still be reopened: for a while, and only as long as nothing of it has gone."""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.utils import timezone

from runs.models import Run, RunSummary

_UNTIL = """
SELECT isfinite(x.until), CASE WHEN isfinite(x.until) THEN x.until END, x.until > now()
FROM (SELECT runs_reopen_until(r.id, r.state, r.finished_at, w.seconds) AS until FROM runs_run r
      CROSS JOIN LATERAL runs_retention_window(r.tenant_id, r.workflow, 'reopen') w WHERE r.id = %s) x"""


def until(run: Run) -> datetime | None:
    """Until when it may be reopened; None if it may not, or if there is no end to it."""
    with connection.cursor() as cursor:
        cursor.execute(_UNTIL, [run.pk])
        return cursor.fetchone()[1]  # type: ignore[no-any-return]


def refusal(run: Run) -> str | None:
    """What a run would have to be so that it may be reopened; None when it may. Asked under the run's lock."""
    summary = RunSummary.objects.filter(pk=run.pk).only("closed_at").first()
    if summary is not None and summary.closed_at is not None:
        when = timezone.localtime(summary.closed_at).date()
        return f"one that is whole; retention removed on {when} what it would need to go on. Start a new run"
    with connection.cursor() as cursor:
        cursor.execute(_UNTIL, [run.pk])
        _ends, end, may = cursor.fetchone()
    if may:
        return None
    return f"one that ended more recently; it could be reopened until {timezone.localtime(end):%Y-%m-%d %H:%M}"
