"""System checks: settings and knobs that are valid one by one and make no sense together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, register

from durableops import masking, sealing
from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.conf import Conf, get_conf
from durableops.effects import addresses

TAG = "durableops"
"""What a worker and upkeep check at their start; the others import every page of the console."""
HEARTBEATS_IN_A_LEASE = 3
POSITIVE = (
    "concurrency",
    "connections",
    "step_connections",
    "heartbeat_seconds",
    "lease_seconds",
    "poll_seconds",
    "upkeep_seconds",
    "slice_seconds",
    "payload_max_bytes",
    "run_state_max_bytes",
    "large_result_max_bytes",
    "link_seconds",
    "relay_concurrency",
    "relay_poll_seconds",
    "retention_seconds",
    "retention_share",
)


@register(TAG)
def check_knobs(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Complain about the knobs this process was given."""
    return list(complaints(get_conf()))


def complaints(conf: Conf) -> Iterator[CheckMessage]:
    """Yield what is wrong with a set of knobs."""
    if conf.lease_seconds < HEARTBEATS_IN_A_LEASE * conf.heartbeat_seconds:
        yield checks.Error(
            f"lease_seconds is {conf.lease_seconds:g}, less than three heartbeats of {conf.heartbeat_seconds:g} s: "
            "living workers would be declared dead.",
            hint="Raise DURABLEOPS_LEASE_SECONDS or lower DURABLEOPS_HEARTBEAT_SECONDS.",
            id="durableops.E001",
        )
    for name in POSITIVE:
        if getattr(conf, name) <= 0:
            yield checks.Error(f"{name} is 0.", hint=f"Set DURABLEOPS_{name.upper()} above 0.", id="durableops.E002")
    if conf.slice_seconds > conf.lease_seconds * 10:
        yield checks.Warning(
            f"slice_seconds is {conf.slice_seconds:g}, over ten leases: runs that wait are served late.",
            hint="Lower DURABLEOPS_SLICE_SECONDS.",
            id="durableops.W001",
        )
    if conf.upkeep_seconds > conf.lease_seconds:
        yield checks.Warning(
            f"upkeep_seconds is {conf.upkeep_seconds:g}, longer than a lease: dead workers are noticed late.",
            hint="Lower DURABLEOPS_UPKEEP_SECONDS.",
            id="durableops.W002",
        )


@register(TAG)
def check_webhook_allow(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Complain about a list of hosts that cannot be read: it would be found out with the first webhook."""
    try:
        addresses.check_setting()
    except ValueError as wrong:
        return [checks.Error(f"DURABLEOPS_WEBHOOK_ALLOW: {wrong}.", id="durableops.E005")]
    return []


@register(TAG)
def check_database_roles(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say what is weaker when one database role does everything."""
    if settings.DATABASE_APPLICATION_ROLE:
        return []
    return [
        checks.Warning(
            "One database role both owns the tables and runs the application: whoever takes over a worker can change "
            "or delete audit entries, events and checkpoints.",
            hint="Give the owner's role as DATABASE_OWNER_URL and a second one as DATABASE_URL, then run `migrate`.",
            id="durableops.W003",
        )
    ]


@register(TAG)
def check_masking(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Refuse names and shapes of secrets that cannot be used, or that would mask everything."""
    try:
        masking.check_rules()
    except masking.MaskingRefused as refused:
        return [checks.Error(str(refused), hint="See docs/settings.md.", id="durableops.E004")]
    return []


@register(TAG)
def check_encryption_keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say what is wrong with the keys that prompts and temporary files are encrypted with."""
    keys = settings.DURABLEOPS_ENCRYPTION_KEYS
    if wrong := [number for number, key in enumerate(keys, 1) if not sealing.is_key(key)]:
        return [
            checks.Error(
                f"DURABLEOPS_ENCRYPTION_KEYS: key {wrong[0]} of {len(keys)} is none.",
                hint="`manage.py reencrypt --new-key` prints one; several are separated by commas, the newest first.",
                id="durableops.E003",
            )
        ]
    if keys or not settings.PRODUCTION:
        return []
    return [
        checks.Warning(
            "DURABLEOPS_ENCRYPTION_KEYS is not set: raw prompts and temporary files are encrypted with a key made of "
            "SECRET_KEY. Who changes that cannot read them any more.",
            hint="Set a key of its own (`manage.py reencrypt --new-key` prints one) and run `manage.py reencrypt`.",
            id="durableops.W006",
        )
    ]


@register(TAG)
def check_workflows(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say what a definition promises and cannot keep."""
    return [message for definition in registry.workflows() for message in _promises(definition)]


def _promises(definition: WorkflowDefinition) -> Iterator[CheckMessage]:
    where = f"workflow {definition.name!r} v{definition.version} ({definition.source})"
    for warning in definition.warnings:
        yield checks.Warning(f"{where}: {warning}", id="durableops.W004")
