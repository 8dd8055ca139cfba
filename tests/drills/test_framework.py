"""What all drills share: checks, waiting, reports, being alone, and finding a drill by its name."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command

from durableops.upkeep.drills import report
from durableops.upkeep.drills.checks import Checks, DrillStopped
from durableops.upkeep.drills.company import LABELS, alone
from durableops.upkeep.drills.facts import cursor_regressions, foreign_writes, spread, started_again_at
from durableops.upkeep.drills.processes import Cast
from durableops.upkeep.drills.waiting import comes_true, until
from runs.models import Run, RunEvent
from runs.models.worker import LOCK_CLASS
from tests.factories import make_checkpoint, make_effect, make_run, make_wait, make_worker
from tests.waiting import eventually


def test_a_drill_without_checks_has_not_passed():
    made = report.make(drill="x", seed=1, seconds=1.0, checks=[], figures={})

    assert made["passed"] is False


def test_a_failed_check_is_named_with_what_was_seen():
    checks = Checks()
    checks.equal("two_is_three", 2, 3, "a count")
    made = report.make(drill="x", seed=1, seconds=1.0, checks=checks.as_json(), figures={"summary": "That was it."})

    told = report.tell(made)

    assert "FAILED  two_is_three: a count: 2, wanted 3" in told
    assert told.endswith("drill x FAILED: two_is_three in 1 s (seed 1)")


def test_the_spread_names_values_that_were_measured():
    assert spread([0.3, 0.1, 0.2]) == {"p50": 0.2, "p95": 0.3, "max": 0.3}
    assert spread([]) == {"p50": None, "p95": None, "max": None}


def test_waiting_ends_at_once_when_there_is_nothing_left_to_wait_for():
    def gone() -> None:
        raise DrillStopped("the run has failed")

    with pytest.raises(DrillStopped, match="the run has failed"):
        until(lambda: False, wanted="anything", within=60, meanwhile=gone)


def test_waiting_looks_once_more_before_it_believes_that_all_is_over():
    answers = [False, True]

    def gone() -> None:
        raise DrillStopped("the run has ended")

    assert until(lambda: answers.pop(0), wanted="it", within=60, meanwhile=gone) is True
    assert not comes_true(lambda: False, within=0)


@pytest.mark.django_db(transaction=True)
def test_a_drill_refuses_to_play_where_somebody_else_works(database_url: str):
    worker = make_worker()
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, worker.number])
        with pytest.raises(DrillStopped, match="1 workers are at work"), alone():
            pass
    eventually(lambda: _may_play(), hoping_for="the drill to be alone")


@pytest.mark.django_db(transaction=True)
def test_a_drill_refuses_to_take_runs_of_others_and_cancels_what_an_earlier_drill_left():
    left = make_run(labels=LABELS)
    wait = make_wait(left, kind="children", name="kids", state="open", turns=1)
    # Cancelled together with its parent, so that it is not there any more when its turn comes.
    child = make_run(labels=LABELS, parent=left, parent_wait=wait, child_index=0)
    assert _may_play()
    assert set(Run.objects.filter(pk__in=[left.pk, child.pk]).values_list("state", flat=True)) == {"cancelled"}

    make_run()
    with pytest.raises(DrillStopped, match="1 runs of others"), alone():
        pass


@pytest.mark.django_db(transaction=True)
def test_a_second_drill_is_refused_while_one_plays(database_url: str):
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS + 1, 1])
        with pytest.raises(DrillStopped, match="another drill"), alone():
            pass


def test_an_unknown_drill_is_refused_with_those_there_are():
    with pytest.raises(CommandError, match="there is no drill 'sharks'"):
        call_command("drill", "sharks")


@pytest.mark.django_db
def test_a_write_under_a_fence_that_another_worker_claimed_is_found():
    mine, other = make_worker(), make_worker()
    run = make_run(state="running", worker=mine, fence=1)
    RunEvent.objects.create(run=run, event="claim", fence=1, worker=mine)
    make_checkpoint(run, seq=1, fence=1, worker=mine)
    assert foreign_writes(run.pk) == []

    RunEvent.objects.create(run=run, event="suspend", fence=1, worker=other)

    assert foreign_writes(run.pk) == [
        f"event suspend under fence 1, which {mine.pk} claimed, was written by {other.pk}"
    ]


@pytest.mark.django_db
def test_checkpoint_numbers_with_a_gap_and_cursors_that_fall_are_counted():
    run = make_run()
    make_checkpoint(run, seq=1, kind="page", cursor=10)
    make_checkpoint(run, seq=2, kind="page", cursor=20)
    assert cursor_regressions(run.pk) == 0

    make_checkpoint(run, seq=4, kind="page", cursor=15)

    assert cursor_regressions(run.pk) == 2


@pytest.mark.django_db
def test_a_step_has_started_again_with_the_first_thing_that_needs_it_not_with_a_call_of_before():
    run, at = make_run(state="running", fence=2), datetime.now(UTC)
    make_effect(run, fence=2, intended_at=at - timedelta(seconds=5))
    assert started_again_at(run.pk, after=1) is None

    RunEvent.objects.create(run=run, event="claim", fence=2, worker=run.worker, at=at)
    assert started_again_at(run.pk, after=1) is None
    make_checkpoint(run, seq=1, fence=2, started_at=at + timedelta(seconds=1))

    assert started_again_at(run.pk, after=1) == at + timedelta(seconds=1)


def test_a_process_is_killed_with_all_it_forked(tmp_path: Path):
    cast = Cast(folder=tmp_path, logs=tmp_path, environment={})
    code = (
        "import json, os, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()']);"
        "print(json.dumps({'child': child.pid}), flush=True); child.wait()"
    )
    member = cast.start("parent", [sys.executable, "-c", code], answers=True)
    child = member.answer["child"]
    assert cast.with_pid(member.pid) is member
    cast.freeze(member)
    eventually(lambda: _state_of(child) == "T", hoping_for="the child to stand still")

    cast.kill(member)

    eventually(lambda: _state_of(child) in ("", "Z"), hoping_for="the child to be gone")
    with pytest.raises(DrillStopped, match="none of this drill's"):
        cast.with_pid(member.pid)
    cast.dismiss()


def test_lines_that_a_process_prints_together_are_read_one_after_the_other(tmp_path: Path):
    """The process goes on living, so that there is no end of its output to be noticed instead."""
    cast = Cast(folder=tmp_path, logs=tmp_path, environment={})
    code = r"""print('{"ready": true}\n{"more": 1}\n{"half":', end='', flush=True); input(); print(' 2}'); input()"""
    member = cast.start("talker", [sys.executable, "-c", code], answers=True)

    assert (member.answer, member.line(within=20)) == ({"ready": True}, '{"more": 1}')
    assert member.line(within=0) == ""
    assert member.process.stdin
    member.process.stdin.write("\n")
    member.process.stdin.close()
    assert member.line(within=20) == '{"half": 2}'
    assert member.line(within=20) == "", "it has ended"
    cast.dismiss()


def _may_play() -> bool:
    try:
        with alone():
            return True
    except DrillStopped:
        return False


def _state_of(pid: int) -> str:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1]
