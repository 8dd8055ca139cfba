"""Relays in the test's own process, workflows that post to them, and a receiver that remembers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from durableops import Retry, State, step, tool, webhook, workflow
from durableops.conf import override_conf
from durableops.engine import endpoints
from durableops.engine.relaying import guarded
from durableops.engine.relaying.relay import Relay
from runs.models import OutboxDestination, OutboxLane, OutboxMessage, Run
from tests.factories import now

TWICE = Retry(max_attempts=2, first_delay=60.0, jitter=0.0, max_delay=60.0)


class Facts(State):
    messages: list[str] = []
    n: int = 0


class Receiver:
    """The other side: what arrived, and what it answers. `script` is consumed, then everything succeeds."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.lock = threading.Lock()
        self.got: list[tuple[str, str, str, int]] = []
        """Run, resource, key and attempt of each message, in the order of their arrival."""

    def answer(self, call: Any) -> Any:
        with self.lock:
            self.got.append((call.run_id, call.resource, call.key, call.attempt))
            next_ = self.script.pop(0) if self.script else {"id": f"T-{call.resource}"}
        if callable(next_):
            next_ = next_()
        if isinstance(next_, BaseException):
            raise next_
        return next_

    @property
    def resources(self) -> list[str]:
        return [resource for _, resource, _, _ in self.got]


def declare(receiver: Receiver, **options: Any) -> Any:
    """An outbox tool that the receiver answers, and a workflow `post` that posts the messages of its input."""
    values: dict[str, Any] = {"safety": "outbox", "name": "mail", "retry": TWICE, "resource_id": "id"} | options

    @tool(**values)
    def mail(call):
        return receiver.answer(call)

    def a(run: Any) -> None:
        run.call_many(mail, [{"resource": name} for name in run.state.messages])

    workflow(name=f"post-{values['name']}", version=1, state=Facts)(type("Post", (), {"a": step(a)}))
    return mail


@pytest.fixture
def make_relay(transactional_db: None) -> Iterator[Callable[..., Relay]]:
    """Makes relays that have begun their life; they end with the test."""
    made: list[Relay] = []

    def make(**options: Any) -> Relay:
        values: dict[str, Any] = {"concurrency": 4, "name": f"relay {len(made)} of tests"} | options
        relay = Relay(**values)
        relay.begin()
        made.append(relay)
        return relay

    yield make
    for relay in made:
        relay.stop()
        relay.end()


def finish(relay: Relay) -> None:
    """Take what is under way in a relay, and write it; take nothing more."""
    while relay._held:
        relay._wait(10)
    relay._stopping.set()
    relay.turn()
    relay._stopping.clear()


def first_message() -> OutboxMessage:
    return OutboxMessage.objects.order_by("id")[0]


def id_of(relay: Relay) -> Any:
    assert relay._life is not None
    return relay._life.id


def rest_of(name: str = "mail") -> float:
    """Seconds for which a destination still rests."""
    until = OutboxDestination.objects.get(name=name).open_until
    assert until is not None
    return (until - now()).total_seconds()


def states(run: Run) -> list[str]:
    return list(OutboxMessage.objects.filter(lane__run=run).order_by("id").values_list("state", flat=True))


def let_lanes_be_due() -> None:
    OutboxLane.objects.update(due_at=now())


def let_destinations_rest_enough() -> None:
    OutboxDestination.objects.filter(open_until__isnull=False).update(open_until=now())


def subscribed(engine: Any, url: str, *event_types: str) -> endpoints.Issued:
    return endpoints.create(url, tenant=engine.tenant, actor="ann", event_types=event_types)


class Numbers(State):
    numbers: list[int] = [1]


@pytest.fixture
def this_machine_is_allowed() -> Iterator[None]:
    """Webhooks may go to this very machine."""
    with override_conf(webhook_allow="127.0.0.1/32"):
        yield
    if guarded._pool.is_made:
        guarded._pool().close()


@pytest.fixture
def shipped(engine) -> Any:
    """The event, and a workflow `ship` that tells it for each number."""
    event = webhook("order.shipped", retry=TWICE, timeout=5)

    def a(run: Any) -> None:
        for number in run.state.numbers:
            run.call(event, resource=str(number), number=number, to="Zoë")

    workflow(name="ship", version=1, state=Numbers)(type("Ship", (), {"a": step(a)}))
    return event
