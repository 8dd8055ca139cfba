"""Every page in both schemes and at both ends of the widths: nothing for axe to find, nothing beyond the edge."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from durableops.engine.retention import erasures, holds, rules
from runs.models import ClassSize, Cleanup, Erasure, RetentionPreview, RunEvent, System
from tests.factories import (
    make_checkpoint,
    make_doubt,
    make_effect,
    make_endpoint,
    make_lane,
    make_message,
    make_plan,
    make_prompt,
    make_run,
    make_wait,
    make_worker,
    now,
)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def addresses():
    worker = make_worker(versions={"made": [1]}, plans=[make_plan().pk])
    waiting = make_run(state="waiting", head_seq=1, started_at=now())
    wait = make_wait(
        waiting,
        kind="approval",
        name="delivery",
        question="Deliver?",
        facts='{"rows":3}',
        expires_at=now() + timedelta(days=1),
    )
    make_checkpoint(waiting, seq=2)
    effect = make_effect(waiting, state="succeeded", result='{"id":"x"}', request_summary={"title": "t" * 300})
    for event, state in (("start", "queued"), ("claim", "running"), ("suspend", "waiting")):
        RunEvent.objects.create(run=waiting, event=event, to_state=state, step_id="first")
    asked = make_run(state="waiting")
    awaited = make_wait(asked, name="paid", correlation="INV-7")
    failed = make_run(state="failed", error_class="builtins.ValueError", error_message="no " * 100)
    make_run(state="running", worker=worker)
    make_worker(kind="relay", destinations=["mail"])
    poison = make_message(waiting, state="poisoned", error_message="no such address " * 10, attempts=3, sendings=3)
    make_message(waiting)
    endpoint = make_endpoint(url="https://hooks.example/" + "a" * 200)
    delivered = make_message(
        failed, state="delivered", lane=make_lane(failed, destination=f"webhook:{endpoint.pk}"), endpoint=endpoint
    )
    doubtful = make_run(state="in_doubt", fence=1)
    maybe = make_effect(doubtful, state="in_doubt", safety="legacy", system="ledger", holds_system=True,
                        resource="order " + "7" * 200, request_summary={"amount": 40})  # fmt: skip
    doubt = make_doubt(maybe, why="no answer " * 30, probe_at=now(), probe_said="their search is down")
    settled = make_doubt(make_effect(doubtful, state="given_up"), settled_at=now(), settled_as="give_up",
                         settled_by="ann", evidence="asked " * 40)  # fmt: skip
    System.objects.create(name="ledger", paused=True, paused_by="ann", paused_at=now(), paused_reason="month-end " * 9)
    waits = [make_effect(waiting, state="queued", safety="legacy", system="ledger", resource="o" * 200) for _ in "ab"]
    RunEvent.objects.create(run=failed, event="effect_conflict", reason="the slot holds another request",
                            data={"effect": effect.pk, "asked": "b" * 64})  # fmt: skip
    tabs = ["timeline", "events", "checkpoints", "effects", "decisions", "artifacts", "logs", "audit"]
    keeping(failed)
    parts = ["rules", "preview", "log", "holds", "erasures"]
    return [
        "/overview/", "/runs/", "/runs/?q=foo:bar", "/runs/?view=people", "/workers/", "/pauses/", "/quotas/",
        "/quotas/tenants/acme/",
        "/outbox/", "/outbox/?tenant=acme&destination=mail", f"/outbox/messages/{poison.pk}/",
        f"/outbox/messages/{delivered.pk}/", "/inbox/?queue=undelivered", "/webhooks/acme/",
        f"/webhooks/acme/{endpoint.pk}/", *(f"/retention/acme/?tab={part}" for part in parts),
        "/people/acme/", "/runs/start/", "/styleguide/", "/api/v1/docs", "/nowhere/", "/runs/?cols=workflow,key,labels",
        *(f"/runs/{waiting.pk}/?tab={tab}" for tab in tabs), f"/runs/{failed.pk}/",
        f"/runs/{waiting.pk}/checkpoints/2/", f"/runs/{waiting.pk}/effects/{effect.pk}/",
        f"/runs/{waiting.pk}/do/cancel/", f"/runs/{waiting.pk}/approvals/{wait.pk}/approve/",
        "/effects/", "/effects/?state=in_doubt&tool=send",
        "/systems/", "/systems/ledger/", "/systems/ledger/resume/", f"/systems/calls/{waits[0].pk}/move/",
        "/inbox/?queue=doubt", f"/doubts/{doubt.pk}/", f"/doubts/{doubt.pk}/happened/", f"/doubts/{doubt.pk}/did-not/",
        f"/doubts/{settled.pk}/", f"/runs/{doubtful.pk}/?tab=effects", f"/runs/{doubtful.pk}/effects/{maybe.pk}/",
        f"/runs/{waiting.pk}/waits/{wait.pk}/extend/", f"/runs/{asked.pk}/waits/{awaited.pk}/send/",
    ]  # fmt: skip


def keeping(run):
    """Something to see on each part of the Retention page."""
    make_prompt(run)
    rules.set_rule(
        "event", keeps="seconds", seconds=3600, tenant=run.tenant, workflow="made", actor="ada", reason="less"
    )
    holds.place(tenant=run.tenant, run_id=run.pk, actor="ada", reason="the case of ann " * 9)
    lifted = holds.place(tenant=run.tenant, label="customer", value="c" * 200, actor="ada", reason="court")
    holds.lift(lifted.pk, tenant=run.tenant, actor="bob", reason="over")
    erasures.request(tenant=run.tenant, label="customer", value="ann", actor="ada", reason="asked " * 30)
    Erasure.objects.update(stayed={"key_window": 3}, erased={"input": {"rows": 7, "bytes": 70_000}})
    Cleanup.objects.create(data_class="event", kind="runs_event", tenant=run.tenant, workflow="made", rule=1, seconds=1,
                           cutoff=now(), reason="policy", runs=3, rows=1234, bytes=10**7, cleaner="upkeep")  # fmt: skip
    for size in (4 * 10**8, 9 * 10**8):
        ClassSize.objects.create(data_class="event", rows=10**6, bytes=size)
    gone = {"workflow": "made", "data_class": "event", "runs": 3, "rows": 12, "bytes": 900, "rule": 1, "seconds": 3600,
            "sample": [str(run.pk)]}  # fmt: skip
    held = {"workflow": "made", "data_class": "input", "why": "legal_hold", "runs": 1, "sample": [str(run.pk)]}
    figures = {"runs": 4, "complete": True, "rows": 12, "bytes": 900, "goes": [gone], "stays": [held]}
    for _ in "ab":
        RetentionPreview.objects.create(made_by="ada", as_of=now(), rule=1, tenant=run.tenant, figures=figures)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_on_any_page(visit, addresses, dark):
    page = visit("/overview/", dark=dark)
    found = {}
    for address in addresses:
        page.goto(address)
        page.evaluate(AXE)
        violations = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
        if violations:
            found[address] = violations
    assert found == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_open_dialogs_and_the_demos_words(visit, addresses, settings, dark):
    settings.DEMO = True
    page = visit(next(one for one in addresses if "tab=timeline" in one), dark=dark)
    page.evaluate(AXE)
    found = []
    for name in ("Approve…", "Cancel…", "Extend “delivery”…"):
        page.get_by_role("link", name=name).click()
        expect(page.locator("#dialog")).to_be_visible()
        found += page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
        page.keyboard.press("Escape")
        expect(page.locator("#dialog")).to_be_hidden()
    page.keyboard.press("?")
    found += page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
    for place in ("/overview/", "/workers/"):
        page.goto(place)
        page.evaluate(AXE)
        found += page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
    assert found == []


@pytest.mark.parametrize("width", [320, 1920])
def test_no_page_is_wider_than_the_window(visit, addresses, width):
    page = visit("/overview/", width=width)
    for address in addresses:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, address


def test_filters_survive_reload_sharing_and_going_into_a_run_and_back(visit):
    run = make_run(state="failed", labels={"team": 'a & b #1 + "50%" é'})
    make_run(state="failed")
    page = visit("/runs/?view=failed")
    condition = f"label.team:{json.dumps(run.labels['team'], ensure_ascii=False)}"
    page.get_by_label("Add a condition").fill(condition)
    page.keyboard.press("Enter")
    rows = page.locator(".run-row")
    for again in (lambda: None, page.reload):
        again()
        expect(rows).to_have_count(1)
        expect(page.locator(".cond span")).to_have_text(run.labels["team"])
    rows.locator(".mono a").click()
    expect(page.locator("h1")).to_contain_text("made")
    page.go_back()
    expect(rows).to_have_count(1)
    shared = visit(page.url, who="viewer")
    expect(shared.locator(".run-row")).to_have_count(1)
    expect(shared.locator(".cond span")).to_have_text(run.labels["team"])
    shared.get_by_label("Remove label.team").click()
    expect(shared.locator(".run-row")).to_have_count(2)


def test_list_updates_by_itself_and_keeps_what_is_typed(visit):
    page = visit("/runs/")
    page.get_by_label("Add a condition").fill("workf")
    make_run(workflow="made")
    expect(page.locator(".run-row")).to_have_count(1)
    expect(page.get_by_label("Add a condition")).to_have_value("workf")
    expect(page.get_by_label("Add a condition")).to_be_focused()


def test_nothing_of_a_page_is_kept_after_signing_out(visit):
    run = make_run(labels={"customer": "Miller"})
    page = visit(f"/runs/{run.pk}/")
    expect(page.locator(".meta")).to_contain_text("Miller")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in/")
    page.go_back()
    expect(page.get_by_label("Password")).to_be_visible()
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_keys_lead_everywhere(visit):
    make_run()
    page = visit("/overview/")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*-*/")
    page.go_back()
    page.keyboard.press("/")
    expect(page.get_by_label("Add a condition")).to_be_focused()
