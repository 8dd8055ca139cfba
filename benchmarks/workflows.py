"""The measured workflows: ten steps that do nothing but return 100 bytes, and a steady one to be interrupted."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.marks import mark
from durableops import State, step, workflow

RESULT = ("6c1e9f0b7d5a" * 9)[:100]
STEADY_STEP_SECONDS = 0.03


class Named(State):
    """Who it is, for the marks."""

    key: str


@workflow(name="bench-ten", version=1, state=Named)
class Ten:
    """Ten no-op steps, as the peers run them."""

    @step
    def s1(run: Any) -> str:
        mark("start", run.state.key)
        return RESULT

    @step
    def s2(run: Any) -> str:
        return RESULT

    @step
    def s3(run: Any) -> str:
        return RESULT

    @step
    def s4(run: Any) -> str:
        return RESULT

    @step
    def s5(run: Any) -> str:
        return RESULT

    @step
    def s6(run: Any) -> str:
        return RESULT

    @step
    def s7(run: Any) -> str:
        return RESULT

    @step
    def s8(run: Any) -> str:
        return RESULT

    @step
    def s9(run: Any) -> str:
        return RESULT

    @step
    def s10(run: Any) -> str:
        mark("end", run.state.key)
        return RESULT


def _steady(run: Any) -> None:
    mark("step", run.state.key)
    time.sleep(STEADY_STEP_SECONDS)


@workflow(name="bench-steady", version=1, state=Named)
class Steady:
    """Steps that each take a moment, so that a kill falls into one or between two."""

    @step
    def t1(run: Any) -> None:
        _steady(run)

    @step
    def t2(run: Any) -> None:
        _steady(run)

    @step
    def t3(run: Any) -> None:
        _steady(run)

    @step
    def t4(run: Any) -> None:
        _steady(run)

    @step
    def t5(run: Any) -> None:
        _steady(run)

    @step
    def t6(run: Any) -> None:
        mark("step", run.state.key)
        mark("end", run.state.key)
