"""Rules: how long something is kept, for everybody, a tenant, or one workflow of either. Set, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction

from durableops.checkpoints.codec import check_key
from durableops.engine.retention.words import reason_of
from durableops.errors import InputRefused
from runs.models import AuditEntry, Relook, RetentionRule, Tenant
from runs.retention.classes import SUBJECTS

LONGEST = timedelta(days=365 * 100)


@dataclass(frozen=True, kw_only=True)
class Window:
    """How long a subject is kept in one place, and who says so."""

    subject: str
    seconds: int | None
    """None is for ever."""
    rule: int
    """Number of the rule that says it; 0 is the default."""


def windows(tenant: Tenant | None, workflow: str) -> dict[str, Window]:
    """What holds for a workflow of a tenant (or of a tenant without rules of its own), subject by subject."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s, w.seconds, w.rule FROM unnest(%s::text[]) s"
            " CROSS JOIN LATERAL runs_retention_window(%s, %s, s) w",
            [list(SUBJECTS), None if tenant is None else tenant.pk, workflow],
        )
        return {row[0]: Window(subject=row[0], seconds=row[1], rule=row[2]) for row in cursor.fetchall()}


def version() -> int:
    """The newest rule there is: names the policy as a whole. 0 as long as there are only defaults."""
    return RetentionRule.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def set_rule(
    subject: str,
    *,
    keeps: str,
    seconds: int | None = None,
    tenant: Tenant | None,
    workflow: str = "",
    actor: str,
    reason: str,
) -> RetentionRule:
    """Say how long something is kept from now on, with its audit entry. Runs that it concerns are looked at again.

    `keeps` is `seconds` (zero is zero: it goes when the run ends), `for_ever`, or `inherited`: what the wider rule or
    the default says. Raises InputRefused.
    """
    reason = reason_of(reason)
    if subject not in SUBJECTS:
        raise InputRefused(f"{subject!r} is nothing that rules are about; there are: {', '.join(SUBJECTS)}.")
    if keeps not in ("seconds", "for_ever", "inherited") or (keeps == "seconds") != (seconds is not None):
        raise InputRefused("say seconds with a number of them, for_ever, or inherited.")
    if seconds is not None and not 0 <= seconds <= LONGEST.total_seconds():
        raise InputRefused(f"{seconds} seconds are less than none or more than a hundred years.")
    if workflow:
        check_key(workflow, what="workflow", max_bytes=100)
        if subject == "audit":
            raise InputRefused("audit entries belong to a tenant, not to a workflow; leave the workflow out.")
    with transaction.atomic():
        before = windows(tenant, workflow)[subject]
        rule = RetentionRule.objects.create(
            tenant=tenant, workflow=workflow, subject=subject, keeps=keeps, seconds=seconds, actor=actor, reason=reason
        )
        after = windows(tenant, workflow)[subject]
        Relook.objects.create(tenant=tenant, workflow=workflow)
        AuditEntry.objects.create(
            tenant=tenant,
            actor=actor,
            verb="set_retention",
            target_kind="retention",
            target_id=f"{subject} {workflow or 'every workflow'}"[:100],
            reason=reason,
            before={"seconds": before.seconds, "rule": before.rule},
            after={"seconds": after.seconds, "rule": rule.pk, "keeps": keeps},
        )
    return rule
