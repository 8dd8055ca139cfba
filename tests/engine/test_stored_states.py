"""What checkpoints take: nothing that grows with the work done, unless the author's state does; that has an end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from durableops import Page, State, step, tool, workflow
from durableops.conf import override_conf
from runs.models import Checkpoint, Run, RunEvent

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

PAGES = 40


class Notes(State):
    text: str = ""


def read(cursor: int | None) -> Page | None:
    at = cursor or 0
    return Page(items=[at], next_cursor=at + 1 if at < PAGES - 1 else None)


def of_steps(name: str, **functions: Any) -> None:
    workflow(name=name, version=1, state=Notes)(
        type("Some", (), {id_: step(id=id_)(function) for id_, function in functions.items()})
    )


def sizes(run: Run) -> list[int]:
    """What each page's checkpoint takes as it is stored."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_column_size(c.*) FROM runs_checkpoint c WHERE run_id = %s AND kind = 'page' ORDER BY seq",
            [run.pk],
        )
        return [row[0] for row in cursor.fetchall()]


def stored(run: Run) -> int:
    texts = Checkpoint.objects.filter(run=run).exclude(kind="start").values_list("state", flat=True)
    return sum(len(text.encode()) for text in texts if text is not None)


# C121
def test_checkpoint_carries_nothing_that_grows_with_the_work_done(engine):
    @tool(safety="keyed")
    def note(call: Any) -> dict[str, Any]:
        return {"id": call.key, "text": "x" * 500}

    def a(run: Any):
        for page in run.pages(read):
            run.call(note, resource=str(page[0]))

    of_steps("many", a=a)
    run = engine.run("many")

    assert (run.state, run.state_bytes, len(sizes(run))) == ("succeeded", 0, PAGES)
    assert max(sizes(run)) - sizes(run)[0] < 20, "only numbers became longer"


# C121
def test_state_that_changes_is_measured_and_one_that_does_not_is_stored_once(engine):
    def a(run: Any):
        for page in run.pages(read):
            if page[0] % 10 == 0:
                run.state.text += "ä" * 50

    of_steps("some", a=a, b=lambda run: None)
    run = engine.run("some")

    assert run.state == "succeeded"
    assert run.state_bytes == stored(run) > 4 * 100
    assert Checkpoint.objects.filter(run=run).exclude(state=None).count() == 1 + 4


# C121
def test_state_that_grows_with_the_work_is_told_of_once_and_then_refused(engine):
    def a(run: Any):
        for _page in run.pages(read):
            run.state.text += "x" * 100

    of_steps("growing", a=a)
    with override_conf(run_state_max_bytes=40_000):
        run = engine.run("growing")

    assert (run.state, run.error_class, run.step_attempts) == ("failed", "durableops.errors.PayloadRefused", 1)
    assert "keep what grows in run.artifact" in run.error_message
    [told] = RunEvent.objects.filter(run=run, event="state_grows")
    assert 10_000 < told.data["bytes"] < told.data["limit"] == 40_000
    assert 30_000 < run.state_bytes == stored(run) <= 40_000
    assert Checkpoint.objects.get(run=run, seq=run.state_seq).state, "the last good one is there"


# C121
def test_what_is_stored_is_counted_over_all_entries_of_a_run(engine):
    """Each step is entered by another hand: the count is the record's, not a worker's."""

    def grow(run: Any):
        run.state.text += "x" * 1000
        run.sleep(0)

    of_steps("slow", a=grow, b=grow, c=grow)
    with override_conf(run_state_max_bytes=4000):
        run = engine.start("slow")
        for _ in range(6):
            engine.drain()
            engine.rounds()
        run.refresh_from_db()

    assert (run.state, run.step_id) == ("failed", "c")
    assert 3000 < run.state_bytes == stored(run) < 4000
