"""Whether a process has gone: certain, or not said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from durableops.engine.machine import has_gone, machine
from tests.waiting import eventually


def test_living_process_has_not_gone():
    assert not has_gone(os.getpid())


def test_process_that_ended_has_gone_before_its_parent_takes_note_and_after():
    process = subprocess.Popen([sys.executable, "-c", ""])
    eventually(lambda: has_gone(process.pid))
    process.wait()
    assert has_gone(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_machine_is_the_same_for_processes_that_see_each_other():
    code = "from durableops.engine.machine import machine; print(machine())"
    assert machine() == subprocess.check_output([sys.executable, "-c", code], text=True).strip() != ""
