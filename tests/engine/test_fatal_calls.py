"""A tool that raises Fatal: neither the call nor the step that made it is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Fatal, Retry, State, step, tool, workflow
from durableops.testing import run_workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.engine]

attempts: list[int] = []


class Nothing(State): ...


@tool(safety="keyed", name="fatal-calls.refuse", retry=Retry(max_attempts=5, first_delay=0))
def refuse(call: Any) -> None:
    attempts.append(call.attempt)
    raise Fatal("the account is closed")


@workflow(name="fatal-calls", version=1, state=Nothing)
class FatalCalls:
    @step(retry=Retry(max_attempts=5, first_delay=0))
    def act(run: Any) -> None:
        run.call(refuse, resource="account-1")


def test_call_that_was_fatal_is_not_sent_again_by_the_retry_of_its_step():
    attempts.clear()
    outcome = run_workflow(FatalCalls, {})
    assert outcome.state == "failed"
    assert "the account is closed" in outcome.error
    assert attempts == [1]
