"""A long loop of pages gives way as steps do, and a refused write never leaves a run in nobody's hand."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Page, State, step, workflow
from durableops.conf import override_conf
from durableops.engine.start import start
from durableops.errors import FenceLost
from runs.models import Run, RunEvent
from tests.factories import make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("own_registry")]


class Nothing(State):
    pages: int = 0


def declare_pages() -> None:
    @workflow(name="many-pages", version=1, state=Nothing)
    class ManyPages:
        @step
        def read(run: Any) -> None:
            for _page in run.pages(
                lambda cursor: Page(items=[1], next_cursor=(cursor or 0) + 1 if (cursor or 0) < 4 else None)
            ):
                run.state.pages += 1

    @workflow(name="short", version=1, state=Nothing)
    class Short:
        @step
        def only(run: Any) -> None:
            return None


@pytest.mark.parametrize("places", [1])
def test_a_loop_of_pages_gives_way_when_its_slice_is_over_and_others_wait(engine: Any):
    declare_pages()
    tenant = make_tenant()
    with override_conf(slice_seconds=0.0):
        long = start("many-pages", {}, tenant=tenant, actor="a test").run_id
        start("short", {}, tenant=tenant, actor="a test")
        engine.drain()

    run = Run.objects.get(pk=long)
    assert run.state == "succeeded"
    assert RunEvent.objects.filter(run=run, event="hand_back", data__cause="slice").exists()
    # It goes on at its cursor: no page is counted twice.
    assert run.checkpoints.filter(kind="page").count() == 5
    assert '"pages":5' in (run.checkpoints.exclude(state=None).order_by("-seq")[0].state or "")


def test_a_run_whose_write_was_refused_under_its_own_fence_is_handed_back(engine: Any, monkeypatch: pytest.MonkeyPatch):
    declare_pages()
    from durableops.engine import commit

    real = commit._execute
    refused: list[Any] = []

    def refuse_once(database: Any, hand: Any, *more: Any) -> Any:
        if not refused:
            refused.append(hand.run_id)
            raise FenceLost("refused for a test")
        return real(database, hand, *more)

    monkeypatch.setattr(commit, "_execute", refuse_once)
    run_id = start("short", {}, tenant=make_tenant(), actor="a test").run_id
    engine.drain()

    run = Run.objects.get(pk=run_id)
    assert (refused, run.state, run.resumes) == ([run_id], "succeeded", 1)
    assert run.receipts.get().cause == "refused_write"


def test_progress_and_log_lines_are_seen_while_the_step_still_computes(engine: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("durableops.engine.hand.FLUSH_AFTER_SECONDS", 0.0)
    seen: list[tuple[int | None, list[str]]] = []

    @workflow(name="telling", version=1, state=Nothing)
    class Telling:
        @step
        def compute(run: Any) -> None:
            run.progress(3, 10)
            run.log("half-way")
            row = Run.objects.get(pk=run.id)
            seen.append((row.progress_done, list(row.log_lines.values_list("message", flat=True))))

    start("telling", {}, tenant=make_tenant(), actor="a test")
    engine.drain()

    assert seen == [(3, ["half-way"])]
