"""What is found about runs that cannot simply go on: written once for each finding, superseded by the next one.

Both the engine's cursors and Django's come here. What people decide about findings is in `reviews`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from uuid import UUID

from durableops.checkpoints.compatibility import Park
from runs.transitions import Cursor

ENGINE = "engine"

# One statement: of two findings about one run the second closes the first before it takes its place.
_OPEN = """
WITH made AS (
    SELECT nextval(pg_get_serial_sequence('runs_review', 'id')) AS id
    WHERE NOT EXISTS (SELECT 1 FROM runs_review k WHERE k.run_id = %(run)s AND k.closed_at IS NULL
                      AND k.fingerprint = %(fingerprint)s AND k.seq = %(seq)s)
), closed AS (
    UPDATE runs_review o SET closed_at = now(), closed_as = 'superseded', closed_by = 'engine',
        closed_why = 'found anew', superseded_by_id = made.id
    FROM made WHERE o.run_id = %(run)s AND o.closed_at IS NULL
    RETURNING o.id
)
INSERT INTO runs_review (id, run_id, tenant_id, workflow, plan_id, target_id, code, fingerprint, reason, differences,
    seq, found_at)
SELECT made.id, %(run)s, %(tenant)s, %(workflow)s, %(plan)s, %(target)s, %(code)s, %(fingerprint)s, %(reason)s,
    %(differences)s::jsonb, %(seq)s, now()
FROM made CROSS JOIN (SELECT count(*) FROM closed) c
RETURNING id"""
_CLOSE = """
UPDATE runs_review SET closed_at = now(), closed_as = %s, closed_by = %s, closed_why = %s
WHERE run_id = ANY(%s) AND closed_at IS NULL"""


@dataclass(frozen=True, kw_only=True)
class About:
    """The run that something is found about, and where it stands."""

    run_id: UUID
    tenant_id: int
    workflow: str
    plan_id: int
    target_id: int | None
    """The plan of the code that would go on with it."""
    seq: int


def fingerprint_of(about: About, park: Park) -> str:
    """The same for every run that has this finding between these two plans."""
    text = f"{about.workflow}\n{about.plan_id}\n{about.target_id}\n{park.fingerprint}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def record(cursor: Cursor, about: About, park: Park) -> bool:
    """Note what was found. False when it is on record already and still open."""
    cursor.execute(
        _OPEN,
        {
            "run": about.run_id,
            "tenant": about.tenant_id,
            "workflow": about.workflow,
            "plan": about.plan_id,
            "target": about.target_id,
            "seq": about.seq,
            "code": park.reason_code,
            "fingerprint": fingerprint_of(about, park),
            "reason": park.reason,
            "differences": json.dumps([difference.as_json() for difference in park.differences]),
        },
    )
    return cursor.fetchone() is not None


def close(cursor: Cursor, run_ids: list[UUID], *, closed_as: str, by: str, why: str = "") -> None:
    """Note what was decided about runs, or that nothing is to be decided any more."""
    cursor.execute(_CLOSE, [closed_as, by[:200], why, run_ids])
