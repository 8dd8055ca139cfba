"""The guard: what going back or trying again would send, before it is done, and nothing but that afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops.engine import branching, commands
from durableops.errors import PlanChanged
from runs.models import AuditEntry, IdempotencyRecord, Run
from tests.engine.branching.conftest import WHY, plan, told
from tests.factories import make_effect, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_guard_says_what_is_reused_and_what_is_read_again(engine, seen, trip):
    run = engine.run(trip)
    assert told(run, seq=1) == {
        ("reused", "book", 2), ("reused", "note", 1), ("read", "look", 1)
    }  # fmt: skip
    assert told(run, "retry", None) == {("reused", "book", 1)}
    assert plan(run).is_harmless


@pytest.mark.parametrize(
    ("over", "category"),
    [
        ({"state": "succeeded"}, "reused"),
        ({"state": "refused"}, "reused"),
        ({"state": "withdrawn"}, "unsent"),
        ({"state": "given_up"}, "given_up"),
        ({"state": "in_doubt"}, "again"),
        ({"state": "intended"}, "again"),
        ({"state": "in_doubt", "window": timedelta(hours=1)}, "again"),
        ({"state": "in_doubt", "window": timedelta(hours=-1)}, "doubt"),
        ({"state": "in_doubt", "safety": "legacy"}, "doubt"),
        ({"state": "queued", "safety": "legacy"}, "unsent"),
        ({"state": "queued", "safety": "outbox"}, "pending"),
        ({"state": "succeeded", "safety": "outbox"}, "reused"),
        ({"state": "succeeded", "safety": "local"}, "reused"),
    ],
)
def test_guard_tells_the_fate_of_each_call_by_class(tenant, over, category):
    run = make_run(state="failed", tenant=tenant)
    window = over.pop("window", None)
    make_effect(run, **over, **({"window_ends_at": run.created_at + window} if window else {}))
    [line] = plan(run, "retry", None).lines
    assert (line.category, line.calls, line.runs) == (category, 1, 1)
    assert plan(run, "retry", None).is_harmless == (category not in ("again", "doubt"))


@pytest.mark.parametrize("verb", ["retry", "retry_from", "fork"])
def test_plan_that_was_shown_is_the_plan_that_is_executed(engine, seen, trip, verb):
    run = engine.run(trip)
    seq = None if verb == "retry" else 1
    shown = plan(run, verb, seq).hash
    do: dict[str, Any] = {
        "retry": lambda hash_: commands.retry(run.pk, tenant=run.tenant, plan_hash=hash_, **WHY),
        "retry_from": lambda hash_: branching.retry_from(run.pk, tenant=run.tenant, seq=1, plan_hash=hash_, **WHY),
        "fork": lambda hash_: branching.fork(run.pk, tenant=run.tenant, seq=1, plan_hash=hash_, once="a", **WHY),
    }
    make_effect(run, state="in_doubt", tool="late")
    with pytest.raises(PlanChanged, match="has changed since it was shown") as refused:
        do[verb](shown)
    run.refresh_from_db()
    assert (run.state, run.lineage, Run.objects.count()) == ("failed", 1, 1)
    assert AuditEntry.objects.get().verb == f"{verb} (refused)"
    fresh = refused.value.plan
    assert isinstance(fresh, dict)
    assert "late" in [line["tool"] for line in fresh["calls"]]
    do[verb](fresh["plan_hash"])
    assert AuditEntry.objects.filter(verb=verb).count() == 1


def test_delivery_of_a_message_does_not_change_the_plan(tenant):
    run = make_run(state="failed", tenant=tenant)
    effect = make_effect(run, state="queued", safety="outbox")
    before = plan(run, "retry", None)
    IdempotencyRecord.objects.filter(pk=effect.pk).update(state="succeeded", completed_at=run.created_at)
    after = plan(run, "retry", None)
    assert (before.lines[0].category, after.lines[0].category, before.hash == after.hash) == ("pending", "reused", True)


def test_window_that_closes_changes_the_plan(tenant):
    run = make_run(state="failed", tenant=tenant)
    effect = make_effect(run, state="in_doubt", window_ends_at=run.created_at + timedelta(hours=1))
    before = plan(run, "retry", None).hash
    IdempotencyRecord.objects.filter(pk=effect.pk).update(window_ends_at=run.created_at - timedelta(hours=1))
    assert plan(run, "retry", None).hash != before
