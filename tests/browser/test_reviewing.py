"""A reviewer's day, in a browser: see what is urgent, understand it, decide one, take it back, decide the rest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from durableops import Migrated, State, migration, step, workflow
from durableops.engine.bulk.executing import execute_batch
from runs.models import AuditEntry, Bulk, Run, Wait
from tests.factories import now

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.django_db(transaction=True)]
RUNS = 42


class Old(State):
    source: str = "desk"


class New(State):
    sources: list[str]


def deploy(registry: Any, version: int) -> None:
    registry.clear()
    if version == 1:
        body = step(id="load")(lambda run: None)
        workflow(name="intake", version=1, state=Old)(type("Intake", (), {"load": body}))
        return

    def ingest(run: Any) -> str:
        return str(run.approval("publish", question="Publish?", timeout=timedelta(hours=1)).by)

    body = step(id="ingest")(ingest)
    made = workflow(name="intake", version=2, state=New, migrate="reviewed")(type("Intake", (), {"ingest": body}))

    @migration(made, from_version=1)
    def sources(old: dict[str, Any]) -> Migrated:
        return Migrated(state={"sources": [old["source"]]}, steps={"load": "ingest"})


@pytest.fixture
def parked(engine, own_registry) -> list[Run]:
    """Runs of version 1 that a deploy of version 2 found in the queue, and that a person is to decide about."""
    deploy(own_registry, 1)
    found = [engine.start("intake") for _ in range(RUNS)]
    deploy(own_registry, 2)
    engine.drain()
    assert {Run.objects.get(pk=run.pk).state for run in found} == {"in_review"}
    return found


def decide(page: Page, button: str, *, reason: str, then: str) -> None:
    """Open a verb's page or dialog, say why, and press its button."""
    page.get_by_role("link", name=f"{button}…", exact=True).click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=f"{button} the run").click()
    expect(page.locator("#notices")).to_contain_text(then)


def open_first(page: Page) -> None:
    page.locator("form[id^=of-] tbody a").first.click()
    expect(page.get_by_role("heading", name="Both plans")).to_be_visible()


def test_reviewer_understands_a_group_decides_one_takes_it_back_and_decides_the_rest(visit, engine, parked):
    page = visit("/inbox/?queue=review", who="reviewer")
    expect(page.locator("main")).to_contain_text("intake v1 → v2")
    page.get_by_role("link", name=str(RUNS), exact=True).first.click()
    expect(page.locator("main")).to_contain_text("What does not fit")
    group = page.url
    # One of them: both plans, the checkpoint before and after, then a migration, which was a mistake.
    open_first(page)
    expect(page.get_by_role("region", name="The checkpoint before and after")).to_contain_text('"sources"')
    decide(page, "Migrate", reason="fits", then="migrated to version 2")
    decide(page, "Take migration back", reason="that was the wrong one", then="its migration was taken back")
    # Another is rejected, and the rest is migrated together.
    page.goto(group)
    open_first(page)
    decide(page, "Reject", reason="a duplicate", then="cancelled")
    page.goto(group)
    page.get_by_role("button", name=f"Migrate all {RUNS - 2}…").click()
    expect(page.locator("main")).to_contain_text("preview: nothing is done yet")
    page.get_by_label("Reason").fill("all alike")
    page.get_by_role("button", name=f"Migrate {RUNS - 2} runs").click()
    page.wait_for_url("**/bulk/**")
    execute_batch()
    page.reload()
    expect(page.locator(".title .chip")).to_contain_text("done")
    engine.drain()
    states = sorted(Run.objects.filter(pk__in=[run.pk for run in parked]).values_list("state", flat=True))
    assert states == ["cancelled", "in_review", *["waiting"] * (RUNS - 2)]
    assert Bulk.objects.get().state == "done"
    assert set(AuditEntry.objects.filter(actor="reviewer").values_list("verb", flat=True)) >= {
        "migrate", "revert", "cancel", "bulk_start",
    }  # fmt: skip
    # What they ask now: one is answered, and one has expired while its page was open.
    first, second = Wait.objects.filter(state="open", kind="approval").order_by("pk")[:2]
    pages = [visit(f"/runs/{wait.run_id}/", who="reviewer") for wait in (first, second)]
    for one in pages:
        one.get_by_role("link", name="Approve…").click()
        expect(one.locator("#dialog")).to_contain_text("Publish?")
    Wait.objects.filter(pk=second.pk).update(expires_at=now() - timedelta(minutes=1))
    pages[0].locator("#dialog").get_by_role("button", name="Approve").click()
    expect(pages[0].locator("#notices")).to_contain_text("approved")
    pages[1].locator("#dialog").get_by_role("button", name="Approve").click()
    expect(pages[1].locator("#notices")).to_contain_text("'publish' expired at")
    engine.drain()
    assert Run.objects.get(pk=first.run_id).state == "succeeded"
    assert Wait.objects.get(pk=second.pk).answered_by == ""
