"""Starting, killing and replacing real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from examples.demo import processes
from examples.demo.processes import Troupe
from tests.waiting import eventually

SLEEPS = "import signal; print('up', flush=True); signal.pause()"
FORKS = "import os, signal; pid = os.fork(); print('up' if pid else 'child', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


@pytest.fixture
def troupe(tmp_path: Path) -> Iterator[Troupe]:
    made = Troupe(folder=tmp_path, logs=tmp_path, environment=os.environ)
    yield made
    made.dismiss()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def said(tmp_path: Path, name: str, word: str = "up", times: int = 1) -> bool:
    return (tmp_path / f"{name}.log").read_text().count(word) == times


def test_a_killed_process_takes_all_it_forked_with_it(troupe: Troupe, tmp_path: Path):
    member = troupe.start("one", python(FORKS))
    eventually(lambda: said(tmp_path, "one") and said(tmp_path, "one", "child"))
    [child] = psutil.Process(member.process.pid).children()

    troupe.kill(member)

    assert member.process.returncode == -signal.SIGKILL
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_killed_process_is_replaced_after_its_pause_and_found_by_its_new_pid(
    troupe: Troupe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "RESTART_SECONDS", 0.0)
    member = troupe.keep("one", python(SLEEPS))
    first = member.process.pid
    assert troupe.find(first) is member
    troupe.kill(member)

    assert troupe.look_after() == ["one"]
    assert member.process.pid != first
    assert troupe.find(member.process.pid) is member
    assert troupe.find(first) is None
    assert troupe.look_after() == []


def test_a_process_that_may_end_is_not_replaced(troupe: Troupe):
    member = troupe.start("one", python(SLEEPS))
    troupe.kill(member)

    assert troupe.look_after() == []


def test_what_does_not_stop_in_time_is_killed(troupe: Troupe, tmp_path: Path):
    troupe.grace_seconds = 0.1
    member = troupe.start("one", python(STUBBORN))
    eventually(lambda: said(tmp_path, "one"))

    troupe.dismiss()

    assert member.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent died")
def test_a_killed_demo_leaves_no_process_behind(tmp_path: Path):
    code = f"""
import json, os, sys, time
from pathlib import Path
from examples.demo.processes import Troupe
folder = Path({str(tmp_path)!r})
member = Troupe(folder=folder, logs=folder, environment=os.environ).start("inner", [sys.executable, "-c", {SLEEPS!r}])
while "up" not in (folder / "inner.log").read_text():
    time.sleep(0.01)
print(json.dumps({{"inner": member.pid}}), flush=True)
time.sleep(60)
"""
    outer = Troupe(folder=Path(__file__).resolve().parents[3], logs=tmp_path, environment=os.environ)
    member = outer.start("outer", python(code), answers=True)
    inner = psutil.Process(member.answer["inner"])

    outer.kill(member)

    eventually(lambda: not inner.is_running() or inner.status() == psutil.STATUS_ZOMBIE)
    outer.dismiss()
