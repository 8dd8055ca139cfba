"""Before anything goes out: how much of it the quota allows just now. Short waits are spent in hand, long ones not."""

from __future__ import annotations

from collections.abc import Callable

from durableops.authoring.definitions import ToolDefinition
from durableops.clock import monotonic
from durableops.engine import budgets, rates
from durableops.engine.checks import HandBack, check_may_go_on
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Logic, Pause
from durableops.limits.clocks import Phase
from durableops.limits.rate_limits import Rate, limiter

IN_HAND_SECONDS = 2.0
"""A run that would wait longer gives back its worker, and its places under caps."""
SPREAD = 0.5
"""Runs that are held back together come back within this share of the wait."""


def admit_calls(hand: Hand, tool: ToolDefinition, wanted: int) -> Logic[int]:
    """How many of so many calls may go out now: at least one. Hands the run back where none may for longer."""
    tenant_id = hand.claimed.tenant_id
    granted = yield from _admit(hand, lambda: rates.of_call(tenant_id, tool), wanted, what=f"calls of {tool.name}")
    return (yield from budgets.spend(hand, "calls", granted, phase=Phase.CALLING))


def admit_use(hand: Hand) -> Logic[None]:
    """Let a step that uses a shared resource begin, as often as the resource's quota allows."""
    resource = hand.step.uses
    if resource:
        yield from _admit(hand, lambda: rates.of_resource(resource), 1, what=f"uses of {resource}")


def _admit(hand: Hand, limits: Callable[[], list[Rate]], wanted: int, *, what: str) -> Logic[int]:
    began = monotonic()
    while True:
        if not rates.is_fresh():
            yield Ask(_refresh)
        found = limits()
        if not found:
            return wanted
        grant = yield Ask(lambda _, found=found: limiter.take(found, wanted))  # type: ignore[misc]
        if grant.granted:
            return int(grant.granted)
        check_may_go_on(hand)
        slowest = min(found, key=lambda rate: rate.per_minute)
        if monotonic() - began + grant.wait_seconds > IN_HAND_SECONDS:
            raise HandBack(
                "rate",
                f"{what} are limited to {slowest.per_minute} a minute",
                delay=grant.wait_seconds * (1 + SPREAD * hand.random.random()),
                gate={"gate": "rate", "limit": slowest.name, "per_minute": slowest.per_minute},
            )
        yield Pause(grant.wait_seconds)


def _refresh(database: Database) -> None:
    rates.refresh(database.read)
