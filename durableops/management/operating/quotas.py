"""What a tenant or a shared resource may use."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from django.core.management.base import CommandError

from durableops.engine import quotas
from durableops.engine.quotas import BUDGETS, CALL_RATES, FIELDS, Owner
from durableops.management.operating.asked import Asked, Told, Verb


def _set(asked: Asked) -> Told:
    asked.nothing_named()
    resource = asked.options["resource"]
    owner = Owner(resource=resource) if resource else Owner(tenant=asked.tenant)
    who, why = asked.said["actor"], asked.said["reason"]
    policy = quotas.set_quota(owner, _changes(asked.options["set"] or []), actor=who, reason=why)
    shown = {name: getattr(policy, name) for name in quotas.KNOWN}
    facts = {"verb": asked.verb, "of": str(owner), "kind": owner.kind, "version": policy.version, **shown}
    said = ", ".join(f"{name}={value}" for name, value in shown.items())
    return Told(message=f"{owner.kind} {owner} has {said} now; it holds within a second.", facts=facts)


def _changes(given: list[str]) -> dict[str, Any]:
    """`running_cap=5`, `running_cap=none`, `call_rates={"tool:send": 600}`, `time_zone=Europe/Lisbon`."""
    changes: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        try:
            changes[name] = _value(name, text)
        except ValueError:
            raise CommandError(f"--set {one!r} is no limit; write it as running_cap=5 or running_cap=none.") from None
    return changes


def _value(name: str, text: str) -> Any:
    if name in (CALL_RATES, BUDGETS):
        return {} if text == "none" else json.loads(text, parse_float=Decimal)
    if name in FIELDS:
        return None if text == "none" else int(text)
    return text


VERBS: dict[str, Verb] = {
    "set-quota": Verb(do=_set, about="a tenant, or a shared resource with --resource (--set NAME=VALUE)"),
}
