"""A person at the desk, in a browser: they look, say what happened, and the run goes on; two of them at once do not."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from durableops import Retry, State, step, tool, workflow
from runs.models import AuditEntry, Doubt, Run
from tests.factories import make_effect, make_run

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Facts(State):
    n: int = 0


@pytest.fixture
def stuck(engine) -> Run:
    """A run whose call got no answer."""

    @tool(safety="legacy", system="ledger", name="post", resource_id="id", retry=Retry(max_attempts=1))
    def post(call: Any, *, amount: int):
        raise TimeoutError("no answer")

    @workflow(name="posting", version=1, state=Facts)
    class Posting:
        @step
        def a(run: Any):
            return run.call(post, resource="invoice 7", amount=40)

    run: Run = engine.run("posting")
    assert run.state == "in_doubt"
    return run


def test_person_finds_a_doubt_says_that_it_happened_and_the_run_goes_on(visit, engine, stuck):  # C046
    page = visit("/inbox/", who="operator")
    page.get_by_role("link", name="post · invoice 7").click()
    page.get_by_role("button", name="Claim").click()
    expect(page.get_by_text("on it: operator")).to_be_visible()
    expect(page.locator("#do-did-not")).to_have_attribute("aria-disabled", "true")
    page.get_by_role("link", name="It happened…").click()
    expect(page.get_by_label("Their id")).to_be_focused()
    page.get_by_label("Their id").fill("L-7")
    page.get_by_label("How it is known").fill("statement 3")
    page.get_by_label("Reason").fill("asked the bank")
    page.locator("#dialog").get_by_role("button", name="It happened").dblclick()
    expect(page.locator("#notices")).to_contain_text("settled: it happened; its run goes on.")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(page.locator(".title .chip")).to_have_text("settled")
    engine.drain()
    page.get_by_role("link", name=str(stuck.pk)[-8:], exact=True).click()
    expect(page.locator(".title .chip")).to_have_text("succeeded")
    assert AuditEntry.objects.filter(verb="settle", reason="asked the bank").count() == 1


def test_stale_dialog_is_told_who_settled_and_shows_the_doubt_as_it_is(visit, stuck):  # C046
    doubt = Doubt.objects.get()
    first, second = (visit(f"/doubts/{doubt.pk}/", who=who) for who in ("operator", "reviewer"))
    for page in (first, second):
        page.get_by_role("link", name="Give up…").click()
        page.get_by_label("Reason").fill("they never answer")
    first.locator("#dialog").get_by_role("button", name="Give up").click()
    expect(first.locator("#notices")).to_contain_text("given up")
    second.locator("#dialog").get_by_role("button", name="Give up").click()
    expect(second.locator("#notices")).to_contain_text("was settled as give up by operator")
    expect(second.locator("#dialog")).to_be_hidden()
    expect(second.locator(".why")).to_contain_text("Settled by operator")


def test_click_while_an_update_is_on_its_way_is_not_lost(visit, stuck):
    doubt = Doubt.objects.get()
    page = visit(f"/doubts/{doubt.pk}/", who="operator")
    page.route(f"**/doubts/{doubt.pk}/", lambda route: None)  # never answered
    with page.expect_request(f"**/doubts/{doubt.pk}/"):
        pass
    page.get_by_role("link", name="Give up…").click()
    expect(page.locator("#dialog")).to_be_visible()


def test_queue_is_reordered_paused_and_read_by_keyboard(visit, stuck):
    run = make_run(state="waiting")
    calls = [make_effect(run, state="queued", safety="legacy", system="ledger", tool="post", resource=f"order {n}")
             for n in range(3)]  # fmt: skip
    page = visit("/overview/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/systems/")
    page.get_by_role("link", name="ledger", exact=True).click()
    expect(page.locator(".why")).to_contain_text("may or may not have happened")
    page.get_by_role("link", name="Move… order 2").click()
    page.get_by_label("Reason").fill("a customer waits")
    page.locator("#dialog").get_by_role("button", name="Move it").click()
    expect(page.locator("#notices")).to_contain_text("it has place 1 of its tenant's now.")
    expect(page.locator("[id^=call-]").first).to_have_id(f"call-{calls[2].pk}")
    page.get_by_role("link", name="Pause…").click()
    page.get_by_label("Reason").fill("month-end")
    page.locator("#dialog").get_by_role("button", name="Pause it").click()
    expect(page.locator(".why")).to_contain_text("Paused by admin")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/effects/")
    page.get_by_label("Resource").fill("order 1")
    page.keyboard.press("Enter")
    expect(page.locator("[id^=effect-]")).to_have_count(1)
    expect(page.get_by_role("link", name="Remove resource order 1")).to_be_visible()
