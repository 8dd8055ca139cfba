"""The runs this process holds: what is claimed comes in here, what has come to rest goes out. Shared by its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from durableops.engine.claim import release_unheld, take_next
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.offers import Offer
from durableops.engine.watch import Line
from runs.claiming import Claimed, Taker


class Held:
    """A place for one run, and the run in it."""

    def __init__(self, claimed: Claimed, in_hand: InHand, line: Line | None) -> None:
        self.claimed = claimed
        self.in_hand = in_hand
        self.line = line
        """Where the parent sees which step it is in."""
        self.hand: Hand | None = None
        self.following: Claimed | None = None
        """The run that was taken by the commit that ended this one; held from that commit on."""
        self.abandoned = False
        """Whether its step did not stop and the run was taken away from it: nobody waits for it any more."""

    def go_on_with(self, claimed: Claimed) -> None:
        """Put the run in that was taken together with the end of the last one."""
        self.claimed, self.hand, self.following = claimed, None, None


class InHand:
    """Everything this process has claimed and not let go of."""

    def __init__(
        self, *, worker_id: UUID, places: int = 1, isolated: bool = False, lines: list[Line] | None = None
    ) -> None:
        self.worker_id = worker_id
        self.places = places
        self.isolated = isolated
        self.offer = Offer(worker_id=worker_id)
        self._lines = list(lines or [])
        self._held: list[Held] = []
        self._changed = threading.Condition()
        self._claims_under_way = 0
        self._releasing = False
        self._after_tenant = 0
        self._gated = False
        """Whether there were quotas when it last found something."""
        self._serving = (0, 0)
        """The tenant served last, and the turns it still has before the next one's."""

    @property
    def free(self) -> int:
        """Places in which no run is."""
        return self.places - len(self._held)

    def held(self) -> list[Held]:
        """Every place that is taken, as it is now."""
        with self._changed:
            return list(self._held)

    def taker(self) -> Taker:
        """Who claims, and whose turn it is."""
        return self.offer.taker(isolated=self.isolated, after_tenant=self._after_tenant, gated=self._gated)

    def claim(self, database: Database) -> list[Held]:
        """Take as many runs as there are places. Empty when nothing is claimable. Raises ConnectionLost."""
        self.offer.keep(database, at_once=self.offer.is_crowded)
        with self.claiming():
            found, gates = self._claim_next(database)
            if not found and (self._gated or gates):
                # Where it found nothing one way, the other tells; and whoever finds nothing at all begins with the
                # cheaper way again.
                self._gated = not self._gated
                found, _ = self._claim_next(database)
                self._gated = self._gated and bool(found)
            self.served(found)
            with self._changed:
                new = [Held(claimed, self, self._lines.pop() if self._lines else None) for claimed in found]
                self._held += new
        return new

    def _claim_next(self, database: Database) -> tuple[list[Claimed], bool]:
        """What can be taken one way, and whether the gated way may still find something."""
        gates = False
        for _ in range(self.offer.ways):
            taken = take_next(database, taker=self.taker(), limit=self.free)
            if taken.runs:
                return taken.runs, False
            gates = gates or taken.gates
        return [], gates

    def served(self, claimed: list[Claimed]) -> None:
        """Note whose turn it was, and whether it is over: a tenant of weight three is served three times in a row."""
        if len(claimed) == 1:
            [one] = claimed
            tenant, left = self._serving
            left = (left if tenant == one.tenant_id and left > 0 else one.weight) - 1
            self._serving = (one.tenant_id, left)
            # Looked for from the one before it, the same tenant comes first again.
            self._after_tenant = one.tenant_id - (1 if left > 0 else 0)
        elif claimed:
            tenants = {one.tenant_id for one in claimed}
            # The turns go upwards and round again: those below the last one served came after the round's end.
            self._after_tenant = max({t for t in tenants if t <= self._after_tenant} or tenants)
            self._serving = (0, 0)

    def release(self, held: Held) -> None:
        """Its run has come to rest: the place is free."""
        with self._changed:
            self._held.remove(held)
            if held.line is not None:
                held.line.leave()
                self._lines.append(held.line)
            self._changed.notify_all()

    def abandon(self, held: Held) -> None:
        """Wait for it no more. The parent does not count it among the steps that it ends with the process."""
        with self._changed:
            held.abandoned = True
            if held.line is not None:
                held.line.leave()
            self._changed.notify_all()

    def wait_for_place(self, timeout: float) -> bool:
        """Wait until there is a free place. False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self.free > 0, timeout)

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until no run is in hand that may still come to rest. False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: all(held.abandoned for held in self._held), timeout)

    def release_unheld(self, database: Database, *, why: str) -> int:
        """Hand back what stands under our name and is not in hand. Raises ConnectionLost."""
        with self._nothing_being_claimed() as held:
            return release_unheld(database, worker_id=self.worker_id, held=held, why=why)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A claim is under way: until it is noted here, nobody may take its run for one that nobody holds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._releasing)
            self._claims_under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._claims_under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def _nothing_being_claimed(self) -> Iterator[list[UUID]]:
        with self._changed:
            self._changed.wait_for(lambda: not self._releasing)
            self._releasing = True
            self._changed.wait_for(lambda: self._claims_under_way == 0)
            claims = [claim for held in self._held for claim in (held.claimed, held.following) if claim is not None]
        try:
            yield [claim.run_id for claim in claims]
        finally:
            with self._changed:
                self._releasing = False
                self._changed.notify_all()
