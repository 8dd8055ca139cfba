"""Watching and steering a run in a real browser."""

from __future__ import annotations

import re
import signal

import pytest
from playwright.sync_api import expect

from durableops.authoring import registry
from durableops.engine.start import start
from tests.acceptance.processes import Program, WorkerProgram, environment
from tests.factories import make_run, make_tenant, make_wait
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def watched():
    """The scripted workflow, known in this process too."""
    with registry.isolated() as known:
        from tests.browser.scripted.workflows import WatchedWorkflow

        known.add_workflow(WatchedWorkflow)  # type: ignore[arg-type]  # the decorator made it a definition
        yield WatchedWorkflow


@pytest.fixture
def processes(tmp_path, clean_queue):
    """Starts workers and upkeep, and ends what is left of them."""
    started: list[Program] = []
    surroundings = {**environment(), "DURABLEOPS_APPS": "tests.browser.scripted"}

    def run(name: str) -> Program:
        kind = WorkerProgram if name == "worker" else Program
        program = kind("manage.py", name, environment=surroundings, log=tmp_path / f"{name}-{len(started)}.log")
        started.append(program)
        return program

    yield run
    for program in started:
        program.close()


@pytest.fixture
def asking():
    run = make_run(state="waiting")
    make_wait(run, kind="approval", name="delivery", question="Deliver it?", facts='{"rows":3}', facts_hash="f" * 64)
    return run


def test_run_is_watched_through_a_killed_worker_without_losing_what_one_is_doing(visit, watched, processes, tmp_path):
    gate = tmp_path / "gate"
    processes("upkeep")
    worker = processes("worker")
    run_id = start("watched", {"gate": str(gate)}, tenant=make_tenant(), actor="tests").run_id
    page = visit(f"/runs/{run_id}/", who="admin")
    expect(page.locator(".why")).to_contain_text("Step hold is running")
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Reason").fill("half a rea")
    page.get_by_label("Reason").focus()

    worker.send(signal.SIGKILL)
    processes("worker")
    expect(page.locator(".told")).to_contain_text("worker lost")
    expect(page.locator(".why")).to_contain_text("Step hold is running")
    expect(page.get_by_label("Reason")).to_have_value("half a rea")
    expect(page.get_by_label("Reason")).to_be_focused()

    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    page.get_by_role("link", name="Checkpoints").focus()
    page.mouse.wheel(0, 300)
    scrolled = eventually(lambda: page.evaluate("scrollY"), hoping_for="the page to scroll")
    gate.touch()
    expect(page.locator(".why")).to_contain_text("a reviewer to approve “delivery”")
    expect(page.get_by_role("link", name="Checkpoints")).to_be_focused()
    assert page.evaluate("scrollY") == scrolled

    page.get_by_role("link", name="Approve…").click()
    expect(page.locator("#dialog")).to_contain_text("Deliver it?")
    page.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(page.locator("#notices")).to_contain_text("delivery was approved.")
    expect(page.locator(".title .chip")).to_have_text("succeeded")
    expect(page.locator("#live-state")).to_have_text("still")


def test_double_click_approves_once_and_says_so(visit, asking):
    page = visit(f"/runs/{asking.pk}/", who="reviewer")
    page.get_by_role("link", name="Approve…").click()
    page.locator("#dialog").get_by_role("button", name="Approve").dblclick()
    expect(page.locator("#notices")).to_contain_text("delivery was approved.")
    asking.refresh_from_db()
    assert asking.events.filter(event="approve").count() == 1


def test_stale_tab_is_told_who_was_quicker_and_shows_the_run_as_it_is(visit, asking):
    first = visit(f"/runs/{asking.pk}/", who="reviewer")
    second = visit(f"/runs/{asking.pk}/", who="admin")
    for page in (first, second):
        page.get_by_role("link", name="Approve…").click()
    first.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(first.locator("#notices")).to_contain_text("was approved")
    second.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(second.locator("#notices")).to_contain_text("was answered by reviewer")
    expect(second.locator(".title .chip")).to_have_text("queued")
    expect(second.get_by_role("link", name="Approve…")).to_have_count(0)


def test_lost_session_leads_to_the_sign_in_page_and_not_into_a_fragment(visit, asking):
    page = visit(f"/runs/{asking.pk}/?tab=events", who="reviewer")
    page.context.clear_cookies()
    page.wait_for_url(re.compile(r"/sign-in/\?lost=1"))
    expect(page.locator(".notice")).to_contain_text("Your session has ended")
    assert page.locator("input[name=next]").input_value() == f"/runs/{asking.pk}/?tab=events"
    asking.refresh_from_db()
    assert asking.state == "waiting"


def test_approval_is_given_with_the_keyboard_alone(visit, asking):
    page = visit(f"/runs/{asking.pk}/", who="reviewer")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("link", name="Approve…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("seen")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#notices")).to_contain_text("was approved")
