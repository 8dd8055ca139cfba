"""Every word of the scripted workflows, and every pair of them, comes to the end that its words promise."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from durableops.authoring import registry
from durableops.engine import commands
from durableops.engine.inbound import send_event
from runs.models import Checkpoint, IdempotencyRecord, Run, Wait
from tests.workflows_app import workflows

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ENDS = {"FAIL": "failed", "FATAL": "failed", "BIG_RESULT": "failed", "NOT_JSON": "failed"}
# CRASH kills the process: it belongs to the tests with real ones.
PLAYED = sorted(set(workflows.WORDS) - {"CRASH"})


@pytest.fixture(autouse=True)
def scripted(own_registry: registry.Registry) -> None:
    own_registry.add_workflow(workflows.Scripted)  # type: ignore[arg-type]  # the decorator made it a definition
    for tool in (workflows.send, workflows.look):
        own_registry.add_tool(tool)


def play(engine: Any, *words: str) -> Run:
    """Run a script to its end: whatever it waits for comes."""
    run = engine.run("scripted", {"words": list(words)})
    for _ in range(12):
        if run.is_terminal:
            return run
        for wait in Wait.objects.filter(run=run, state="open", kind="approval"):
            commands.approve(wait.pk, tenant=engine.tenant, actor="ann")
        for _wait in Wait.objects.filter(run=run, state="open", kind="event"):
            send_event("scripted", tenant=engine.tenant, actor="desk", correlation=str(run.pk))
        run = engine.go_on(run)
    raise AssertionError(f"{words} did not end: {run.state}")


@pytest.mark.parametrize("word", PLAYED)
def test_word_comes_to_its_end(engine, word):
    run = play(engine, word)
    assert run.state == ENDS.get(word, "succeeded"), run.error_message
    assert not Run.objects.filter(state="running").exists()


def test_every_pair_comes_to_the_end_of_its_worse_half(engine):
    """One test for all pairs: what one word leaves behind must not disturb the next, on whatever entry."""
    for pair in itertools.permutations([w for w in PLAYED if w not in ("BIG_RESULT", "NOT_JSON")], 2):
        run = play(engine, *pair)
        wanted = "failed" if {"FAIL", "FATAL"} & set(pair) else "succeeded"
        assert run.state == wanted, (pair, run.error_message)
    assert not IdempotencyRecord.objects.filter(attempts__gt=1).exists()
    assert not Run.objects.exclude(state__in=["succeeded", "failed"]).exists()


def test_whole_script_is_played_once_over_all_its_entries(engine):
    words = ["CALL", "WAIT", "CALL", "FAIL_ONCE", "ASK", "READ", "SLEEP", "DECIDE", "CHILDREN", "PAGES", "CALL"]
    run = play(engine, *words)
    assert run.state == "succeeded", run.error_message
    assert run.effects_avoided > 0
    assert IdempotencyRecord.objects.filter(run=run, tool="scripted-send", attempts=1).count() == 3
    output = json.loads(Checkpoint.objects.get(run=run, step_id="first", kind="step").output or "null")
    assert output == [
        "word-0", None, "word-2", "ok", "ann", "seen", None, 8, ["succeeded", "succeeded"], 3, "word-10",
    ]  # fmt: skip
