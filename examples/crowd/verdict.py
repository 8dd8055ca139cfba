"""What the giant did to the small tenants: counted from the record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any
from uuid import UUID

from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.promises import check_invariants
from runs.models import Run, RunEvent, Tenant
from runs.states import State

if TYPE_CHECKING:
    from examples.crowd.drills import Size

TIMES = 2.0
MORE_SECONDS = 0.25
MORE_SECONDS_SHORT = 5.0
"""The short form plays among other tests: there the order of claims is what tells, not the clock."""
FEW_LOOKS = 10


@dataclass(kw_only=True)
class Played:
    """What was played."""

    size: Size = field(init=False)
    giant: Tenant = field(init=False)
    alone: list[UUID] = field(default_factory=list)
    """Runs of small tenants without the giant."""
    beside: list[UUID] = field(default_factory=list)
    backlog: list[UUID] = field(default_factory=list)
    stormy: list[UUID] = field(default_factory=list)
    answered: int = 0
    """Runs that the storm's event answered at once; upkeep finds the rest."""
    killed: int = 0
    left: int = 0
    """Of the giant's backlog when the small tenants had ended."""
    most_seen: int = 0
    looks: int = 0


def judge(played: Played, checks: Checks, *, short: bool) -> dict[str, Any]:
    """Make the checks and return the figures of the report."""
    size, claims = played.size, _claims(played.giant)
    alone, beside = _delays(played.alone), _delays(played.beside)
    small = [*played.alone, *played.beside]
    states = Counter(Run.objects.filter(pk__in=small).values_list("state", flat=True))
    checks.equal("small_tenants_runs_succeeded", dict(states), {"succeeded": len(small)})
    bad = Run.objects.filter(tenant=played.giant, pk__in=[*played.backlog, *played.stormy]).exclude(
        state__in=[State.SUCCEEDED, State.CANCELLED]
    )
    checks.equal("giants_runs_were_lost", bad.count(), 0)
    checks.equal("workers_were_killed", played.killed, size.kills)
    checks.add("backlog_was_there_to_the_end", played.left > 0, f"{played.left} of the giant's runs had not ended")
    woken = RunEvent.objects.filter(run__in=played.stormy, event="wake").values("run").distinct().count()
    checks.equal("storm_woke_all_at_once", woken, size.storm)
    _judge_cap(played, checks, claims)
    base, crowded = _p95(alone), _p95(beside)
    allowed = max(TIMES * base, base + (MORE_SECONDS_SHORT if short else MORE_SECONDS))
    checks.add("small_tenants_start_as_before", crowded <= allowed,
               f"p95 {crowded:.3f} s beside the giant, {base:.3f} s alone; at most {allowed:.3f} s")  # fmt: skip
    passed = _passed_over(played.beside, [at for at, _ in claims])
    most = max(size.cap, len(played.backlog) // 4)
    checks.add("small_tenants_are_not_queued_behind_the_backlog", _p95(passed) <= most,
               f"while one waited, {_p95(passed):.0f} of the giant's were claimed (p95), at most {most}")  # fmt: skip
    check_invariants(checks, newest_runs=200)
    return {
        "size": {name: getattr(size, name) for name in size.__dataclass_fields__},
        "delay_alone_p50": round(_p50(alone), 4), "delay_alone_p95": round(base, 4),
        "delay_beside_p50": round(_p50(beside), 4), "delay_beside_p95": round(crowded, 4),
        "giant_claims_while_one_waited_p95": _p95(passed), "giant_claims": len(claims),
        "most_running_seen": played.most_seen, "cap": size.cap, "looks": played.looks, "killed": played.killed,
        "storm_answered_at_once": played.answered,
        "summary": f"{len(played.beside)} runs of {size.tenants} tenants beside {size.backlog} of one",
    }  # fmt: skip


def _judge_cap(played: Played, checks: Checks, claims: list[tuple[datetime, Any]]) -> None:
    """Each claim took a numbered place within the cap, and an index lets no two running runs have one number."""
    cap = played.size.cap
    outside = [data for _, data in claims if not isinstance(data.get("slot"), int) or not 1 <= data["slot"] <= cap]
    checks.add("each_claim_took_a_place_within_the_cap", bool(claims) and not outside,
               f"{len(claims)} claims, {len(outside)} without a place of {cap}")  # fmt: skip
    checks.add("no_commit_exceeded_the_cap", played.looks >= FEW_LOOKS and 0 < played.most_seen <= cap,
               f"{played.most_seen} of at most {cap} in {played.looks} looks")  # fmt: skip


def _claims(giant: Tenant) -> list[tuple[datetime, Any]]:
    found = RunEvent.objects.filter(run__tenant=giant, run__labels__contains={"started-by": "drill"}, event="claim")
    return list(found.order_by("at").values_list("at", "data"))


def _delays(runs: list[UUID]) -> list[float]:
    """From start to first claim, in seconds."""
    times = Run.objects.filter(pk__in=runs, started_at__isnull=False).values_list("created_at", "started_at")
    return [max(0.0, (started - created).total_seconds()) for created, started in times if started is not None]


def _passed_over(runs: list[UUID], claims: list[datetime]) -> list[float]:
    """How many of the giant's runs were claimed while each run waited for its first claim."""
    times = Run.objects.filter(pk__in=runs, started_at__isnull=False).values_list("created_at", "started_at")
    return [
        float(bisect_left(claims, started) - bisect_right(claims, created)) for created, started in times if started
    ]


def _p95(numbers: list[float]) -> float:
    return _rank(numbers, 0.95)


def _p50(numbers: list[float]) -> float:
    return _rank(numbers, 0.5)


def _rank(numbers: list[float], share: float) -> float:
    ranked = sorted(numbers)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0
