"""Previews: what would go, what stays and why; and the cleaner does that, or says what was different."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.engine.retention import holds, rules
from durableops.upkeep.retention import preview
from runs.models import Cleanup, RetentionPreview, Run
from runs.retention.classes import CLASSES
from tests.factories import make_doubt, make_effect, make_tenant, now
from tests.upkeep.retention.conftest import full_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def moment(cleaning):
    return cleaning.fetch("SELECT clock_timestamp()")[0][0]


def test_preview_changes_nothing_and_the_cleaner_does_exactly_what_it_said(cleaning):
    for days in (0, 8, 31, 91, 366, 401, 5000):
        full_run(ago=timedelta(days=days, hours=1))
    full_run("failed", ago=timedelta(days=8))
    held = full_run()
    make_doubt(make_effect(held, state="in_doubt"))
    seen = preview.look(cleaning, moment(cleaning))
    assert Cleanup.objects.count() == 0
    stored = preview.store(seen, tenant=None, by="ada")
    done = preview.execute(cleaning, stored, by="ada")
    stored.refresh_from_db()
    assert stored.outcome is not None
    assert (stored.outcome["different"], stored.outcome["because"]) == ([], [])
    assert done.rows == sum(one.rows for one in seen.goes) == stored.outcome["rows"]
    assert stored.outcome["bytes"] == sum(one.bytes for one in seen.goes)
    by_class = {name: sum(one.rows for one in seen.goes if one.data_class == name) for name in CLASSES}
    assert dict(done.by_class) == {name: rows for name, rows in by_class.items() if rows}


def test_what_stays_is_said_with_its_reason_and_some_of_the_runs(cleaning):
    runs = [full_run("failed", ago=timedelta(days=29)) for _ in range(5)]
    rules.set_rule("checkpoint", keeps="seconds", seconds=0, tenant=None, actor="ada", reason="less")
    seen = preview.look(cleaning, moment(cleaning))
    [kept] = [one for one in seen.stays if one.data_class == "checkpoint"]
    assert (kept.why, kept.runs, len(kept.sample)) == ("reopenable", 5, 3)
    assert set(kept.sample) <= {str(run.pk) for run in runs}
    assert {one.data_class for one in seen.goes} == {"raw_prompt"}


def test_figures_are_by_workflow_with_the_rule_that_applies(cleaning):
    full_run(ago=timedelta(days=8), workflow="a")
    full_run(ago=timedelta(days=8), workflow="b")
    rule = rules.set_rule("raw_prompt", keeps="for_ever", tenant=None, workflow="b", actor="ada", reason="keep")
    seen = preview.look(cleaning, moment(cleaning))
    assert {(one.workflow, one.data_class, one.rule, one.seconds) for one in seen.goes} == {
        ("a", "temp_file", 0, 0), ("b", "temp_file", 0, 0), ("a", "raw_prompt", 0, 7 * 86400),
    }  # fmt: skip
    assert rule.pk > 0


def test_preview_of_one_tenant_shows_no_other(cleaning):
    full_run()
    mine = full_run(tenant=make_tenant("other"))
    seen = preview.look(cleaning, moment(cleaning), tenant=mine.tenant)
    assert seen.runs == 1
    assert {run for one in seen.goes for run in one.sample} == {str(mine.pk)}


def test_preview_that_ends_early_says_so(cleaning):
    for _ in range(3):
        full_run()
    assert not preview.look(cleaning, moment(cleaning), most=2).complete
    assert preview.look(cleaning, moment(cleaning), most=4).complete


def test_what_happened_in_between_is_named(cleaning):
    held, gone = full_run(), full_run()
    stored = preview.store(preview.look(cleaning, moment(cleaning)), tenant=None, by="ada")
    holds.place(tenant=held.tenant, run_id=held.pk, actor="ada", reason="court")
    rules.set_rule("event", keeps="for_ever", tenant=None, actor="ada", reason="keep")
    preview.execute(cleaning, stored, by="ada")
    stored = RetentionPreview.objects.get(pk=stored.pk)
    assert stored.outcome is not None
    assert stored.outcome["because"] == ["1 rules were set", "1 legal holds were placed"]
    different = {one["data_class"]: (one["said"], one["went"]) for one in stored.outcome["different"]}
    assert different["event"][1] == 0
    assert different["checkpoint"][0] == 2 * different["checkpoint"][1]
    assert set(Run.objects.values_list("pk", flat=True)) == {held.pk, gone.pk}


def test_run_that_ended_after_the_preview_is_not_touched_by_its_execution(cleaning):
    full_run()
    stored = preview.store(preview.look(cleaning, moment(cleaning)), tenant=None, by="ada")
    later = full_run(ago=timedelta(seconds=-5))
    preview.execute(cleaning, stored, by="ada")
    assert stored.outcome is not None
    assert stored.outcome["different"] == []
    assert later.artifacts.filter(data_class="temp_file").exists()
    assert now() > stored.as_of
