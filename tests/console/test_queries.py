"""No page asks the database more than twelve times, however much there is to show."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.models import IdempotencyRecord, LogLine, Receipt, RunEvent
from tests.factories import make_checkpoint, make_effect, make_run, make_wait, make_worker, now

MOST = 12


def fill(run, times):
    for n in range(times):
        make_checkpoint(run, seq=n + 1)
        make_effect(run, state="succeeded")
        RunEvent.objects.create(run=run, event="claim", to_state="running", step_id="first")
        Receipt.objects.create(run=run, number=n + 1, cause="worker_lost", step_id="first", fence=n)
        LogLine.objects.create(run=run, at=now(), step_id="first", level="info", message="m")


def asked(browser, address):
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(address).status_code == 200
    return len(captured)


@pytest.mark.parametrize("tab", ["timeline", "events", "checkpoints", "effects", "decisions", "logs", "audit"])
@pytest.mark.parametrize("state", ["queued", "running", "waiting", "failed", "in_review", "in_doubt"])
def test_run_page_asks_little_and_the_same_for_a_long_run(signed_in, tab, state):
    viewer = signed_in("viewer", sees_payloads=True)
    short, long = make_run(state=state, error_class="E"), make_run(state=state, error_class="E")
    for run, times in ((short, 1), (long, 12)):
        fill(run, times)
        if state == "waiting":
            make_wait(run, kind="approval", name="a")
    counts = [asked(viewer, reverse("console:run", args=[run.pk]) + f"?tab={tab}") for run in (short, long)]
    assert counts[0] == counts[1] <= MOST


@pytest.mark.parametrize("page", ["overview", "runs", "workers", "pauses"])
def test_lists_ask_little_and_the_same_for_many_rows(signed_in, page):
    viewer = signed_in("viewer")
    counts = []
    for times in (1, 10):
        for _ in range(times):
            make_wait(make_run(state="waiting"), kind="approval", name="a")
            make_run(state="running", worker=make_worker())
        counts.append(asked(viewer, reverse(f"console:{page}")))
    assert counts[0] == counts[1] <= MOST


def test_effects_are_shown_in_pages(signed_in, monkeypatch):
    from durableops.console import run_page

    monkeypatch.setattr(run_page, "PER_PAGE", 5)
    run = make_run()
    effects = [make_effect(run) for _ in range(12)]
    viewer, address = signed_in("viewer"), reverse("console:run", args=[run.pk]) + "?tab=effects"
    first = viewer.get(address).content.decode()
    second = viewer.get(f"{address}&before={effects[7].pk}").content.decode()
    assert [f'id="effect-{e.pk}"' in first for e in effects] == [False] * 7 + [True] * 5
    assert [f'id="effect-{e.pk}"' in second for e in effects] == [False] * 2 + [True] * 5 + [False] * 5


@pytest.mark.parametrize("tab", ["events", "checkpoints", "effects", "decisions", "logs", "audit"])
def test_list_that_somebody_reads_stays_where_it_is_and_counts_what_is_new(signed_in, tab):
    run = make_run(state="running")
    fill(run, 3)
    viewer, live = signed_in("viewer", sees_payloads=True), reverse("console:run_live", args=[run.pk])
    models: dict[str, Any] = {"events": RunEvent, "effects": IdempotencyRecord, "logs": LogLine}
    # A checkpoint's number; decisions and audit have no rows.
    newest = models[tab].objects.filter(run=run).order_by("-id")[1].pk if tab in models else 2
    still = f"{live}?tab={tab}&upto={newest}"
    assert asked(viewer, still) <= MOST
    page = viewer.get(still).content.decode()
    assert ('class="news"' in page) == (tab not in ("decisions", "audit"))
    assert 'class="news"' not in viewer.get(f"{live}?tab={tab}").content.decode()
