"""Pages and counts of runs: complete, stable, bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableops.console import listing
from durableops.console.filters import RunFilter
from runs.models import Receipt, Run, WorkflowPlan
from tests.factories import make_plan, make_run, make_tenant, make_wait, now

pytestmark = pytest.mark.django_db


def read(text=""):
    return RunFilter.read(QueryDict(text))


def ids(page):
    return [row.run.pk for row in page.rows]


@pytest.fixture
def many():
    tenants = [make_tenant(), make_tenant("other")]
    plan, at = make_plan(), now()
    made = Run.objects.bulk_create(
        Run(tenant=tenants[n % 2], workflow="made", plan=plan, state="succeeded", finished_at=at, created_by="tests",
            input_hash="i", step_id="second", created_at=at - timedelta(seconds=n // 3), labels={"n": str(n % 7)})
        for n in range(130)
    )  # fmt: skip
    return tenants, [run.pk for run in sorted(made, key=lambda run: (run.created_at, run.pk), reverse=True)]


def test_paging_through_shows_every_run_once_and_back_again(many):
    tenants, everything = many
    seen, pages, asked = [], [], read()
    while True:
        page = listing.page(asked, tenants)
        seen += ids(page)
        pages.append(ids(page))
        if not page.older:
            break
        asked = read(page.older)
    assert seen == everything
    back = [ids(page)]
    while page.newer:
        page = listing.page(read(page.newer), tenants)
        back.append(ids(page))
    assert back[::-1] == pages


def test_oldest_first_is_the_same_list_turned(many):
    tenants, everything = many
    assert ids(listing.page(read("sort=oldest"), tenants)) == everything[::-1][:50]


def test_run_created_while_paging_moves_no_other(many):
    tenants, everything = many
    first = listing.page(read(), tenants)
    make_run()
    assert ids(listing.page(read(first.older), tenants)) == everything[50:100]


def test_conditions_narrow_the_list(many):
    tenants, _ = many
    found = listing.page(read("q=label.n%3A3 tenant%3Aacme"), tenants)
    assert found.rows
    assert {(row.run.labels["n"], row.run.tenant.slug) for row in found.rows} == {("3", "acme")}


def test_number_beside_a_view_is_the_number_of_runs_behind_it():
    run = make_run(state="waiting")
    make_wait(run, kind="approval", name="a")
    systems = make_run(state="waiting")
    make_wait(systems)
    resumed = make_run(state="running", resumes=1)
    Receipt.objects.create(run=resumed, number=1, cause="worker_lost", step_id="first", fence=1)
    for state in ("failed", "in_doubt", "in_review", "timed_out", "queued", "succeeded"):
        make_run(state=state)
    make_run(paused=True, paused_by="somebody")
    tenants = [make_tenant()]
    counts = listing.view_counts(read(), tenants)
    for view, query in read().links():
        assert counts[view.name] == str(len(listing.page(read(query), tenants).rows)), view.name
    assert ids(listing.page(read("view=people"), tenants)) == [run.pk]
    assert ids(listing.page(read("view=systems"), tenants)) == [systems.pk]
    assert ids(listing.page(read("view=resumed"), tenants)) == [resumed.pk]
    assert counts["paused"] == "1"


def test_counts_stop_at_their_cap_and_say_so(monkeypatch):
    monkeypatch.setattr(listing, "COUNT_CAP", 3)
    for _ in range(5):
        make_run()
    assert listing.view_counts(read(), [make_tenant()])["all"] == "3+"


def test_rare_condition_looks_at_a_bounded_number_of_runs_and_says_so(monkeypatch):
    monkeypatch.setattr(listing, "WINDOW", 10)
    wanted = make_run(start_key="rare")
    Run.objects.filter(pk=wanted.pk).update(created_at=now() - timedelta(days=1))
    for _ in range(12):
        make_run()
    page = listing.page(read("q=key%3Arare"), [make_tenant()])
    assert (page.rows, page.looked_at) == ([], 10)


def test_list_reads_its_page_from_an_index_and_never_the_table(many):
    tenants, _ = many
    for state in ("queued", "waiting", "failed", "cancelled", "timed_out", "exhausted") * 10:
        make_run(state=state, tenant=tenants[0])
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as captured:
        # So few rows are as quick to sort: with the ways of small tables off, the plan is that of a large one; and what
        # autovacuum noted of another test's rows says nothing about these.
        cursor.execute("ANALYZE runs_run")
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        listing.page(read("view=failed"), tenants)
        sql = next(query["sql"] for query in captured if "CROSS JOIN LATERAL" in query["sql"])
        cursor.execute(f"EXPLAIN {sql}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "run_tenant_state_newest" in plan
    assert "Seq Scan on runs_run" not in plan


def test_unreadable_row_leaves_a_mark_and_the_others(signed_in):
    """One run of a workflow nobody knows with a plan that is no plan; the page shows all three."""
    fine, unknown, broken = make_run(), make_run(step_id="gone"), make_run(plan=make_plan("odd", plan={"steps": []}))
    WorkflowPlan.objects.filter(pk=broken.plan_id).update(plan=["not", "a", "plan"])
    viewer = signed_in("viewer")
    page = viewer.get(reverse("console:runs")).content.decode()
    assert all(str(run.pk) in page for run in (fine, unknown, broken))
    assert page.count("plan unreadable") == 2
    assert viewer.get(reverse("console:run", args=[broken.pk])).status_code == 200


def test_run_deleted_between_list_and_click_is_a_page_that_says_so(signed_in):
    answer = signed_in("viewer").get(reverse("console:run", args=["01990000-0000-7000-8000-000000000000"]))
    assert answer.status_code == 404
    assert "Nothing is here" in answer.content.decode()


def test_typed_condition_becomes_the_address_and_an_id_leads_to_its_run(signed_in):
    run = make_run()
    viewer = signed_in("viewer")
    answer = viewer.get(reverse("console:runs"), {"q": "state:queued", "view": "open", "add": "workflow:made"})
    assert answer["Location"] == "/runs/?view=open&q=state%3Aqueued+workflow%3Amade"
    assert viewer.get(reverse("console:runs"), {"add": str(run.pk)})["Location"] == f"/runs/{run.pk}/"


def test_figures_of_the_overview_are_those_of_ones_own_tenants(signed_in):
    mine, theirs = (
        make_run(state="running", resumes=1),
        make_run(tenant=make_tenant("other"), state="running", resumes=1),
    )
    for run, seconds in ((mine, 2), (theirs, 3000)):
        Receipt.objects.create(run=run, number=1, cause="worker_lost", step_id="first", fence=1, reused_effects=seconds,
                               lost_at=now() - timedelta(seconds=seconds))  # fmt: skip
    page = signed_in("viewer").get(reverse("console:overview")).content.decode()
    assert "over 1 interruption of 1 run" in page
    assert '<span class="figure">2</span><span class="scope">answered from the record' in page
    assert "3,000" not in page
