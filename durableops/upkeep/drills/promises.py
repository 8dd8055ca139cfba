"""The invariants, asked of a drill's own run: whatever a drill does not look at itself is looked at here."""

from __future__ import annotations

from durableops.engine.database import Database
from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.invariants.report import Report, examine


def check_invariants(checks: Checks, *, newest_runs: int = 1) -> None:
    """Examine the newest runs and every open one: the drill was alone, so the newest are its own."""
    database = Database(name="drill")
    try:
        found = examine(database, newest_runs=newest_runs)
    finally:
        database.close()
    checks.add("invariants_hold", found.passed, _told(found))


def _told(found: Report) -> str:
    broken = [
        f"{finding.check.name}: {finding.complaint or finding.sample[0]['said']} ({finding.violations})"
        for finding in found.broken
    ]
    return "; ".join(broken) or f"all {len(found.findings)} of them"
