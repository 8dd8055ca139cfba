"""What a live update leaves alone: where one reads, what is selected, ticked, opened, typed; and the way back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from runs.models import RunEvent
from tests.factories import make_effect, make_run, make_wait, make_worker, now

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_filters_survive_an_action_on_a_run_and_the_way_back(visit):
    run = make_run(state="waiting", labels={"team": "a"})
    make_run(state="waiting", labels={"team": "b"})
    page = visit("/runs/?view=open&q=label.team%3Aa&sort=oldest&cols=workflow,labels")
    address = page.url
    page.locator(".run-row .mono a").click()
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Reason").fill("not needed")
    page.locator("#dialog").get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".title .chip")).to_have_text("cancelled")
    page.go_back()
    assert page.url == address
    # Back shows what is so now, under the same conditions: the run is not open any more.
    expect(page.locator(".run-row")).to_have_count(0)
    expect(page.locator(".cond span")).to_have_text("a")
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_list_keeps_scroll_focus_and_what_is_ticked_while_rows_come_and_go(visit):
    runs = [make_run() for _ in range(45)]
    page = visit("/runs/")
    page.locator("#columns summary").click()
    page.get_by_label("Start key").check()
    link = page.locator(f"#run-{runs[20].pk} .mono a")
    link.focus()
    page.mouse.move(640, 400)
    page.mouse.wheel(0, 400)
    page.wait_for_function("scrollY > 300")
    before = page.evaluate("scrollY")
    new = make_run()
    expect(page.locator(f"#run-{new.pk}")).to_be_attached()
    expect(link).to_be_focused()
    expect(page.get_by_label("Start key")).to_be_checked()
    expect(page.locator("#columns")).to_have_attribute("open", "")
    # The row that is read stays under the eye: the browser anchors it when one is put in above.
    assert abs(page.evaluate("scrollY") - before) < 60


def test_selected_text_pauses_updates_until_it_is_let_go(visit):
    run = make_run(state="running", worker=make_worker(), progress_done=1, progress_total=9)
    page = visit(f"/runs/{run.pk}/?tab=events")
    # Selected as by a mouse: the id of the run.
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.meta .mono'))")
    type(run).objects.filter(pk=run.pk).update(progress_done=7)
    other = page.context.new_page()  # a tab that does update shows that the time for it has come
    other.goto(f"/runs/{run.pk}/")
    expect(other.locator(".run-strip")).to_contain_text("7 of 9")
    type(run).objects.filter(pk=run.pk).update(progress_done=8)
    expect(other.locator(".run-strip")).to_contain_text("8 of 9")
    page.bring_to_front()
    expect(page.locator(".run-strip")).to_contain_text("1 of 9")
    assert str(run.pk) in page.evaluate("String(getSelection())")
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator(".run-strip")).to_contain_text("8 of 9")


def test_events_that_are_read_stay_in_place_and_new_ones_are_counted(visit):
    run = make_run(state="running", worker=make_worker())
    for n in range(60):
        RunEvent.objects.create(run=run, event="noted", reason=f"reason {n}")
    page = visit(f"/runs/{run.pk}/?tab=events")
    page.mouse.move(640, 400)
    page.mouse.wheel(0, 900)
    page.wait_for_function("scrollY > 600")
    row = page.get_by_text("reason 35", exact=True)
    top = row.bounding_box()["y"]
    for n in range(3):
        RunEvent.objects.create(run=run, event="noted", reason=f"late {n}")
    hint = page.get_by_role("link", name="3 new events")
    expect(hint).to_be_visible()
    assert row.bounding_box()["y"] == top
    expect(page.get_by_text("late 0", exact=True)).to_have_count(0)
    hint.click()
    expect(page.get_by_text("late 2", exact=True)).to_be_in_viewport()


def test_ids_and_payloads_are_copied(visit):
    run = make_run()
    effect = make_effect(run, state="succeeded", result='{"id":"T-1"}', request_summary={"title": "x"})
    page = visit(f"/runs/{run.pk}/")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the run’s id").click()
    expect(page.locator("#copied")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == str(run.pk)
    page.goto(f"/runs/{run.pk}/effects/{effect.pk}/")
    page.get_by_role("button", name="Copy result").click()
    expect(page.locator("#copied")).to_have_text("Copied")
    assert '"id": "T-1"' in page.evaluate("navigator.clipboard.readText()")


def test_end_of_a_wait_is_moved_from_the_run(visit):
    run = make_run(state="waiting")
    make_wait(run, kind="approval", name="delivery", expires_at=now())
    run.waits.update(expires_at=now().replace(year=now().year + 1))
    page = visit(f"/runs/{run.pk}/", who="operator")
    page.get_by_role("link", name="Extend “delivery”…").click()
    expect(page.locator("#dialog")).to_contain_text("Move the end of “delivery”")
    page.get_by_label(re.compile("New end")).fill(f"{now().year + 2}-03-01T12:00")
    page.get_by_label("Reason").fill("the reviewer is ill")
    page.get_by_role("button", name="Move the end").click()
    expect(page.locator("#notices")).to_contain_text("the clock of delivery was moved.")
    moved = run.waits.get().expires_at
    assert moved is not None
    assert moved.year == now().year + 2
