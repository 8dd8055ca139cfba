"""Workers whose processes have gone from the reaper's machine are dead at once; of others it knows nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from durableops.engine.machine import machine
from durableops.upkeep.reaper import Reaper
from tests.factories import make_worker

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_worker_whose_processes_have_gone_is_dead_at_the_first_look(database, gone):
    worker = make_worker(machine=machine(), pid=gone, child_pid=gone)
    assert Reaper(database).look() == 1
    worker.refresh_from_db()
    assert worker.ended_why.startswith("its processes have gone from this machine")


@pytest.mark.parametrize("place", ["", "another machine"])
def test_processes_of_another_machine_are_not_asked_for_here(database, gone, place):
    make_worker(machine=place, pid=gone, child_pid=gone)
    assert Reaper(database).look() == 0


def test_worker_of_which_one_process_lives_is_not_called_gone(database, gone):
    make_worker(machine=machine(), pid=gone, child_pid=os.getpid())
    make_worker(machine=machine(), pid=os.getpid(), child_pid=gone)
    assert Reaper(database).look() == 0
