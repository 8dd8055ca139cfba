"""What a drill leaves behind: one object for scripts, the same in words for people, and a row in the record."""

from __future__ import annotations

from typing import Any

from runs.models import DrillReport


def make(
    *, drill: str, seed: int, seconds: float, checks: list[dict[str, Any]], figures: dict[str, Any]
) -> dict[str, Any]:
    """The report as one object. It has passed if there were checks and all of them held."""
    passed = bool(checks) and all(check["passed"] for check in checks)
    return {
        "drill": drill,
        "passed": passed,
        "seed": seed,
        "seconds": round(seconds, 2),
        "checks": checks,
        **figures,
    }


def store(report: dict[str, Any]) -> None:
    """Keep it, for the console and for comparisons."""
    DrillReport.objects.create(
        drill=report["drill"],
        passed=report["passed"],
        seed=report["seed"],
        seconds=report["seconds"],
        report=report,
    )


def tell(report: dict[str, Any]) -> str:
    """The report for a person: its checks, then its summary, then how to play it again."""
    lines = [
        f"{'ok    ' if check['passed'] else 'FAILED'}  {check['name']}: {check['detail']}" for check in report["checks"]
    ]
    failed = [check["name"] for check in report["checks"] if not check["passed"]]
    verdict = "passed" if report["passed"] else f"FAILED: {', '.join(failed)}"
    return "\n".join(
        [
            *lines,
            *([report["summary"]] if report.get("summary") else []),
            f"drill {report['drill']} {verdict} in {report['seconds']:g} s (seed {report['seed']})",
        ]
    )
