"""Erasures: what was asked for goes, what must stay is said and why, and nothing of anybody else is touched."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection

from durableops.engine.retention import erasures as asking
from durableops.engine.retention import holds
from durableops.errors import InputRefused
from durableops.upkeep.retention import erasures, relooks
from runs.models import AuditEntry, Cleanup, Erasure, IdempotencyRecord, Run
from tests.factories import make_effect, make_run, make_tenant, now
from tests.upkeep.retention.conftest import classes_left, full_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

DAY = timedelta(days=1)


@pytest.fixture
def carry_out(clean, cleaning):
    """Look again, clean, account: what upkeep does with a request."""

    def work() -> None:
        while relooks.look_again(cleaning):
            pass
        clean()
        erasures.account(cleaning)

    return work


def ask(run: Run, **place: str) -> Erasure:
    return asking.request(tenant=run.tenant, actor="ada", reason="customer 7 asked", **place)


def test_everything_with_a_label_goes_and_nothing_else(carry_out):
    mine, others = full_run(ago=DAY, labels={"customer": "7"}), full_run(ago=DAY, labels={"customer": "8"})
    foreign = full_run(ago=DAY, labels={"customer": "7"}, tenant=make_tenant("other"))
    erasure = ask(mine, label="customer", value="7")
    carry_out()
    assert set(Run.objects.values_list("pk", flat=True)) == {others.pk, foreign.pk}
    erasure.refresh_from_db()
    assert erasure.finished_at is not None
    assert (erasure.stayed, erasure.erased["raw_prompt"]["rows"]) == ({}, 2)
    assert sum(one["rows"] for one in erasure.erased.values()) == sum(
        Cleanup.objects.filter(erasure=erasure, reason="erasure").values_list("rows", flat=True)
    )


def test_run_that_was_looked_at_already_is_found_again(carry_out, clean):
    run = full_run(ago=DAY)
    clean()
    ask(run)
    carry_out()
    assert not Run.objects.exists()


def test_what_must_stay_is_emptied_and_said(carry_out):
    run = full_run("failed", ago=DAY, labels={"customer": "7"}, error_message="Ann Smith is unknown", start_key="k")
    make_effect(run, state="succeeded", resource="ann@example.com", author_key="ann", completed_at=run.finished_at,
                window_ends_at=now() + DAY)  # fmt: skip
    erasure = ask(run, label="customer", value="7")
    carry_out()
    run.refresh_from_db()
    erasure.refresh_from_db()
    assert erasure.stayed == {"key_window": 1}
    assert classes_left(run) == {"effect_key"}
    assert (run.labels, run.error_message, run.start_key) == ({}, "", "k")
    assert set(IdempotencyRecord.objects.filter(run=run).values_list("resource", "author_key")) == {("(erased)", "")}
    with connection.cursor() as cursor:
        for table in ("runs_run", "runs_effect", "runs_checkpoint", "runs_event", "runs_wait", "runs_summary"):
            cursor.execute(f"SELECT coalesce(json_agg(x)::text, '') FROM {table} x")
            assert "ann" not in cursor.fetchone()[0].lower(), table
    assert erasure.finished_at is not None
    # Once the other side has forgotten the key, the rest goes by itself, although its labels are gone.
    IdempotencyRecord.objects.filter(run=run).update(window_ends_at=now() - DAY)
    Run.objects.filter(pk=run.pk).update(retain_at=now())
    carry_out()
    assert not Run.objects.exists()


@pytest.mark.parametrize("why", ["in doubt", "legal hold"])
def test_doubt_and_legal_hold_are_stronger(carry_out, why):
    run = full_run(ago=DAY)
    if why == "in doubt":
        make_effect(run, state="in_doubt")
    else:
        holds.place(tenant=run.tenant, run_id=run.pk, actor="ada", reason="court")
    erasure = ask(run)
    carry_out()
    erasure.refresh_from_db()
    assert "checkpoint" in classes_left(run)
    assert erasure.stayed == {"unsettled_effect" if why == "in doubt" else "legal_hold": 1}
    assert ("raw_prompt" in classes_left(run)) is (why == "legal hold")


def test_open_run_is_erased_once_it_has_ended_and_the_request_waits_for_it(carry_out):
    run = make_run(state="waiting", labels={"customer": "7"})
    erasure = ask(run, label="customer", value="7")
    carry_out()
    erasure.refresh_from_db()
    assert (erasure.finished_at, erasure.stayed) == (None, {"open": 1})
    Run.objects.filter(pk=run.pk).update(state="succeeded", finished_at=now())
    carry_out()
    erasure.refresh_from_db()
    assert (erasure.finished_at is not None, Run.objects.exists()) == (True, False)


def test_run_that_was_created_after_the_request_is_another_matter(carry_out):
    run = full_run(ago=DAY, labels={"customer": "7"})
    ask(run, label="customer", value="7")
    later = make_run(state="succeeded", finished_at=now(), labels={"customer": "7"})
    Run.objects.filter(pk=later.pk).update(created_at=now() + timedelta(seconds=1))
    carry_out()
    assert set(Run.objects.values_list("pk", flat=True)) == {later.pk}


def test_asking_is_in_the_audit_and_wants_a_reason():
    run = full_run(ago=DAY)
    with pytest.raises(InputRefused, match="say why"):
        asking.request(tenant=run.tenant, actor="ada", reason=" ")
    assert not Erasure.objects.exists()
    erasure = ask(run, label="customer", value="7")
    entry = AuditEntry.objects.get(verb="request_erasure")
    assert (entry.actor, entry.target_id, json.dumps(entry.after)) == (
        "ada", str(erasure.pk), '{"label": "customer", "value": "7"}',
    )  # fmt: skip
