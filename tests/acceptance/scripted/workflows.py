"""The scripted workflows of the acceptance tests."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from durableops import Call, DoneEffect, Fatal, NotSent, Page, Retry, Run, State, step, tool, webhook, workflow
from examples.desk import post_ticket
from tests.acceptance.scripted import company  # noqa: F401  # its workflows are this app's as well
from tests.acceptance.scripted.script import Facts, append, deliver_to_file, mark, pass_gate

AT_ONCE = Retry(max_attempts=4, first_delay=0, jitter=0)
PATIENTLY = Retry(max_attempts=20, first_delay=0.2, factor=1, jitter=0)
FORGETS_NOTHING = timedelta(days=1)


@tool(safety="keyed", timeout=30, retry=AT_ONCE, key_window=FORGETS_NOTHING, resource_id="id")
def deliver(call: Call, *, folder: str) -> dict[str, str]:
    """Send something into the world."""
    return deliver_to_file(call, folder)


@tool(safety="keyed", timeout=30, retry=PATIENTLY, key_window=FORGETS_NOTHING, resource_id="id")
def open_ticket(call: Call, *, title: str) -> dict[str, Any]:
    """Open a ticket at the desk, over HTTP."""
    return {"id": post_ticket(call, title=title, details={})["id"]}


@tool(safety="legacy", system="acc-ledger", timeout=3, retry=Retry(max_attempts=1), resource_id="id")
def post_once(call: Call, *, folder: str) -> dict[str, str]:
    """Post something to a system that deduplicates nothing. Between its intent and the wire stands the gate."""
    append(folder, "marks", {"what": "in hand", "step": "post", "attempt": call.attempt, "pid": os.getpid()})
    pass_gate(folder)
    call.check()  # as call.request does, just before anything leaves
    return deliver_to_file(call, folder)


@workflow(name="acc-legacy", version=1, state=Facts, max_recoveries=20)
class Legacy:
    """One step that posts once."""

    @step(retry=AT_ONCE)
    def post(run: Run) -> str:
        return str(run.call(post_once, resource="invoice", folder=run.state.folder)["id"])


@tool(safety="keyed", timeout=30, retry=AT_ONCE, key_window=FORGETS_NOTHING)
def take_back(call: Call, *, folder: str) -> None:
    """Undo a parcel, unless the test says that their desk is closed."""
    append(
        folder, "marks", {"what": "asked to undo", "step": call.resource, "attempt": call.attempt, "pid": os.getpid()}
    )
    if (Path(folder) / "closed").exists():
        raise NotSent("their desk is closed")
    append(folder, "undone", {"key": call.key, "resource": call.resource})


def of_the_same_folder(effect: DoneEffect) -> dict[str, Any]:
    return {"folder": effect.request["folder"]}


@tool(safety="keyed", timeout=30, key_window=FORGETS_NOTHING, compensate=take_back, undo_request=of_the_same_folder)
def deliver_returnable(call: Call, *, folder: str) -> dict[str, str]:
    """Send something into the world that can be taken back."""
    return deliver_to_file(call, folder)


@workflow(name="acc-undo", version=1, state=Facts)
class Undo:
    """Two deliveries that can be undone."""

    @step
    def act(run: Run) -> None:
        for name in ("first", "second"):
            run.call(deliver_returnable, resource=name, folder=run.state.folder)


@workflow(name="acc-three", version=1, state=Facts, max_recoveries=20)
class Three:
    """Three steps; the second waits for the gate, then delivers."""

    @step(retry=AT_ONCE)
    def first(run: Run) -> None:
        mark(run, "did")

    @step(retry=AT_ONCE)
    def second(run: Run) -> str:
        mark(run, "began")
        pass_gate(run.state.folder)
        run.state.n += 1
        sent = run.call(deliver, resource="parcel", folder=run.state.folder)
        mark(run, "delivered")
        return str(sent["id"])

    @step(retry=AT_ONCE)
    def third(run: Run) -> int:
        mark(run, "did")
        return run.state.n


@workflow(name="acc-quick", version=1, state=Facts)
class Quick:
    """One step, one delivery."""

    @step(retry=AT_ONCE)
    def work(run: Run) -> None:
        mark(run, "did")
        run.call(deliver, resource=run.id, folder=run.state.folder)


@workflow(name="acc-suspends", version=1, state=Facts, max_recoveries=20)
class Suspends:
    """One wait for an event."""

    @step(retry=AT_ONCE)
    def wait(run: Run) -> Any:
        mark(run, "began")
        return run.wait_for("go", correlation=run.id, timeout=timedelta(minutes=5))


@workflow(name="acc-desk", version=1, state=Facts, max_recoveries=20)
class Desk:
    """One ticket over HTTP."""

    @step(retry=AT_ONCE)
    def order(run: Run) -> Any:
        mark(run, "began")
        return run.call(open_ticket, resource="A-1", title="over HTTP")["id"]


@workflow(name="acc-busy", version=1, state=Facts)
class Busy:
    """Holds the interpreter: first from Python, then inside one call of a C function."""

    @step(retry=AT_ONCE)
    def spin(run: Run) -> None:
        mark(run, "began")
        end = time.monotonic() + run.state.seconds
        while time.monotonic() < end:
            pass

    @step(retry=AT_ONCE)
    def match(run: Run) -> float:
        mark(run, "began")
        began, length = time.monotonic(), 20
        longest = 0.0
        while longest < run.state.seconds:  # each length takes twice as long; the last call is longer than asked
            one = time.monotonic()
            re.match(r"(a+)+$", "a" * length + "b")
            longest, length = time.monotonic() - one, length + 1
        assert time.monotonic() - began >= longest
        return longest


@workflow(name="acc-late", version=1, state=Facts)
class Late:
    """The first attempt of its first step returns after its timeout."""

    @step(timeout=0.4, retry=AT_ONCE)
    def slow(run: Run) -> str:
        mark(run, "began")
        if run.attempt == 1:
            threading.Event().wait(0.7)
        return f"attempt {run.attempt}"

    @step
    def ledger(run: Run) -> None:
        append(run.state.folder, "ledger", {"attempt": run.attempt})


@workflow(name="acc-stubborn", version=1, state=Facts)
class Stubborn:
    """Swallows everything and never ends by itself, except on its last attempt."""

    @step(timeout=0.3, retry=Retry(max_attempts=2, first_delay=0, jitter=0))
    def hold_on(run: Run) -> str:
        mark(run, "began")
        while run.attempt == 1 or run.state.fails:
            try:
                threading.Event().wait(60)
            except BaseException:
                continue
        return "gave in"

    @step
    def after(run: Run) -> None:
        mark(run, "did")


@workflow(name="acc-nonstop", version=1, state=Facts)
class Nonstop:
    """Reports its progress until the gate opens, however long that takes."""

    @step(retry=AT_ONCE)
    def loop(run: Run) -> None:
        mark(run, "began")
        while not (Path(run.state.folder) / "gate").exists():
            run.progress(1)
            threading.Event().wait(0.01)


@workflow(name="acc-pages", version=1, state=Facts)
class Pages:
    """Pages that deliver; the gate stands before the third."""

    @step(retry=AT_ONCE)
    def work(run: Run) -> None:
        def read(at: int) -> Page | None:
            if at == 4:
                mark(run, "third page")
                pass_gate(run.state.folder)
            return Page(items=[at, at + 1], next_cursor=at + 2) if at < 8 else None

        for page in run.pages(read, start=0):
            run.state.n += len(page)
            run.call_many(deliver, [{"resource": f"row-{n}", "folder": run.state.folder} for n in page])


@workflow(name="acc-poison", version=1, state=Facts, max_recoveries=1)
class Poison:
    """Kills every worker that enters its second step."""

    @step
    def harmless(run: Run) -> None:
        mark(run, "did")

    @step
    def deadly(run: Run) -> None:
        mark(run, "began")
        os.kill(os.getpid(), signal.SIGKILL)


@workflow(name="acc-noisy", version=1, state=Facts)
class Noisy:
    """Says three things and fails, three times; the fourth attempt succeeds."""

    @step(retry=AT_ONCE)
    def talk(run: Run) -> None:
        for n in (1, 2, 3):
            run.log(f"line {n}")
            run.progress(n, 3)
        if run.attempt < 4:
            raise ValueError(f"attempt {run.attempt} was asked to fail")


@workflow(name="acc-approval", version=1, state=Facts)
class Approval:
    """Three fetches, a person's word, one write."""

    @step
    def fetch(run: Run) -> None:
        mark(run, "did")

    @step
    def fetch_more(run: Run) -> None:
        mark(run, "did")

    @step
    def fetch_last(run: Run) -> None:
        mark(run, "did")

    @step
    def ask(run: Run) -> str:
        answer = run.approval("go-ahead", timeout=timedelta(minutes=5))
        assert answer is not None
        return str(answer.by)

    @step
    def write(run: Run) -> None:
        run.call(deliver, resource="order", folder=run.state.folder)


@workflow(name="acc-sleeper", version=1, state=Facts)
class Sleeper:
    """Sleeps until an instant, then for a while, then waits for what never comes: three timers."""

    @step(retry=AT_ONCE)
    def sleep(run: Run) -> None:
        run.sleep_until(datetime.fromisoformat(run.state.when))
        mark(run, "woke")
        run.sleep(0.3)
        run.wait_for("never", correlation=run.id, timeout=timedelta(seconds=0.3), on_timeout="continue")


@tool(safety="keyed", timeout=30, retry=AT_ONCE, key_window=timedelta(milliseconds=50))
def charge(call: Call, *, folder: str, at: float = 0.0) -> dict[str, str]:
    """Charge somebody whose bank forgets keys at once."""
    return deliver_to_file(call, folder)


@workflow(name="acc-charge", version=1, state=Facts)
class Charge:
    """One charge; asked to, it puts the time of day into its request, as it should not."""

    @step(retry=AT_ONCE)
    def pay(run: Run) -> None:
        at = time.time() if run.state.fails else 0.0
        run.call(charge, resource="invoice-7", folder=run.state.folder, at=at)


BAD_OUTPUTS: dict[str, Any] = {
    "nul": "a\0b", "surrogate": "a\ud800b", "nan": float("nan"), "infinity": {"x": [1e400]}, "huge": "x" * 2_000_000,
    "deep": json.loads("[" * 200 + "]" * 200), "object": object(), "large number": 2**60,
}  # fmt: skip
"""What no step may return, by a short name."""


@workflow(name="acc-bad-output", version=1, state=Facts)
class BadOutput:
    """Delivers, then returns what cannot be kept, or raises an error whose text cannot."""

    @step(retry=AT_ONCE)
    def work(run: Run) -> Any:
        run.call(deliver, resource="parcel", folder=run.state.folder)
        if run.state.what == "error":
            raise Fatal("a NUL \0, half a pair \ud800")
        return BAD_OUTPUTS[run.state.what]


class Family(State):
    """What a parent is told."""

    folder: str
    children: int = 0
    bad: int = -1
    succeeded: int = 0
    failed: int = 0


@workflow(name="acc-child", version=1, state=Facts)
class Child:
    """One child; it fails for good if asked to."""

    @step(retry=Retry(max_attempts=1))
    def work(run: Run) -> int:
        if run.state.fails:
            raise ValueError("it was asked to fail")
        return run.state.n


@workflow(name="acc-parent", version=1, state=Family, max_recoveries=20)
class Parent:
    """Fans out, waits for all, and counts."""

    @step(retry=AT_ONCE)
    def fan_out(run: Run) -> None:
        given = [{"folder": run.state.folder, "n": n, "fails": n == run.state.bad} for n in range(run.state.children)]
        found = run.children("acc-child", given, on_failure="continue")
        run.state.succeeded = sum(child.state == "succeeded" for child in found)
        run.state.failed = sum(child.state == "failed" for child in found)

    @step
    def count(run: Run) -> list[int]:
        return [run.state.succeeded, run.state.failed]


SEVERAL_TIMES = Retry(max_attempts=10, first_delay=0.2, factor=1, jitter=0)
happened = webhook("acc.happened", retry=SEVERAL_TIMES, timeout=20)


@tool(safety="outbox", timeout=20, retry=SEVERAL_TIMES)
def tell(call: Call, *, url: str) -> int:
    """Tell somebody, over HTTP."""
    return call.request("POST", url, json={"resource": call.resource}).status_code


@workflow(name="acc-post", version=1, state=Facts)
class Post:
    """As many messages as it is told, in two steps: to an address, or to whoever subscribed."""

    @step
    def first(run: Run) -> None:
        for number in range(run.state.n):
            run.call(tell, resource=f"first-{number}", url=run.state.what)

    @step
    def second(run: Run) -> None:
        for number in range(run.state.n):
            run.call(tell, resource=f"second-{number}", url=run.state.what)


@workflow(name="acc-announce", version=1, state=Facts)
class Announce:
    """An event for whoever subscribed."""

    @step
    def first(run: Run) -> None:
        run.call(happened, resource="it", where="here")
