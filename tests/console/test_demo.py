"""What only a demo's console can do, and that nobody else's can."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.urls import reverse

from durableops.engine.machine import has_gone, machine
from runs.models import AuditEntry
from tests.factories import make_run, make_worker
from tests.waiting import eventually

# A parent with a child, as a worker is; both only wait.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def demo_on(settings):
    settings.DEMO = True


@pytest.fixture
def processes():
    """The parent's process and the child's number."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        parent.kill()


@pytest.fixture
def worker(processes):
    parent, child = processes
    return make_worker(pid=parent.pid, child_pid=child, machine=machine())


def kill(browser, worker, **more):
    return browser.post(reverse("console:worker_kill", args=[worker.pk]), **more)


def test_kill_ends_parent_and_child_and_is_on_the_audit_of_worker_and_run(signed_in, demo_on, worker, processes):
    run = make_run(state="running", worker=worker)
    answer = kill(signed_in("operator"), worker, follow=True)
    assert "was killed (SIGKILL). Its run goes on elsewhere" in answer.content.decode()
    parent, child = processes
    assert parent.wait(10) == -9
    assert eventually(lambda: has_gone(child), hoping_for="the child to be gone")
    entries = AuditEntry.objects.filter(verb="kill_worker", actor="operator").order_by("id")
    assert [(e.target_kind, e.target_id) for e in entries] == [("worker", str(worker.pk)), ("run", str(run.pk))]


@pytest.mark.parametrize("who", ["viewer", "reviewer"])
def test_kill_needs_an_operator(signed_in, demo_on, worker, processes, who):
    assert kill(signed_in(who), worker).status_code == 403
    assert processes[0].poll() is None


def test_kill_is_not_there_outside_of_a_demo(signed_in, worker, processes):
    browser = signed_in("admin")
    assert kill(browser, worker).status_code == 404
    assert "Kill worker" not in browser.get(reverse("console:workers")).content.decode()
    assert processes[0].poll() is None


def test_kill_is_not_there_in_production_whatever_the_setting_says(signed_in, demo_on, settings, worker, processes):
    settings.PRODUCTION = True
    assert kill(signed_in("admin"), worker).status_code == 404
    assert processes[0].poll() is None


@pytest.mark.parametrize(
    "change", [{"machine": "another machine"}, {"child_pid": 1}, {"pid": 1}, {"ended_at": "2026-01-01T00:00Z"}]
)
def test_only_a_living_worker_of_this_machine_can_be_killed(signed_in, demo_on, worker, processes, change):
    type(worker).objects.filter(pk=worker.pk).update(**change)
    answer = kill(signed_in("admin"), worker)
    assert (answer.status_code, "Nothing was killed." in answer.content.decode()) == (409, True)
    assert processes[0].poll() is None
    assert not AuditEntry.objects.exists()


def test_number_that_was_given_to_another_process_is_spared(signed_in, demo_on, worker, processes):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with stranger:
        type(worker).objects.filter(pk=worker.pk).update(child_pid=stranger.pid)
        assert kill(signed_in("admin"), worker).status_code == 409
        assert (processes[0].poll(), stranger.poll()) == (None, None)
        stranger.kill()


def test_explanation_is_shown_until_it_is_hidden_and_can_be_had_again(signed_in, demo_on):
    viewer = signed_in("viewer")
    for address in ("/overview/", "/runs/", "/workers/"):
        assert "What you are looking at" in viewer.get(address).content.decode()
    assert viewer.post("/look/", {"about": "hide", "back": "/runs/"})["Location"] == "/runs/"
    page = viewer.get("/overview/").content.decode()
    assert ("What you are looking at" in page, "What is this?" in page) == (False, True)
    viewer.post("/look/", {"about": "show"})
    assert "What you are looking at" in viewer.get("/overview/").content.decode()


def test_only_a_demo_explains_itself(signed_in):
    page = signed_in("viewer").get("/overview/").content.decode()
    assert "What you are looking at" not in page
    assert "What is this?" not in page
