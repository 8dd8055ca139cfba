"""The states of a run and every legal move between them. What a move writes lives in `transitions` and `fenced`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Actor = Literal["holder", "upkeep", "engine", "operator"]


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    IN_DOUBT = "in_doubt"
    IN_REVIEW = "in_review"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXHAUSTED = "exhausted"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.EXHAUSTED})
OPEN = frozenset(State) - TERMINAL
PARKED = OPEN - {State.RUNNING}
REOPENABLE = frozenset({State.FAILED, State.TIMED_OUT, State.EXHAUSTED})


@dataclass(frozen=True, kw_only=True)
class Edge:
    sources: frozenset[State]
    """States in which the event may fire."""
    target: State
    """State after it."""
    by: Actor
    """Who fires it: the holder of the fence, upkeep, any engine code, or a person."""


def _edge(sources: set[State] | frozenset[State], target: State, by: Actor) -> Edge:
    return Edge(sources=frozenset(sources), target=target, by=by)


TRANSITIONS: dict[str, Edge] = {
    "claim": _edge({State.QUEUED}, State.RUNNING, "engine"),
    # What the holder of the fence may say about its own run.
    "suspend": _edge({State.RUNNING}, State.WAITING, "holder"),
    "hand_back": _edge({State.RUNNING}, State.QUEUED, "holder"),
    "retry_later": _edge({State.RUNNING}, State.QUEUED, "holder"),
    "doubt": _edge({State.RUNNING}, State.IN_DOUBT, "holder"),
    "park": _edge({State.RUNNING}, State.IN_REVIEW, "holder"),
    "succeed": _edge({State.RUNNING}, State.SUCCEEDED, "holder"),
    "fail": _edge({State.RUNNING}, State.FAILED, "holder"),
    "exhaust": _edge({State.RUNNING}, State.EXHAUSTED, "holder"),
    "stop": _edge({State.RUNNING}, State.CANCELLED, "holder"),
    # What is noticed from outside.
    "lose_worker": _edge({State.RUNNING}, State.QUEUED, "upkeep"),
    "give_up": _edge({State.RUNNING}, State.FAILED, "upkeep"),
    "kill_step": _edge({State.RUNNING}, State.QUEUED, "upkeep"),
    # A clock has come and its policy is to ask a person.
    "ask": _edge({State.QUEUED, State.RUNNING}, State.WAITING, "engine"),
    "wake": _edge({State.WAITING}, State.QUEUED, "engine"),
    "settle": _edge({State.IN_DOUBT}, State.QUEUED, "engine"),
    "probe": _edge({State.IN_DOUBT}, State.QUEUED, "engine"),
    "time_out": _edge(OPEN, State.TIMED_OUT, "engine"),
    "expire": _edge({State.WAITING}, State.TIMED_OUT, "engine"),
    "run_out": _edge({State.WAITING}, State.EXHAUSTED, "engine"),
    # What a person decides. A running run is stopped by its holder, which is asked by `cancel_requested`.
    "cancel": _edge(PARKED, State.CANCELLED, "operator"),
    "reopen": _edge(REOPENABLE, State.QUEUED, "operator"),
    "recheck": _edge({State.IN_REVIEW}, State.QUEUED, "operator"),
    # From an earlier checkpoint, in a new lineage.
    "branch": _edge(REOPENABLE | PARKED, State.QUEUED, "operator"),
}


def sources(event: str) -> list[str]:
    """The states in which `event` may fire, sorted: the text of every guard that is written in SQL."""
    return sorted(TRANSITIONS[event].sources)


def operator_events(state: str) -> list[str]:
    """What a person may do to a run in `state`; buttons and their guards read the same table."""
    return [name for name, edge in TRANSITIONS.items() if edge.by == "operator" and state in edge.sources]
