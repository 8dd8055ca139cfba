"""Running the checks: all on one snapshot, each with a limit of its own, and saying what was looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor, errors

from durableops.conf import get_conf
from durableops.engine.database import Database
from durableops.upkeep.invariants import (
    compensation,
    effects,
    liveness,
    outbox,
    positions,
    quotas,
    retention,
    story,
)
from durableops.upkeep.invariants.check import Check

CHECKS: tuple[Check, ...] = (
    *liveness.CHECKS,
    *positions.CHECKS,
    *effects.CHECKS,
    *outbox.CHECKS,
    *story.CHECKS,
    *compensation.CHECKS,
    *quotas.CHECKS,
    *retention.CHECKS,
)
MOST_COUNTED = 1000
"""Violations are counted up to this; beyond it the number says "at least"."""
MOST_SHOWN = 20
DEFAULT_GRACE_SECONDS = 10.0
DEFAULT_RUNS = 10_000
DEFAULT_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check came to."""

    check: Check
    violations: int
    sample: list[dict[str, str]]
    explained: int = 0
    explained_sample: tuple[dict[str, str], ...] = ()
    complaint: str = ""
    """Why the check could not be made, if so: what was not looked at has not passed."""

    @property
    def passed(self) -> bool:
        return not self.violations and not self.complaint

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.check.name,
            "passed": self.passed,
            "violations": self.violations,
            "sample": self.sample,
            "promise": self.check.promise,
            "looked_at": self.check.looks_at,
            "capped": self.violations >= MOST_COUNTED,
            "explained": self.explained,
            "explained_sample": list(self.explained_sample),
            **({"complaint": self.complaint} if self.complaint else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """What all checks came to, on one snapshot."""

    findings: list[Finding]
    looked_at: dict[str, Any]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.passed]

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "looked_at": self.looked_at,
            "checks": [finding.as_json() for finding in self.findings],
        }


def examine(
    database: Database,
    *,
    checks: Iterable[Check] = CHECKS,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
    newest_runs: int = DEFAULT_RUNS,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Report:
    """Make every check on one snapshot that no later change can blur. Raises ConnectionLost."""
    with database.transaction() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, round(timeout_seconds * 1000)))])
        params = {"grace": grace_seconds, "runs": newest_runs, "patience": get_conf().version_patience_seconds}
        return Report(findings=[make(cursor, check, params) for check in checks], looked_at=_looked_at(cursor, params))


def make(cursor: Cursor[Any], check: Check, params: dict[str, Any]) -> Finding:
    """Make one check. One that takes too long has not passed, and the others are made all the same."""
    try:
        with cursor.connection.transaction():
            broken, sample = _bounded(cursor, check.broken, params)
            explained, examples = _bounded(cursor, check.explained, params) if check.explained else (0, [])
    except errors.QueryCanceled:
        complaint = "it took longer than its time limit; look at fewer runs (--runs) or give it more time (--timeout)."
        return Finding(check=check, violations=0, sample=[], complaint=complaint)
    return Finding(check=check, violations=broken, sample=sample, explained=explained, explained_sample=tuple(examples))


def _bounded(cursor: Cursor[Any], query: str, params: dict[str, Any]) -> tuple[int, list[dict[str, str]]]:
    cursor.execute(f"SELECT x.* FROM ({query}) AS x LIMIT {MOST_COUNTED}", params)
    rows = cursor.fetchall()
    return len(rows), [{"subject": str(row[0]), "said": str(row[1])} for row in rows[:MOST_SHOWN]]


def _looked_at(cursor: Cursor[Any], params: dict[str, Any]) -> dict[str, Any]:
    cursor.execute(
        "SELECT now(), count(*) FILTER (WHERE finished_at IS NULL),"
        " (SELECT count(*) FROM (SELECT 1 FROM runs_run LIMIT %(runs)s) n) FROM runs_run WHERE finished_at IS NULL",
        params,
    )
    row = cursor.fetchone()
    assert row is not None
    return {
        "at": row[0].isoformat(),
        "open_runs": row[1],
        "newest_runs": row[2],
        "grace_seconds": params["grace"],
    }
