"""What a worker can run, as ids of stored plans: told to everybody in its row, and the only runs its claims take.

Old and new workers live side by side during a deploy, so a worker takes what it has the very plan of. The runs of an
older plan that no living worker has any more (it was given up, its workers had their patience to come back) it takes
over: to migrate them, or to park them for a person. Runs of a newer plan, of a workflow it does not know, and runs a
person pinned to their plan it leaves alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from uuid import UUID

from durableops.authoring import registry
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine.database import Database
from durableops.engine.plans import record_plans
from runs.claiming import Taker
from runs.offers import ASKED_FOR, offered, plans_where
from runs.transitions import Cursor

REFRESH_SECONDS = 1.0
NO_PLAN = 0
MANY_STRANGERS = 100
"""So many runs for other workers may stand in front of ours before the queue is read plan by plan."""

_TELL = "UPDATE runs_worker SET plans = %s::jsonb WHERE id = %s AND plans IS DISTINCT FROM %s::jsonb"
# Which plans queued runs have, by one descent of the index for each, and who is to take them.
_ASKED = f"""
WITH RECURSIVE {plans_where(ASKED_FOR, name="asked")}
SELECT a.plan_id, a.plan_id = ANY(%(plans)s), EXISTS (
    SELECT 1 FROM runs_workflow_plan o JOIN runs_workflow_plan m ON m.workflow = o.workflow AND m.id = ANY(%(plans)s)
    WHERE o.id = a.plan_id
      AND (o.version < m.version OR (o.version = m.version AND o.first_seen_at < m.first_seen_at))
) AND NOT {offered("a.plan_id")} AND NOT EXISTS (
    SELECT 1 FROM runs_worker w
    WHERE w.ended_at > now() - %(patience)s * interval '1 second' AND w.plans @> to_jsonb(a.plan_id))
FROM asked a WHERE a.plan_id IS NOT NULL"""
_STRANGERS = """
SELECT count(*) FROM (SELECT 1 FROM runs_run r WHERE r.state = 'queued' AND NOT r.paused AND r.plan_id = ANY(%s)
    LIMIT %s) x"""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What the last look showed."""

    plans: tuple[int, ...] = ()
    orphans: tuple[int, ...] = ()
    """Older plans that are asked for and that nobody has any more."""
    lanes: tuple[int, ...] = ()
    """Of those two, what the queue asks for."""
    crowded: bool = False
    """Whether the queue is read plan by plan, since many runs in it are for other workers."""


def tell(cursor: Cursor, worker_id: UUID, plans: list[int]) -> None:
    """Write into the worker's row what it can run."""
    cursor.execute(_TELL, [str(plans), worker_id, str(plans)])


class Offer:
    """What one process can run. Shared by its threads."""

    def __init__(self, *, worker_id: UUID) -> None:
        self.worker_id = worker_id
        self._lock = threading.Lock()
        self._stamp: object = None
        self._seen = _Seen()
        self._looked_at = 0.0
        self._turn = 0

    def keep(self, database: Database, *, at_once: bool = False) -> None:
        """Look again if a second has passed, or what this process can run has changed. Raises ConnectionLost."""
        with self._lock:
            changed = self._stamp != registry.stamp()
            if changed or at_once or monotonic() - self._looked_at > REFRESH_SECONDS:
                self._look(database, record=changed)

    def _look(self, database: Database, *, record: bool) -> None:
        stamp, plans = registry.stamp(), self._seen.plans
        if record:
            with database.cursor() as cursor:
                plans = tuple(record_plans(cursor))
                tell(cursor, self.worker_id, list(plans))
        asked = database.fetch(_ASKED, {"plans": list(plans), "patience": get_conf().version_patience_seconds})
        orphans = tuple(plan for plan, ours, orphaned in asked if orphaned and not ours)
        strangers = [plan for plan, ours, _ in asked if not ours]
        crowded = bool(strangers) and (
            database.fetch(_STRANGERS, [strangers, MANY_STRANGERS + 1])[0][0] > MANY_STRANGERS
        )
        lanes = tuple(plan for plan, ours, orphaned in asked if ours or orphaned)
        self._seen = _Seen(plans=plans, orphans=orphans, lanes=lanes, crowded=crowded)
        self._stamp, self._looked_at = stamp, monotonic()

    @property
    def is_crowded(self) -> bool:
        """Whether the queue is read plan by plan."""
        return self._seen.crowded

    @property
    def ways(self) -> int:
        """How many claims have to come back empty before nothing is there for this worker."""
        return len(self._seen.lanes) if self._seen.crowded else 1

    def taker(self, *, isolated: bool, after_tenant: int, gated: bool = True) -> Taker:
        """Who claims next; plan by plan, the plans take turns."""
        seen = self._seen
        lane = None
        if seen.crowded:
            self._turn += 1
            lane = seen.lanes[self._turn % len(seen.lanes)] if seen.lanes else NO_PLAN
        return Taker(
            worker_id=self.worker_id, isolated=isolated, after_tenant=after_tenant, gated=gated, plans=seen.plans,
            orphans=seen.orphans, lane=lane,
        )  # fmt: skip
