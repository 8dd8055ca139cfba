"""`manage.py data VERB`: rules, legal holds and erasures from a shell, with the functions that the console calls."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine.retention import erasures, holds, kept, rules
from durableops.engine.retention.kept import Kept
from durableops.engine.retention.lengths import parse, say
from durableops.errors import DurableOpsError
from durableops.management.given import existing_tenant
from runs.models import Erasure, Run, Tenant
from runs.retention.classes import SUBJECTS

LONGEST_ACTOR = 200
VERBS = ("windows", "rule", "kept", "hold", "lift", "erase", "status")


class Command(BaseCommand):
    help = (
        "Say how long data is kept, hold it, lift a hold, or ask that it be erased. Each is recorded with its reason."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=VERBS, help="what to do")
        parser.add_argument("subject", nargs="?", help=f"rule: {', '.join(SUBJECTS)}. lift, status: a number")
        parser.add_argument("length", nargs="?", help="rule: 7 days, 36 h, 0, for ever, or inherited")
        parser.add_argument("--tenant", help="whose; a rule without one is for every tenant")
        parser.add_argument("--workflow", default="", help="rule: for one workflow only")
        parser.add_argument("--run", help="hold, kept: one run")
        parser.add_argument("--label", metavar="NAME=VALUE", help="hold, erase: whatever carries this label")
        parser.add_argument("--everything", action="store_true", help="hold, erase: the whole tenant")
        parser.add_argument("--reason", default="", help="why; it stands in the audit log")
        parser.add_argument("--actor", default="command line", help="who; it stands in the audit log")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        actor = options["actor"].strip()
        if not actor or not actor.isprintable() or len(actor) > LONGEST_ACTOR:
            raise CommandError(f"--actor is no name: give one line of at most {LONGEST_ACTOR} characters.")
        tenant = existing_tenant(options["tenant"]) if options["tenant"] else None
        try:
            told, message = getattr(self, f"_{options['verb']}")(tenant, actor, options)
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(told) if options["json"] else message)

    def _windows(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        found = rules.windows(tenant, options["workflow"])
        lines = [f"{name:<15} {say(one.seconds):<12} {_origin(one.rule)}" for name, one in found.items()]
        return {name: {"seconds": one.seconds, "rule": one.rule} for name, one in found.items()}, "\n".join(lines)

    def _rule(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        length = parse(_given(options, "length"))
        made = rules.set_rule(
            _given(options, "subject"), keeps=length.keeps, seconds=length.seconds, tenant=tenant,
            workflow=options["workflow"], actor=actor, reason=options["reason"],
        )  # fmt: skip
        now = rules.windows(tenant, options["workflow"])[made.subject]
        return {"rule": made.pk, "seconds": now.seconds}, f"rule {made.pk}: {made.subject} is kept {say(now.seconds)}."

    def _kept(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        run_id = _run_id(options)
        run = Run.objects.filter(pk=run_id, tenant=_owner(tenant)).first() if run_id else None
        if run is None:
            raise CommandError(f"there is no run {options['run']} here; say which with --run ID.")
        found = kept.of_run(run)
        told = {one.data_class: {**vars(one), **_instants(one)} for one in found}
        lines = [f"{one.data_class:<15} {one.rows:>8,} rows {one.bytes:>12,} bytes  {_until(one)}" for one in found]
        return {"run": str(run.pk), "state_bytes": run.state_bytes, "classes": told}, "\n".join(lines)

    def _hold(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        (label, value), run_id = _label(options), _run_id(options)
        if sum([bool(run_id), bool(label), options["everything"]]) != 1:
            raise CommandError("say what is held: --run ID, --label NAME=VALUE, or --everything.")
        made = holds.place(tenant=_owner(tenant), run_id=run_id, label=label, value=value, actor=actor,
                           reason=options["reason"])  # fmt: skip
        return {"hold": made.pk}, f"legal hold {made.pk} stands; nothing of it goes."

    def _lift(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        holds.lift(_number(options), tenant=_owner(tenant), actor=actor, reason=options["reason"])
        return {"hold": _number(options)}, "lifted; what is due goes with the cleaner's next looks."

    def _erase(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        label, value = _label(options)
        if bool(label) == options["everything"]:
            raise CommandError("say what is erased: --label NAME=VALUE, or --everything of the tenant.")
        made = erasures.request(tenant=_owner(tenant), label=label, value=value, actor=actor, reason=options["reason"])
        return {"erasure": made.pk}, f"erasure {made.pk} is asked for; `manage.py data status {made.pk}` tells of it."

    def _status(self, tenant: Tenant | None, actor: str, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        found = Erasure.objects.filter(pk=_number(options)).first()
        if found is None or (tenant is not None and found.tenant_id != tenant.pk):
            raise CommandError(f"there is no erasure {options['subject']}.")
        finished = found.finished_at.isoformat() if found.finished_at else None
        told = {"erasure": found.pk, "finished_at": finished, "erased": found.erased, "stayed": found.stayed}
        state = f"finished at {finished}" if finished else "under way"
        went, stayed = found.erased or "nothing yet", found.stayed or "nothing"
        return told, f"erasure {found.pk} is {state}. Erased: {went}. Stayed: {stayed}."


def _given(options: dict[str, Any], name: str) -> str:
    if not options[name]:
        raise CommandError("a rule wants what it is about and a length, such as `rule raw_prompt 3 days`.")
    return str(options[name])


def _number(options: dict[str, Any]) -> int:
    if not (options["subject"] or "").isdecimal():
        raise CommandError(f"{options['verb']} wants a number, such as `{options['verb']} 7`.")
    return int(options["subject"])


def _run_id(options: dict[str, Any]) -> UUID | None:
    try:
        return UUID(options["run"]) if options["run"] else None
    except ValueError:
        raise CommandError(f"{options['run']!r} is not the id of a run.") from None


def _instants(one: Kept) -> dict[str, str | None]:
    """Its moments as JSON has them."""
    found = {"due_at": one.due_at, "goes_at": one.goes_at, "gone_at": one.gone_at}
    return {name: None if at is None else at.isoformat() for name, at in found.items()}


def _until(one: Kept) -> str:
    if one.gone_at:
        return f"gone as of {one.gone_at:%Y-%m-%d %H:%M}"
    if one.why:
        return f"stays: {', '.join(one.why)}"
    if one.never:
        return "is kept for ever"
    return f"goes {one.goes_at:%Y-%m-%d %H:%M}" if one.goes_at else "goes with what it belongs to"


def _label(options: dict[str, Any]) -> tuple[str, str]:
    name, equals, value = (options["label"] or "").partition("=")
    if options["label"] and not (name and equals):
        raise CommandError(f"--label {options['label']!r} is not NAME=VALUE.")
    return name, value


def _owner(tenant: Tenant | None) -> Tenant:
    if tenant is None:
        raise CommandError("say whose: --tenant TENANT.")
    return tenant


def _origin(rule: int) -> str:
    return f"rule {rule}" if rule else "default"
