"""The demo's words, read as a script would read them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

from examples.demo.account import Account
from examples.demo.narrate import Narrator, summary

STATE = {"source": "a.csv", "rows": 10, "imported": 8, "rejected": 2, "duplicates": 1}


@dataclass
class Resumed:
    number: int = 1
    cause: str = "worker_lost"
    detail: str = "process 7 ended"
    step_id: str = "execute"
    reused_effects: int = 99
    repeated_effects: int = 1
    recovery_seconds: float | None = 0.4


def test_the_last_line_is_one_json_object():
    out = io.StringIO()
    narrator = Narrator(out)
    narrator.tell("something")
    narrator.last_line({"state": "succeeded"})

    assert json.loads(out.getvalue().splitlines()[-1]) == {"state": "succeeded"}


def test_progress_without_a_terminal_is_about_ten_lines():
    out = io.StringIO()
    narrator = Narrator(out)
    for done in range(1001):
        narrator.progress(done, 1000, "shard 1 of 1")

    assert len(out.getvalue().splitlines()) == 10


def test_progress_of_nothing_says_nothing():
    out = io.StringIO()
    Narrator(out).progress(0, 0, "")

    assert out.getvalue() == ""


def test_the_summary_names_each_resume_and_each_cause():
    account = Account(requests=9, tickets=8, repeated_keys=1, explained={"worker_lost": 1})

    text = summary(STATE, receipts=[Resumed()], avoided=99, account=account, rejects=Path("out/rejects.csv"))

    assert "8 of 10 rows" in text
    assert "with line and reason in out/rejects.csv" in text
    assert "1. worker_lost, step execute: process 7 ended; back in a worker's hand after 0.40 s; 99 results" in text
    assert "1 repeat after: worker_lost" in text
    assert "PROBLEM" not in text


def test_the_summary_names_each_problem():
    account = Account(requests=9, tickets=9, repeated_keys=1, unexplained_repeats=["k"], duplicate_tickets=1)

    text = summary(STATE, receipts=[], avoided=0, account=account, rejects=Path("out/rejects.csv"))

    assert "PROBLEM: 1 keys were sent more often than our records explain" in text
    assert "PROBLEM: 1 tickets are there twice" in text
