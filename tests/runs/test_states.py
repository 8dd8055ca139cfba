"""The transition table itself: complete, closed, and without a way out of a terminal state but the operator's."""

from __future__ import annotations

import pytest

from runs.states import OPEN, PARKED, REOPENABLE, TERMINAL, TRANSITIONS, State, operator_events, sources

pytestmark = pytest.mark.engine


def test_every_state_is_open_or_terminal_and_never_both():
    assert frozenset(State) == OPEN | TERMINAL
    assert not OPEN & TERMINAL
    assert OPEN - {State.RUNNING} == PARKED


def test_only_an_operator_leaves_a_terminal_state():
    leaving = {name: edge for name, edge in TRANSITIONS.items() if edge.sources & TERMINAL}
    assert set(leaving) == {"reopen", "branch"}
    for edge in leaving.values():
        assert edge.by == "operator"
        assert edge.sources & TERMINAL == REOPENABLE
        assert edge.target is State.QUEUED


def test_succeeded_and_cancelled_are_never_reopened():
    assert not {State.SUCCEEDED, State.CANCELLED} & REOPENABLE


def test_only_the_claim_starts_a_run():
    assert [name for name, edge in TRANSITIONS.items() if edge.target is State.RUNNING] == ["claim"]
    assert sources("claim") == ["queued"]


def test_what_the_holder_says_it_says_of_a_running_run():
    assert {name: edge.sources for name, edge in TRANSITIONS.items() if edge.by == "holder"} == {
        name: frozenset({State.RUNNING})
        for name in ("suspend", "hand_back", "retry_later", "doubt", "park", "succeed", "fail", "exhaust", "stop")
    }


def test_every_open_state_can_be_left():
    for state in OPEN:
        assert [name for name, edge in TRANSITIONS.items() if state in edge.sources], state


def test_every_state_but_the_first_can_be_reached():
    assert {edge.target for edge in TRANSITIONS.values()} == frozenset(State)


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        ("queued", ["cancel", "branch"]),
        ("running", []),
        ("waiting", ["cancel", "branch"]),
        ("in_doubt", ["cancel", "branch"]),
        ("in_review", ["cancel", "recheck", "branch"]),
        ("succeeded", []),
        ("failed", ["reopen", "branch"]),
        ("cancelled", []),
        ("timed_out", ["reopen", "branch"]),
        ("exhausted", ["reopen", "branch"]),
    ],
)
def test_buttons_are_read_from_the_table(state, offered):
    assert operator_events(state) == offered
