"""A worker's lease: a row with a counter its parent raises, and an advisory lock that ends with its session."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from uuid import UUID

from durableops.authoring import registry
from durableops.conf import get_conf
from durableops.engine.database import Database
from durableops.engine.machine import machine
from durableops.engine.watch import Numbers
from runs.ids import uuid7
from runs.models.worker import LOCK_CLASS

# A second time after the answer to the first was lost: the row is there, and only its number is not known.
_REGISTER = """
INSERT INTO runs_worker (id, number, host, machine, pid, child_pid, started_at, counter, renewed_at, lease_seconds,
    heartbeat_seconds, draining, ended_why, versions, plans, concurrency, isolated, takes_slots, kind, destinations)
VALUES (%(id)s, nextval('runs_worker_number'), %(host)s, %(machine)s, %(pid)s, %(child)s, now(), 0, now(), %(lease)s,
    %(beat)s, false, '', %(versions)s::jsonb, %(plans)s::jsonb, %(concurrency)s, %(isolated)s, true, %(kind)s,
    %(destinations)s::jsonb)
ON CONFLICT (id) DO UPDATE SET renewed_at = now() RETURNING number"""
_RENEW = """
UPDATE runs_worker SET counter = counter + 1, renewed_at = now(), draining = %(draining)s, in_hand = %(in_hand)s,
    loop_lag_seconds = %(lag)s, forced_stops = %(forced)s, memory_bytes = %(memory)s, connections = %(connections)s,
    heartbeat_seconds = %(beat)s
WHERE id = %(id)s AND ended_at IS NULL RETURNING number"""
_END = "UPDATE runs_worker SET ended_at = now(), ended_why = %(why)s WHERE id = %(id)s AND ended_at IS NULL"

NO_NUMBERS = Numbers()
IDLE_BEAT_SECONDS = 1.0
RELAY_IDLE_BEAT_SECONDS = 2.5
"""A relay that holds no message has nothing that others wait for."""
ROOMY_LEASE_SECONDS = 10.0
"""Under a shorter lease idle beats are shorter in proportion."""


def beat_seconds(*, busy: bool, idle_beat: float = IDLE_BEAT_SECONDS) -> float:
    """How often a worker raises its counter: one with nothing in hand has nothing that must be noticed soon."""
    conf = get_conf()
    if busy:
        return conf.heartbeat_seconds
    return max(conf.heartbeat_seconds, idle_beat * min(1.0, conf.lease_seconds / ROOMY_LEASE_SECONDS))


class Lease:
    """The lease of one worker id. An id is used for one process start and never again."""

    def __init__(self, database: Database, *, idle_beat: float = IDLE_BEAT_SECONDS) -> None:
        self.id: UUID = uuid7()
        self._idle_beat = idle_beat
        self._database = database
        self._number = 0
        self._locked_on = 0

    def register(
        self,
        *,
        child_pid: int,
        versions_json: str,
        plans: list[int] | None = None,
        concurrency: int = 1,
        isolated: bool = False,
        kind: str = "worker",
        destinations: Sequence[str] = (),
    ) -> None:
        """Write the row, then take the lock that shows this session is alive."""
        conf = get_conf()
        rows = self._database.fetch(
            _REGISTER,
            {
                "id": self.id,
                "host": socket.gethostname()[:255],
                "machine": machine(),
                "pid": os.getpid(),
                "child": child_pid,
                "lease": conf.lease_seconds,
                "beat": conf.heartbeat_seconds,
                "versions": versions_json,
                # Only a worker runs anything; one that has not said what may have any plan.
                "plans": json.dumps(plans or []) if plans is not None or kind != "worker" else None,
                "concurrency": concurrency,
                "isolated": isolated,
                "kind": kind,
                "destinations": json.dumps(list(destinations)),
            },
        )
        self._number = rows[0][0]
        self._lock()

    def renew(self, *, draining: bool = False, numbers: Numbers = NO_NUMBERS, busy: bool = True) -> bool:
        """Raise the counter, and tell people how the child is doing. Raises ConnectionLost.

        `busy` says how soon it will be raised again: observers judge by that. False when somebody has declared this
        worker dead.
        """
        if self._locked_on != self._database.connects:
            self._lock()
        params = {
            "id": self.id,
            "draining": draining,
            "in_hand": numbers.in_hand,
            "lag": numbers.loop_lag_seconds,
            "forced": numbers.forced_stops,
            "memory": numbers.memory_bytes,
            # The one that says this is open as well.
            "connections": numbers.connections + 1,
            "beat": self.beat_seconds(busy=busy),
        }
        return bool(self._database.fetch(_RENEW, params))

    def beat_seconds(self, *, busy: bool) -> float:
        """How soon the counter is raised again."""
        return beat_seconds(busy=busy, idle_beat=self._idle_beat)

    def end(self, why: str) -> None:
        """Say that this worker has gone, so that nobody has to find out."""
        self._database.fetch(_END, {"id": self.id, "why": why[:200]})

    def _lock(self) -> None:
        if get_conf().session_locks:
            self._database.fetch("SELECT pg_try_advisory_lock(%s, %s)", [LOCK_CLASS, self._number])
        self._locked_on = self._database.connects


def versions() -> dict[str, list[int]]:
    """Every workflow this process knows, with its versions."""
    found: dict[str, list[int]] = {}
    for definition in registry.workflows():
        found.setdefault(definition.name, []).append(definition.version)
    return found
