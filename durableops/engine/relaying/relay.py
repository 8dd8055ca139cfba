"""The relay: takes the heads of lanes, sends them on its threads, and writes down what became of them.

Any number of relays work side by side; which message is whose is decided by the lane's row and its claim number. One
thread talks to the database: with one commit it settles what came back and claims what may go next.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

from durableops import failpoints
from durableops.authoring import registry
from durableops.authoring.definitions import OUTBOX_RETRY, ToolDefinition
from durableops.clock import monotonic, uptime
from durableops.conf import get_conf
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.ops import Attempt
from durableops.engine.relaying import outcomes, webhooks
from durableops.engine.relaying.delivery import Delivery
from durableops.engine.relaying.lifetime import Lifetime
from durableops.engine.relaying.senders import Senders
from durableops.engine.relaying.webhooks import Endpoint, WebhookDelivery
from durableops.errors import CallTimeout, NotSent
from runs import delivering, relaying
from runs.delivering import Settled
from runs.relaying import Claimed, Place, Taken
from runs.transitions import record_event

logger = logging.getLogger("durableops.relay")

PROBE_SECONDS = 60.0
CIRCLES = 16
"""With more destinations than one claim looks at, so many claims are made before the relay rests."""
UNKNOWN_TOOL_SECONDS = 10.0
DISABLED_SECONDS = 10.0
MOST_GIVEN_UP = 64
"""With more handlers than this that never came back, the relay ends: only a new process is rid of them."""

type Answer = tuple[Delivery, Attempt]


class HandlersHang(Exception):
    """Too many handlers never came back."""


class Relay:
    """One relay; `run` lives under one lease after the other, until it is asked to stop."""

    def __init__(
        self, *, concurrency: int | None = None, name: str = "relay", poll_seconds: float | None = None
    ) -> None:
        self._poll_seconds = poll_seconds
        """How often it looks while nothing is ready; None is as often as the settings say."""
        self.concurrency = concurrency or get_conf().relay_concurrency
        self._name = name
        self._database = Database(name=name)
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        """What came back from the senders; None is a ring of the bell."""
        self._senders = Senders(name=name)
        self._stopping = threading.Event()
        self._stop_at = 0.0
        self._after = Place()
        self._random = random.Random()  # noqa: S311 - jitter, not secrets
        self._held: dict[int, Delivery] = {}
        """By lane."""
        self._settled: list[Settled] = []
        """What is to be written with the next commit."""
        self._known = _destinations()
        self._life: Lifetime | None = None

    def run(self) -> None:
        """Relay until asked to stop, however often the database goes away. Raises HandlersHang."""
        while not self._stopping.is_set():
            try:
                self.begin()
                while self.go_on():
                    pass
            except ConnectionLost as lost:
                logger.warning("the relay stops without the database: %s", str(lost).splitlines()[0])
            finally:
                self.end()

    def stop(self) -> None:
        """Take nothing more, wait for what is under way within the grace, and end. For signal handlers, too."""
        self._stop_at = monotonic() + get_conf().grace_seconds
        self._stopping.set()
        self._answers.put(None)

    def poke(self) -> None:
        """Somebody has seen that there is something ready: look at once."""
        self._answers.put(None)

    def begin(self) -> None:
        """Register under a new lease, however long the database is away."""
        self._held, self._settled = {}, []
        self._life = Lifetime(name=self._name, in_hand=lambda: len(self._held), heard=self.poke)
        self._life.begin(concurrency=self.concurrency, destinations=self._known, give_up=self._stopping)

    def end(self) -> None:
        """Give back what is held, say so, and close everything."""
        try:
            if self._held or self._settled:
                self._let_go_of_all()
        except ConnectionLost as lost:
            logger.warning("lanes of the relay were not given back, upkeep will: %s", str(lost).splitlines()[0])
        if self._life is not None:
            self._life.end("stopped" if self._stopping.is_set() else "stopped: it begins anew")
        self._senders.close()
        self._database.close()

    def go_on(self) -> bool:
        """One turn: write what came back, take what may go, and wait if there is neither. False when this life ends."""
        assert self._life is not None
        if self._life.is_lost.is_set():
            logger.warning("the relay was declared dead; what it holds is another's now, and it begins anew")
            self._abandon_all()
            return False
        moved = self.turn()
        if self._stopping.is_set() and (not self._held or monotonic() > self._stop_at):
            return False
        if not moved:
            poll = self._poll_seconds or get_conf().relay_poll_seconds
            self._wait(poll if self._has_room() else 1.0)
        return True

    def turn(self) -> bool:
        """Write what came back and take what may go. Returns whether there was any of it."""
        self._collect()
        self._give_up_overdue()
        settled, self._settled = self._settled, []
        slots = self.concurrency - len(self._held) if self._has_room() else 0
        if not settled and not slots:
            return False
        for _ in range(CIRCLES):
            asked_at = uptime()
            claimed = self._exchange(settled, slots)
            settled = []
            if claimed.taken or claimed.walked < relaying.TURNS:
                break
        self._start(claimed.taken, claimed_at=asked_at)
        return bool(claimed.taken or self._settled)

    def drain(self) -> None:
        """Deliver all that is due now, and return. For tests."""
        while True:
            if not self.turn():
                if not self._held:
                    return
                self._wait(1.0)

    def _has_room(self) -> bool:
        return not self._stopping.is_set() and len(self._held) < self.concurrency

    def _wait(self, seconds: float) -> None:
        """Wait for an answer, a ring, or so long."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return
        if answer is not None:
            self._take(*answer)

    def _collect(self) -> None:
        while True:
            try:
                answer = self._answers.get_nowait()
            except queue.Empty:
                return
            if answer is not None:
                self._take(*answer)

    def _take(self, delivery: Delivery, attempt: Attempt) -> None:
        taken = delivery.taken
        if self._held.get(taken.lane_id) is not delivery:
            logger.warning("message %s was answered after it was given up; the answer is not taken", taken.message_id)
            return
        del self._held[taken.lane_id]
        self._settle(outcomes.judge(taken, attempt, tool=delivery.tool, rng=self._random), taken)

    def _settle(self, settled: Settled, taken: Taken) -> None:
        if settled.outcome != "delivered" and settled.error_message:
            logger.warning(
                "message %s to %s, attempt %s: %s: %s",
                taken.message_id, taken.destination, taken.attempts, settled.outcome, settled.error_message,
            )  # fmt: skip
        self._settled.append(settled)

    def _give_up_overdue(self) -> None:
        """A handler that never returns must not keep its lane; what it may still bring is not taken."""
        now = monotonic()
        for delivery in [each for each in self._held.values() if now > each.limit]:
            delivery.is_given_up = True
            self._senders.give_up()
            del self._held[delivery.taken.lane_id]
            late = CallTimeout(f"{delivery.tool.name} did not come back within {delivery.tool.timeout:g} s.")
            judged = outcomes.judge(delivery.taken, Attempt(error=late), tool=delivery.tool, rng=self._random)
            self._settle(judged, delivery.taken)
        if self._senders.given_up > MOST_GIVEN_UP:
            raise HandlersHang(f"{self._senders.given_up} handlers never came back; this process is to be replaced.")

    def _start(self, claimed: list[Taken], *, claimed_at: float) -> None:
        wanted = [taken.endpoint_id for taken in claimed if taken.endpoint_id is not None]
        endpoints = webhooks.load(self._database, wanted) if wanted else {}
        for taken in claimed:
            made = self._prepare(taken, endpoints, claimed_at=claimed_at)
            if isinstance(made, Settled):
                self._settle(made, taken)
                continue
            self._held[taken.lane_id] = made
            self._senders.send(partial(self._attempt, made))

    def _attempt(self, delivery: Delivery) -> None:
        self._answers.put((delivery, delivery.attempt()))

    def _prepare(self, taken: Taken, endpoints: dict[UUID, Endpoint], *, claimed_at: float) -> Delivery | Settled:
        """The delivery of a message, or what becomes of one that cannot even be tried."""
        tool = registry.tool(taken.tool)
        refused = outcomes.cannot_be_sent(taken, retry=OUTBOX_RETRY if tool is None else tool.retry)
        if refused is not None:
            return refused
        assert self._life is not None
        gone = self._life.is_lost.is_set
        if taken.endpoint_id is not None:
            endpoint = endpoints[taken.endpoint_id]
            if endpoint.removed:
                return outcomes.skipped(taken, "its endpoint was removed.")
            if not endpoint.enabled:
                return outcomes.released(taken, pause=DISABLED_SECONDS, why="its endpoint is disabled.")
            event = tool if tool is not None and tool.event_type else webhooks.unknown_event(taken)
            if event is not None:
                return WebhookDelivery(taken, event, endpoint, claimed_at=claimed_at, gone=gone)
        if tool is None or taken.endpoint_id is not None:
            why = f"no relay here knows the tool {taken.tool!r}; is its app in DURABLEOPS_APPS?"
            return outcomes.released(taken, pause=UNKNOWN_TOOL_SECONDS, why=why)
        return Delivery(taken, tool, claimed_at=claimed_at, gone=gone)

    def _exchange(self, settled: list[Settled], slots: int) -> Claimed:
        """Write what came back and claim what may go, as one commit; find out what happened if its answer was lost."""
        while True:
            try:
                return self._database.retrying(partial(self._send, settled=settled, slots=slots))
            except ConnectionLost as lost:
                logger.warning("the answer of the database was lost: %s", str(lost).splitlines()[0])
                self._reconnect()
                self._find_out(settled)
                settled = []

    def _find_out(self, settled: list[Settled]) -> None:
        """Settle once more: what had landed does not fit any more. Then free what was claimed without our knowing."""
        assert self._life is not None
        relay_id = self._life.id
        while True:
            try:
                if settled:
                    self._database.retrying(partial(delivering.send_settle, relay_id=relay_id, settled=settled))
                self._database.retrying(partial(delivering.release_unheld, relay_id=relay_id, held=list(self._held)))
                return
            except ConnectionLost:
                self._reconnect()

    def _reconnect(self) -> None:
        """Try until the database is back. Raises ConnectionLost when asked to stop meanwhile."""
        while True:
            try:
                return self._database.reconnect(patience=1.0)
            except ConnectionLost:
                if self._stopping.is_set():
                    raise

    def _send(self, cursor: Any, *, settled: list[Settled], slots: int) -> Claimed:
        assert self._life is not None
        claim = cursor.connection.cursor() if settled and slots else cursor
        with cursor.connection.pipeline():
            if settled:
                delivering.send_settle(cursor, self._life.id, settled)
            if slots:
                relaying.send_claim(claim, self._taker(slots))
        if settled:
            self._tell_lost(cursor, settled, delivering.accepted(cursor))
            failpoints.reach(failpoints.Point.RELAY_AFTER_SETTLE, *(each.resource for each in settled))
        if not slots:
            return Claimed(taken=[], after=self._after, walked=0)
        claimed = relaying.claimed(claim)
        self._after = claimed.after
        return claimed

    def _taker(self, slots: int) -> relaying.Taker:
        assert self._life is not None
        under_way = Counter((each.taken.tenant_id, each.taken.destination) for each in self._held.values())
        return relaying.Taker(
            relay_id=self._life.id, known=self._known, after=self._after, slots=slots,
            share=max(1, self.concurrency // 2), under_way=under_way, probe_seconds=PROBE_SECONDS,
        )  # fmt: skip

    def _tell_lost(self, cursor: Any, settled: list[Settled], accepted: set[int]) -> None:
        """Say on the timeline that an outcome came from a relay which had lost the message, and was refused."""
        assert self._life is not None
        for each in settled:
            if each.lane in accepted or each.message is None:
                continue
            reason = f"message {each.message} is another relay's by now; what came of it here was refused."
            logger.warning("%s", reason)
            record_event(
                cursor, UUID(each.run), "late_result_rejected", reason=reason, worker_id=self._life.id,
                data={"message": each.message, "outcome": each.outcome},
            )  # fmt: skip

    def _let_go_of_all(self) -> None:
        """Write what is known. What is still under way has no outcome: when it goes out again, that is a repeat."""
        cut = NotSent("its relay was stopped before its outcome was known.")
        for delivery in self._held.values():
            delivery.is_given_up = True
            self._settled.append(outcomes.failed(delivery.taken, cut, pause=0.0, unsent=False))
        settled, self._settled, self._held = self._settled, [], {}
        if self._life is not None and not self._life.is_lost.is_set():
            relay_id = self._life.id
            self._database.retrying(partial(delivering.send_settle, relay_id=relay_id, settled=settled))

    def _abandon_all(self) -> None:
        for delivery in self._held.values():
            delivery.is_given_up = True
        self._held, self._settled = {}, []


def _destinations() -> tuple[str, ...]:
    """The destinations for which this process has handlers."""
    return tuple(
        sorted({_destination(tool) for tool in registry.tools() if tool.safety == "outbox" and not tool.event_type})
    )


def _destination(tool: ToolDefinition) -> str:
    return tool.destination or tool.name
