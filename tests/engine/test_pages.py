"""`run.pages`: a cursor committed after each page, resumes in the middle, and cursors that only grow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from durableops import Page, Retry, State, step, tool, workflow
from runs.models import Checkpoint, IdempotencyRecord, Receipt, Run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Count(State):
    seen: list[int] = []


def read(cursor: int | None) -> Page | None:
    """Three pages of two rows each, by position."""
    at = cursor or 0
    return Page(items=[at, at + 1], next_cursor=at + 2 if at < 4 else None)


def one_step(function, **options):
    workflow(name="one", version=1, state=Count, **options)(
        type("One", (), {"a": step(id="a", retry=AT_ONCE)(function)})
    )


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def cursors(run: Run) -> list[Any]:
    return list(Checkpoint.objects.filter(run=run, kind="page").order_by("seq").values_list("cursor", flat=True))


def test_cursor_and_state_are_committed_after_each_page(engine, commits):
    def a(run: Any):
        for page in run.pages(read):
            run.state.seen += page
        return run.state.seen

    one_step(a)
    run = engine.run("one")
    assert output(run) == [0, 1, 2, 3, 4, 5]
    assert cursors(run) == [2, 4, {"end": True}]
    assert commits.count == 4
    assert run.cursor is None


@pytest.mark.parametrize("at", [0, 2, 4])
def test_interrupted_page_is_read_again_and_the_pages_before_it_are_not(engine, at):
    reads = []

    def reading(cursor):
        reads.append(cursor)
        return read(cursor)

    def a(run: Any):
        for page in run.pages(reading):
            run.state.seen += page
            if page[0] == at and run.attempt == 1:
                raise ValueError("in the middle of a page")
        return run.state.seen

    one_step(a)
    run = engine.run("one")
    # The half page left nothing: the state is decoded from the last page's commit.
    assert output(run) == [0, 1, 2, 3, 4, 5]
    assert reads.count(at or None) == 2
    assert len(reads) == 4


def test_worker_lost_in_a_page_costs_only_that_page(engine):
    desk = []

    @tool(safety="keyed", name="send")
    def send(call):
        desk.append(call.resource)
        if len(desk) == 4:
            engine.lose_worker()

    def a(run: Any):
        for page in run.pages(read):
            run.call_many(send, [{"resource": f"r{n}"} for n in page], concurrency=1)
        return 1

    one_step(a)
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    # Both calls of the interrupted page had no result on record: both go out again, nothing else does.
    assert desk == ["r0", "r1", "r2", "r3", "r2", "r3", "r4", "r5"]
    assert IdempotencyRecord.objects.filter(attempts=2).count() == 2
    assert Receipt.objects.get().repeated_effects == 2


def test_page_costs_two_commits_with_its_calls(engine, commits):
    @tool(safety="keyed", name="send")
    def send(call):
        return None

    def a(run: Any):
        for page in run.pages(read):
            run.call_many(send, [{"resource": f"r{n}"} for n in page])

    one_step(a)
    engine.run("one")
    assert commits.count == 3 * 2 + 1


@pytest.mark.parametrize(
    "cursor", [2, 1, 0, -5, "3", None], ids=["same", "lower", "zero", "negative", "other kind", "none ends"]
)
def test_cursor_that_does_not_grow_stops_the_run(engine, cursor):
    def reading(at):
        return Page(items=[1], next_cursor=2 if at is None else cursor)

    def a(run: Any):
        for _ in run.pages(reading):
            pass

    one_step(a)
    run = engine.run("one")
    if cursor is None:
        assert run.state == "succeeded"
        return
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.CursorRegression"
    assert "never an offset" in run.error_message
    assert run.step_attempts == 1


@pytest.mark.parametrize("cursors_", [["a", "b", "c"], [["x", 1], ["x", 2], ["y", 0]], [("k", 1), ("k", 2), ("l", 1)]])
def test_keys_and_keysets_are_cursors_too(engine, cursors_):
    pages = [None, *cursors_]
    seen = []

    def reading(at):
        seen.append(at)
        plain = [list(c) if isinstance(c, tuple) else c for c in pages]
        n = plain.index(at)
        return Page(items=[n], next_cursor=pages[n + 1]) if n + 1 < len(pages) else None

    def a(run: Any):
        for page in run.pages(reading):
            if page == [1] and run.attempt == 1:
                raise ValueError("again")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert len(seen) == 5


def test_resume_after_the_last_page_does_not_begin_again(engine):
    reads = []

    def reading(at):
        reads.append(at)
        return read(at)

    def a(run: Any):
        for _ in run.pages(reading):
            pass
        if run.attempt == 1:
            raise ValueError("after the loop")
        return run.cursor

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert reads == [None, 2, 4]


def test_no_page_at_all_is_an_ordinary_end(engine):
    one_step(lambda run: list(run.pages(lambda at: None)))
    assert output(engine.run("one")) == []


def test_loop_begins_at_its_start(engine):
    one_step(lambda run: list(run.pages(read, start=4)))
    assert output(engine.run("one")) == [[4, 5]]


def test_step_has_one_loop_of_pages(engine):
    def a(run: Any):
        list(run.pages(read))
        list(run.pages(read))

    one_step(a)
    run = engine.run("one")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.DuplicateName"


def test_reader_that_returns_no_page_is_told(engine):
    one_step(lambda run: list(run.pages(lambda at: [1, 2])))
    run = engine.run("one")
    assert run.state == "failed"
    assert "return a Page or None" in run.error_message


def test_resource_of_an_earlier_page_is_not_sent_again_unseen(engine):
    """The input names one row twice, pages apart: the second is found by its slot, not by a set in memory."""
    desk = []

    @tool(safety="keyed", name="send")
    def send(call):
        desk.append(call.resource)

    def a(run: Any):
        for page in run.pages(read):
            found = run.call_many(send, [{"resource": f"r{n % 4}"} for n in page], on_error="return")
            run.state.seen += [n for n, each in zip(page, found, strict=True) if isinstance(each, Exception)]
        return run.state.seen

    one_step(a)
    run = engine.run("one")
    assert output(run) == [4, 5]
    assert desk == ["r0", "r1", "r2", "r3"]


def test_failures_are_counted_from_the_last_page(engine):
    """A page that is committed is progress: the attempts of the next one begin anew."""

    def a(run: Any):
        for page in run.pages(read):
            key = str(page[0])
            failures[key] = failures.get(key, 0) + 1
            if failures[key] < 3:
                raise ValueError(key)

    failures: dict[str, int] = {}
    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert failures == {"0": 3, "2": 3, "4": 3}
