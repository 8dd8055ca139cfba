"""The other side of the effects machine: a model of downstreams that counts, and does what a script tells it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durableops import NotSent, Refused
from runs.models import DrillReport

NOTES = "notes of the effects machine"

BEHAVIOURS = ("done", "refused", "not_sent", "lost_request", "lost_answer", "late", "broken", "dies", "stalls")
"""What may become of a request: done and answered; refused; never sent; unanswered and not done; unanswered and done;
unanswered, and done only when everybody has stopped waiting; answered by an error that says nothing; the sender dies
before it reads the answer; the sender stands still, is declared dead, and goes on to send."""

OF_MESSAGES = ("done", "refused", "not_sent", "lost_request", "lost_answer", "stalls")
"""What may become of a message. `stalls`: its relay stands still, loses its row to another one, and comes back."""


class Killed(BaseException):
    """The process ends here. Nothing catches it, as nothing catches SIGKILL."""


@dataclass
class World:
    """What was asked of it and what it did."""

    while_stalled: Callable[[], None] = lambda: None
    """What others do while a sender stands still."""
    while_relay_stalled: Callable[[], None] = lambda: None
    """What others do while a relay stands still with a message in its hand."""
    scripts: defaultdict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    """What becomes of the next requests, by the class of their tool; then all are done."""
    script_of_relay: deque[str] = field(default_factory=deque)
    """The same for messages, which leave on threads of their own."""
    requests: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    keys: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    answers: dict[str, Any] = field(default_factory=dict)
    """By key, for those that deduplicate."""
    under_way: list[tuple[str, str, bool]] = field(default_factory=list)
    """Resource, key and deduplication of requests that are still to arrive."""
    settled: Counter[str] = field(default_factory=Counter)
    """How often people said what became of it."""
    sent_after_settled: list[str] = field(default_factory=list)
    """What a sender sent that had stood still while somebody said what became of it."""
    forgets: bool = False
    """Whether it breaks its promise to deduplicate."""
    people_lie: bool = False
    """Whether whoever settles says of what happened that it did not."""
    kill_at: str = ""
    """Name of the failpoint at which the process ends next; empty if none."""

    def begin_anew(self) -> None:
        """Forget everything but its promises."""
        self.__init__(forgets=self.forgets, people_lie=self.people_lie)  # type: ignore[misc]

    def reach(self, point: str, *places: str) -> None:
        """Stands in for failpoints.reach."""
        del places
        if point == self.kill_at:
            self.kill_at = ""
            raise Killed(point)

    def serve(self, call: Any, *, deduplicates: bool) -> dict[str, Any]:
        """One request of a tool, up to what its caller hears of it."""
        behaviour, settled = self._next("keyed" if deduplicates else "legacy"), self.settled[call.resource]
        if behaviour == "stalls":
            self.while_stalled()
        if behaviour == "not_sent":
            raise NotSent("no connection")
        call.check()  # as call.request does, just before anything leaves
        if self.settled[call.resource] != settled:
            self.sent_after_settled.append(call.resource)
        self.requests[call.resource] += 1
        self.keys[call.resource].add(call.key)
        if behaviour == "lost_request":
            raise TimeoutError("nothing was heard")
        # Whoever knows a key answers as it did the first time.
        if behaviour == "refused" and not (deduplicates and call.key in self.answers):
            raise Refused("no")
        if behaviour == "broken":
            raise RuntimeError("something went wrong")
        if behaviour == "late":
            self.under_way.append((call.resource, call.key, deduplicates))
            raise TimeoutError("nothing was heard")
        answer = self._do(call.resource, call.key, deduplicates=deduplicates)
        if behaviour == "lost_answer":
            raise TimeoutError("nothing was heard")
        if behaviour == "dies":
            self.kill_at = "after_answer"
        return answer

    def _next(self, safety: str) -> str:
        return self.scripts[safety].popleft() if self.scripts[safety] else "done"

    def _do(self, resource: str, key: str, *, deduplicates: bool) -> dict[str, Any]:
        if deduplicates and not self.forgets and key in self.answers:
            found: dict[str, Any] = self.answers[key]
            return found
        self.done[resource] += 1
        answer = {"id": f"{resource} no. {self.done[resource]}"}
        self.answers[key] = answer
        return answer

    def arrive(self) -> None:
        """What is still under way arrives: after this nothing does that was sent before."""
        while self.under_way:
            resource, key, deduplicates = self.under_way.pop(0)
            self._do(resource, key, deduplicates=deduplicates)

    def look(self, call: Any) -> dict[str, Any]:
        """A request that changes nothing, up to what its caller hears of it."""
        behaviour = self._next("read")
        if behaviour == "stalls":
            self.while_stalled()
        if behaviour == "not_sent":
            raise NotSent("no connection")
        call.check()
        self.requests[call.resource] += 1
        self.keys[call.resource].add(call.key)
        match behaviour:
            case "refused":
                raise Refused("no")
            case "broken":
                raise RuntimeError("something went wrong")
            case "lost_request" | "lost_answer" | "late":
                raise TimeoutError("nothing was heard")
            case "dies":
                self.kill_at = "after_answer"
        self.done[call.resource] = 1
        return {"id": "seen"}

    def take(self, call: Any) -> dict[str, Any]:
        """One message that a relay delivers, up to what the relay hears of it. Whoever gets it knows it by its key."""
        behaviour = self.script_of_relay.popleft() if self.script_of_relay else "done"
        if behaviour == "stalls":
            self.while_relay_stalled()
        if behaviour == "not_sent":
            raise NotSent("no connection")
        self.requests[call.resource] += 1
        self.keys[call.resource].add(call.key)
        match behaviour:
            case "refused" if call.key not in self.answers:
                raise Refused("no such box")
            case "broken" | "lost_request":
                raise RuntimeError("something went wrong")
        answer = self._do(call.resource, call.key, deduplicates=True)
        if behaviour == "lost_answer":
            raise TimeoutError("nothing was heard")
        return answer

    def note(self, call: Any) -> int:
        """A change of our own database, counted where it is kept."""
        behaviour = self._next("local")
        if behaviour == "stalls":
            self.while_stalled()
        if behaviour == "broken":
            raise RuntimeError("something went wrong")
        return DrillReport.objects.create(
            drill=NOTES, passed=True, seed=0, seconds=0.0, report={"resource": call.resource}
        ).pk

    def count_notes(self) -> None:
        """Take over what our own database holds."""
        noted = DrillReport.objects.filter(drill=NOTES).values_list("report__resource", flat=True)
        for resource, count in Counter(noted).items():
            self.done[resource] = count
