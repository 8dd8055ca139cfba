"""What can be read from a step's code about what it waits for, and when it is said that more may be waited for."""

from __future__ import annotations

import json
import linecache
from typing import Any

import pytest

from durableops.authoring.awaiting import awaited_by

PARCEL = "parcel-arrived"


def ask(about: Any, key: str = "") -> None:
    about.approval("go-ahead", key=key)


def handed_away(run: Any) -> None:
    json.dumps(run)


def in_a_loop(run: Any) -> None:
    for n in range(3):
        run.wait_for("news", key=str(n))
    ask(run)


def by_a_constant(run: Any) -> None:
    run.wait_for(PARCEL, correlation=run.state.number)


async def in_a_nested_function(run: Any) -> None:
    async def inner() -> None:
        await run.wait_for_file("scan")

    await inner()


def by_keyword(run: Any) -> None:
    ask(key="1", about=run)


def through_a_computed_name(run: Any) -> None:
    run.wait_for(f"order-{run.id}")


def through_another_name(run: Any) -> None:
    it = run
    it.wait_for("hidden")


def through_stars(run: Any) -> None:
    ask(*[run])


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (in_a_loop, {("event", "news"), ("approval", "go-ahead")}),
        (by_a_constant, {("event", PARCEL)}),
        (in_a_nested_function, {("file", "scan")}),
        (by_keyword, {("approval", "go-ahead")}),
    ],
)
def test_waits_of_a_step_and_of_its_helpers_are_seen(function: Any, names: set[tuple[str, str]]) -> None:
    found = awaited_by(function)
    assert (found.names, found.complete) == (names, True)


@pytest.mark.parametrize("function", [handed_away, through_a_computed_name, through_another_name, through_stars])
def test_step_whose_waits_cannot_all_be_seen_says_so(function: Any) -> None:
    assert not awaited_by(function).complete


def test_step_without_source_may_wait_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a process that was started with `python -c` remembers its program: not the source of the step.
    monkeypatch.setitem(linecache.cache, "<string>", (8, None, ["x = 1\n"], "<string>"))
    namespace: dict[str, Any] = {}
    exec("def step(run):\n    pass\n", namespace)
    assert not awaited_by(namespace["step"]).complete
    assert not awaited_by(print).complete
