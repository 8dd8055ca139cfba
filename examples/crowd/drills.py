"""The drill `fairness`: a giant's backlog, kills and a resume storm beside small tenants, which are not to feel it.

The small tenants' runs come twice at the same pace: once alone, once beside the giant, whose cap is half the places.
What is made of it stands in `verdict`.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, connections, transaction

from durableops.engine import bell, quotas
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.family import close_waits
from durableops.engine.inbound import send_event
from durableops.engine.quotas import Owner
from durableops.engine.start import check_new, insert, start
from durableops.upkeep.drills.company import ACTOR, LABELS, cancel_all
from durableops.upkeep.drills.processes import Member
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from examples.crowd.verdict import Played, judge
from examples.crowd.workflows import NAME, STORM
from runs.ids import uuid7
from runs.models import QuotaPolicy, Run, Tenant
from runs.states import TERMINAL, State
from runs.transitions import fire_many

LOOK_EVERY_SECONDS = 0.1
WITHIN_SECONDS = 300.0
SAMPLE_SECONDS = 0.02
AT_ONCE = 500
LATE_SECONDS = 0.05
_QUEUED = "r.id = ANY(%(ids)s) AND r.state IN ('queued', 'waiting') ORDER BY r.id FOR NO KEY UPDATE"
_RUNNING = "SELECT count(*) FROM runs_run WHERE tenant_id = %s AND state = 'running'"


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large it is played."""

    tenants: int
    runs_each: int
    backlog: int
    storm: int
    """How many of the backlog wait for the one event."""
    workers: int
    places: int
    """In each worker."""
    nap_seconds: float
    span_seconds: float
    """Over which the small tenants' runs come."""
    kills: int

    @property
    def cap(self) -> int:
        return self.workers * self.places // 2


LONG = Size(
    tenants=50,
    runs_each=20,
    backlog=10_000,
    storm=2_000,
    workers=8,
    places=4,
    nap_seconds=0.5,
    span_seconds=60,
    kills=3,
)
SHORT = Size(
    tenants=5, runs_each=4, backlog=160, storm=50, workers=2, places=4, nap_seconds=0.2, span_seconds=4, kills=1
)


class Sampler(threading.Thread):
    """Counts, over and over, how many runs of the giant a reader sees running."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(name="sampler", daemon=True)
        self._tenant = tenant
        self._over = threading.Event()
        self.most = 0
        self.looks = 0

    def run(self) -> None:
        database = Database(name="drill sampler")
        with suppress(ConnectionLost):
            while not self._over.wait(SAMPLE_SECONDS):
                self.most = max(self.most, database.fetch(_RUNNING, [self._tenant.pk])[0][0])
                self.looks += 1
        database.close()

    def end(self) -> None:
        self._over.set()
        self.join()


class Storm(threading.Thread):
    """Sends the one event, as somebody else would: the small tenants' runs come meanwhile."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(name="storm", daemon=True)
        self._tenant = tenant
        self._answered = 0

    def run(self) -> None:
        try:
            self._answered = send_event(STORM, tenant=self._tenant, actor=ACTOR).answered
        finally:
            connections.close_all()

    def end(self) -> int:
        """How many runs it answered at once."""
        self.join()
        return self._answered


@drill
class FairnessDrill(Drill):
    """A giant, its storm and lost workers beside small tenants; compare their start delays with those without it."""

    name = "fairness"

    def __init__(self) -> None:
        self.played = Played()
        self._workers: list[Member] = []
        self._started = 0

    def play(self, stage: Stage) -> None:
        self.played.size = size = SHORT if stage.short else LONG
        giant = self.played.giant = _tenant("crowd-giant")
        small = [_tenant(f"crowd-{number:02}") for number in range(1, size.tenants + 1)]
        quotas.set_quota(Owner(tenant=giant), {"running_cap": size.cap}, actor=ACTOR, reason="a drill")
        stage.cast.environment["DURABLEOPS_CONCURRENCY"] = str(size.places)
        stage.start_upkeep()
        stage.await_upkeep()
        self._start_workers(stage, size.workers)
        self._come(stage, small, self.played.alone, beside=False)
        self._await_end(self.played.alone)
        self._pile_up(giant, size)
        sampler = Sampler(giant)
        sampler.start()
        try:
            self._come(stage, small, self.played.beside, beside=True)
            self._await_end(self.played.beside)
            self._await_woken()
        finally:
            sampler.end()
            self.played.most_seen, self.played.looks = sampler.most, sampler.looks
        self._clear()

    def judge(self, stage: Stage) -> dict[str, Any]:
        # The giant's cap ends with the drill; another one would find all claims made with quotas.
        QuotaPolicy.objects.filter(tenant=self.played.giant).delete()
        return judge(self.played, stage.checks, short=stage.short)

    def _start_workers(self, stage: Stage, number: int) -> None:
        members = []
        for _ in range(number):
            self._started += 1
            members.append(stage.start_worker(self._started))
        self._workers += members
        stage.await_workers(members)

    def _come(self, stage: Stage, tenants: list[Tenant], runs: list[UUID], *, beside: bool) -> None:
        """The small tenants' runs come at an even pace; beside the giant workers are lost and its storm breaks."""
        size = self.played.size
        number = size.tenants * size.runs_each
        kills = {number * (n + 1) // (size.kills + 1) - 1 for n in range(size.kills)} if beside else set()
        order = [tenant for _ in range(size.runs_each) for tenant in stage.random.sample(tenants, len(tenants))]
        storm = Storm(self.played.giant)
        due = time.monotonic()
        for n, tenant in enumerate(order):
            time.sleep(max(0.0, due - time.monotonic()))
            # One that comes late is not made up for: several at once would wait for each other.
            due = max(due, time.monotonic() - LATE_SECONDS) + size.span_seconds / number
            runs.append(_begin(tenant, seconds=size.nap_seconds))
            if n in kills:
                self._lose_a_worker(stage)
            if beside and n == number // 2:
                storm.start()
        if beside:
            self.played.answered = storm.end()

    def _lose_a_worker(self, stage: Stage) -> None:
        victim = stage.random.choice(self._workers)
        self._workers.remove(victim)
        stage.cast.kill(victim)
        self.played.killed += 1
        # Nobody waits for the one that takes its place: its work has to be done by the others meanwhile.
        self._started += 1
        self._workers.append(stage.start_worker(self._started))

    def _pile_up(self, giant: Tenant, size: Size) -> None:
        """The giant's backlog: first those that wait for the storm, until they do, then all the others at once."""
        self.played.stormy += _begin_many(giant, size.storm, seconds=size.nap_seconds, waits=True)
        stormy = Run.objects.filter(pk__in=self.played.stormy)
        self._until("the giant's runs to wait for the storm",
                    lambda: stormy.filter(state=State.WAITING).count() == size.storm)  # fmt: skip
        self.played.backlog += _begin_many(giant, size.backlog - size.storm, seconds=size.nap_seconds)

    def _await_end(self, runs: list[UUID]) -> None:
        mine = Run.objects.filter(pk__in=runs)
        self._until("the small tenants' runs to end", lambda: not mine.exclude(state__in=sorted(TERMINAL)).exists())

    def _await_woken(self) -> None:
        stormy = Run.objects.filter(pk__in=self.played.stormy)
        self._until("the storm to wake all it concerns", lambda: not stormy.filter(state=State.WAITING).exists())

    def _clear(self) -> None:
        """What is left of the giant's backlog has done its part."""
        all_of_it = Run.objects.filter(pk__in=[*self.played.backlog, *self.played.stormy])
        left = all_of_it.exclude(state__in=sorted(TERMINAL))
        self.played.left = left.count()
        ids = list(left.order_by("pk").values_list("pk", flat=True))
        for begin in range(0, len(ids), AT_ONCE):
            with transaction.atomic(), connection.cursor() as cursor:
                fired = fire_many("cancel", cursor, pick=_QUEUED, params={"ids": ids[begin : begin + AT_ONCE]},
                                  reason="the drill is over")  # fmt: skip
                close_waits(cursor, [one.run_id for one in fired])
        # The few that are in hand are asked.
        cancel_all(left, reason="the drill is over")
        self._until("the giant's runs in hand to end", lambda: not left.exists())

    def _until(self, wanted: str, look: Any) -> None:
        until(look, wanted=wanted, within=WITHIN_SECONDS, every=LOOK_EVERY_SECONDS)


def _tenant(slug: str) -> Tenant:
    return Tenant.objects.get_or_create(slug=slug, defaults={"name": f"Drill {slug}"})[0]


def _begin_many(tenant: Tenant, number: int, *, seconds: float, waits: bool = False) -> list[UUID]:
    """Many runs at once, as if each had been started by itself; that would take minutes."""
    new = check_new(NAME, {"seconds": seconds, "waits": waits}, labels=LABELS)
    made = [uuid7() for _ in range(number)]
    for begin in range(0, number, AT_ONCE):
        with transaction.atomic(), connection.cursor() as cursor:
            for run_id in made[begin : begin + AT_ONCE]:
                insert(cursor, new, run_id=run_id, tenant_id=tenant.pk, actor=ACTOR)
    bell.ring(number)
    return made


def _begin(tenant: Tenant, *, seconds: float, waits: bool = False) -> UUID:
    given = {"seconds": seconds, "waits": waits}
    return start(NAME, given, tenant=tenant, actor=ACTOR, labels=LABELS).run_id
