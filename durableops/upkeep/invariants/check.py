"""What a check is, and the pieces its queries share."""

from __future__ import annotations

from dataclasses import dataclass

NEWEST = """
(SELECT o.id FROM runs_run o WHERE o.finished_at IS NULL
 UNION SELECT n.id FROM (SELECT id FROM runs_run ORDER BY created_at DESC, id DESC LIMIT %(runs)s) n
 -- What retention has begun to remove does not tell its whole story any more.
 WHERE NOT EXISTS (SELECT 1 FROM runs_summary s WHERE s.run_id = n.id
                   AND (s.closed_at IS NOT NULL OR jsonb_exists(s.cleaned, 'event'))))"""
"""Ids of the runs whose history is looked at: every open one and the newest of all."""

SETTLED = "now() - %(grace)s * interval '1 second'"
"""What is older than this must have been put right by now: upkeep had its chance."""

OPEN_RUNS = "every open run"
HISTORIES = "every open run and the newest ones"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One promise, as a query for what breaks it."""

    name: str
    """What must hold, as a sentence with underscores: scripts and dashboards rely on it."""
    promise: int
    """The number of the promise it belongs to, as the README counts them."""
    looks_at: str
    """Which rows it reads, in words."""
    broken: str
    """SQL that returns (subject, what is wrong). Parameters: `grace` and `patience` seconds, and the
    number of newest `runs`."""
    explained: str = ""
    """SQL that returns (subject, why it is all right) for what looks alike and is not broken."""
