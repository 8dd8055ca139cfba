"""What retention may remove, asked of the database: every holder, every class, both sides of each window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, connection
from django.db.utils import DataError

from runs.models import Doubt, Erasure, LegalHold, RetentionRule, Run, RunSummary, Tenant
from runs.retention.classes import CLASSES, CLOSES, DAY, DEFAULT_DAYS, HOLDERS, NEEDS, SUBJECTS, in_words
from runs.retention.targets import OF_A_RUN, TARGETS
from tests.factories import (
    make_compensation,
    make_doubt,
    make_effect,
    make_order,
    make_review,
    make_run,
    make_tenant,
    make_wait,
    now,
)

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

LONG_AGO = timedelta(days=5000)
DAYS = timedelta(days=1)


def rule(subject: str, seconds: int | None = None, *, keeps: str = "", **place: Any) -> RetentionRule:
    keeps = keeps or ("for_ever" if seconds is None else "seconds")
    return RetentionRule.objects.create(
        subject=subject, keeps=keeps, seconds=seconds, actor="ada", reason="tests", **place
    )


def verdicts(run: Run, *, at: datetime | None = None) -> dict[str, Any]:
    """Data class to (goes, held, due_at, free_at)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT data_class, goes, held, CASE WHEN isfinite(due_at) THEN due_at END,"
            " CASE WHEN isfinite(free_at) THEN free_at END FROM runs_retention_verdicts(%s, %s)",
            [[run.pk], at or now()],
        )
        return {row[0]: row[1:] for row in cursor.fetchall()}


def going(run: Run, **more: Any) -> set[str]:
    return {name for name, (goes, *_rest) in verdicts(run, **more).items() if goes}


def window(subject: str, *, tenant: Tenant | None = None, workflow: str = "made") -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seconds FROM runs_retention_window(%s, %s, %s)",
            [None if tenant is None else tenant.pk, workflow, subject],
        )
        return cursor.fetchone()[0]


def finished(state: str = "succeeded", *, ago: timedelta = LONG_AGO, **over: Any) -> Run:
    at = now() - ago
    return make_run(state=state, finished_at=at, created_at=at - timedelta(hours=1), **over)


def end_of(run: Run) -> datetime:
    assert run.finished_at is not None
    return run.finished_at


def test_defaults_hold_from_the_first_start():
    assert {subject: window(subject) for subject in SUBJECTS} == {
        subject: None if days is None else days * DAY for subject, days in DEFAULT_DAYS.items()
    }


def test_the_narrowest_place_decides_and_the_newest_rule_of_a_place():
    acme, other = make_tenant("acme"), make_tenant("other")
    rule("input", 4)
    rule("input", 3, workflow="made")
    assert window("input") == 3
    assert window("input", workflow="else") == 4
    rule("input", 2, tenant=acme)
    rule("input", 1, tenant=acme, workflow="made")
    rule("input", None, tenant=acme, workflow="made")
    assert window("input", tenant=acme) is None
    assert window("input", tenant=acme, workflow="else") == 2
    assert window("input", tenant=other) == 3
    rule("input", keeps="inherited", tenant=acme, workflow="made")
    assert window("input", tenant=acme) == 2
    rule("input", keeps="inherited", tenant=acme)
    assert window("input", tenant=acme) == 3


def test_zero_is_zero_and_keep_is_keep():
    rule("raw_prompt", 0)
    rule("temp_file", None)
    run = finished(ago=timedelta(0))
    found = verdicts(run, at=now() + timedelta(seconds=1))
    assert (found["raw_prompt"][0], found["temp_file"][0]) == (True, False)
    assert not verdicts(finished())["temp_file"][0]


@pytest.mark.parametrize("name", [name for name in CLASSES if DEFAULT_DAYS[name]])
def test_each_class_goes_when_its_own_time_has_come_and_not_before(name):
    days = timedelta(days=DEFAULT_DAYS[name] or 0)
    early, late = finished(ago=days - timedelta(minutes=1)), finished(ago=days + timedelta(minutes=1))
    assert not verdicts(early)[name][0]
    assert verdicts(late)[name][0]
    assert abs(verdicts(early)[name][2] - (end_of(early) + days)) < timedelta(seconds=1)


def test_the_row_of_a_run_goes_with_the_last_of_its_data():
    rule("effect_key", 0)
    run = finished(ago=timedelta(days=100))
    goes, held, _due, free = verdicts(run)["effect_key"]
    assert (goes, held) == (False, ["class:deliverable"])
    assert abs(free - (end_of(run) + timedelta(days=365))) < timedelta(seconds=1)
    rule("deliverable", 0)
    assert verdicts(run)["effect_key"][0]


def parent_of(run: Run, state: str, **over: Any) -> None:
    finish: dict[str, Any] = {} if state in ("waiting", "running", "queued") else {"finished_at": now() - LONG_AGO}
    parent = make_run(state=state, **(finish | over))
    wait = make_wait(parent, kind="children", name="kids", state="answered")
    Run.objects.filter(pk=run.pk).update(parent=parent, parent_wait=wait, child_index=0)


def failed_parent_of(run: Run) -> None:
    rule("reopen", None)
    parent_of(run, "failed")


def child_of(run: Run, state: str) -> None:
    wait = make_wait(run, kind="children", name="kids", state="answered")
    finish: dict[str, Any] = {"finished_at": now() - LONG_AGO} if state == "succeeded" else {}
    make_run(state=state, parent=run, parent_wait=wait, child_index=0, **finish)


def hold(run: Run, scope: str) -> None:
    places: dict[str, dict[str, Any]] = {
        "run": {"run_id": run.pk}, "tenant": {}, "label": {"label": "case", "value": "7"},
    }  # fmt: skip
    if scope == "label":
        Run.objects.filter(pk=run.pk).update(labels={"case": "7"})
    LegalHold.objects.create(scope=scope, tenant=run.tenant, placed_by="ada", reason="court", **places[scope])


def shared(run: Run, **over: Any) -> None:
    make_effect(run, state="succeeded", scope="tenant", completed_at=run.finished_at, **over)


def unsettled(state: str) -> Callable[[Run], Any]:
    more = {"safety": "outbox"} if state == "queued" else {}
    return lambda run: make_effect(run, state=state, **more)


def doubted(run: Run) -> None:
    make_doubt(make_effect(run, state="in_doubt"))


def done_effect(run: Run, **over: Any):
    return make_effect(run, state="succeeded", completed_at=run.finished_at, **over)


HELD_BY: dict[str, tuple[str, Callable[[Run], Any]]] = {
    "intended": ("unsettled_effect", unsettled("intended")),
    "in doubt": ("unsettled_effect", unsettled("in_doubt")),
    "queued": ("unsettled_effect", unsettled("queued")),
    "open doubt": ("unsettled_effect", doubted),
    "owed": ("compensation_owed", lambda run: make_compensation(done_effect(run))),
    "failed undo": ("compensation_owed", lambda run: make_compensation(done_effect(run), state="failed")),
    "order": ("compensation_owed", lambda run: make_order(run)),
    "undid": ("undone_by_it", lambda run: make_compensation(done_effect(finished()), linked_run=run, state="failed")),
    "review": ("open_review", lambda run: make_review(run)),
    "asked": ("open_wait", lambda run: make_wait(run, kind="approval")),
    "waiting parent": ("parent", lambda run: parent_of(run, "waiting")),
    "running parent": ("parent", lambda run: parent_of(run, "running")),
    "failed parent": ("parent", failed_parent_of),
    "open child": ("child", lambda run: child_of(run, "running")),
    "child": ("child_rows", lambda run: child_of(run, "succeeded")),
    "hold on the run": ("legal_hold", lambda run: hold(run, "run")),
    "hold on the tenant": ("legal_hold", lambda run: hold(run, "tenant")),
    "hold on a label": ("legal_hold", lambda run: hold(run, "label")),
    "key window": ("key_window", lambda run: done_effect(run, window_ends_at=now() + DAYS)),
    "shared effect": ("shared_effect", shared),
    "shared for a while": ("shared_effect", lambda run: shared(run, window_ends_at=now() + DAYS)),
}


@pytest.mark.parametrize("name", HELD_BY)
def test_each_holder_keeps_what_it_needs_and_nothing_else(name):
    holder, make = HELD_BY[name]
    run = finished()
    make(run)
    found = verdicts(run)
    assert {c for c, (_goes, held, *_r) in found.items() if holder in held} == set(NEEDS[holder]), found
    kept = {c for c, (goes, *_r) in found.items() if not goes}
    # A parent and a child come together: while one is open, both rows are there.
    others = {c for c in CLASSES if any(h != holder and not h.startswith("class:") for h in found[c][1])}
    assert kept - others - set(NEEDS[holder]) <= {"effect_key"}
    assert "effect_key" in kept


@pytest.mark.parametrize("state", ["queued", "running", "waiting", "in_doubt", "in_review"])
def test_nothing_of_an_open_run_goes_however_old_it_is(state):
    run = make_run(state=state, created_at=now() - LONG_AGO)
    assert going(run) == set()
    assert all(held[0] == "open" or "open" in held for _goes, held, *_r in verdicts(run).values())


@pytest.mark.parametrize("state", ["failed", "timed_out", "exhausted"])
def test_run_that_may_be_reopened_keeps_what_it_would_need(state):
    run = finished(state, ago=timedelta(days=29))
    rule("checkpoint", 0)
    rule("raw_prompt", 0)
    rule("event", 0)
    assert going(run) == {"raw_prompt", "event"}
    assert verdicts(run)["checkpoint"][1] == ["reopenable"]
    rule("reopen", 28 * DAY)
    assert "checkpoint" in going(run)


@pytest.mark.parametrize("state", ["succeeded", "cancelled"])
def test_run_that_cannot_be_reopened_is_not_kept_for_it(state):
    rule("checkpoint", 0)
    rule("reopen", None)
    assert "checkpoint" in going(finished(state, ago=timedelta(days=1)))


def test_reopening_for_ever_keeps_for_ever():
    rule("reopen", None)
    run = finished("failed")
    assert going(run) == {"raw_prompt", "event"}


def test_it_is_counted_from_when_a_thing_stopped_being_needed():
    run = finished()
    effect = make_effect(run, state="succeeded", completed_at=now() - timedelta(days=29))
    assert "checkpoint" not in going(run)
    assert "raw_prompt" in going(run)
    type(effect).objects.filter(pk=effect.pk).update(completed_at=now() - timedelta(days=31))
    assert "checkpoint" in going(run)


@pytest.mark.parametrize("late", ["doubt", "parent", "child"])
def test_what_was_settled_late_counts_from_then(late):
    run = finished()
    if late == "doubt":
        doubt = make_doubt(make_effect(run, state="succeeded", completed_at=run.finished_at))
        Doubt.objects.filter(pk=doubt.pk).update(
            settled_at=now() - timedelta(days=29), settled_as="happened", settled_by="ann"
        )
    elif late == "parent":
        parent_of(run, "succeeded", finished_at=now() - timedelta(days=29))
    else:
        child_of(run, "succeeded")
        Run.objects.filter(parent=run).update(finished_at=now() - timedelta(days=29))
    found = verdicts(run)
    assert not found["checkpoint"][0]
    assert found["temp_file"][0]


def test_grandparent_that_is_open_keeps_what_its_grandchild_brought():
    run = finished()
    parent_of(run, "succeeded")
    run.refresh_from_db()
    assert run.parent is not None
    assert "deliverable" in going(run)
    parent_of(run.parent, "waiting")
    assert "deliverable" not in going(run)


def test_hold_of_another_tenant_or_another_value_holds_nothing():
    run = finished(labels={"case": "7"})
    other = make_tenant("other")
    for place in (
        {"scope": "tenant", "tenant": other},
        {"scope": "label", "tenant": other, "label": "case", "value": "7"},
        {"scope": "label", "tenant": run.tenant, "label": "case", "value": "8"},
    ):
        LegalHold.objects.create(placed_by="ada", reason="court", **place)
    assert going(run) == set(CLASSES)


def test_lifted_hold_holds_nothing():
    run = finished()
    hold(run, "tenant")
    assert going(run) == set()
    LegalHold.objects.update(lifted_at=now(), lifted_by="ada")
    assert going(run) == set(CLASSES)


def test_next_look_is_when_something_may_go():
    run = finished("failed", ago=timedelta(days=10))
    free = verdicts(run)["checkpoint"][3]
    assert abs(free - (end_of(run) + timedelta(days=30))) < timedelta(seconds=1)
    make_effect(run)
    assert verdicts(run)["checkpoint"][3] > now() + timedelta(hours=5)


def erase(run: Run, **place: Any) -> Erasure:
    return Erasure.objects.create(tenant=run.tenant, requested_by="ada", reason="asked", **place)


def test_erasure_needs_no_age_and_does_not_wait_for_reopening():
    run, other = finished("failed", ago=DAYS, labels={"customer": "7"}), finished(ago=DAYS, labels={"customer": "8"})
    erase(run, label="customer", value="7")
    assert going(run) == set(CLASSES)
    assert going(other) == {"temp_file"}


def test_erasure_leaves_what_must_stay_and_what_came_later():
    run = finished(ago=DAYS)
    make_effect(run, state="in_doubt")
    erase(run)
    assert going(run) == {"temp_file", "raw_prompt"}
    later = make_run(state="succeeded", finished_at=now() + DAYS, created_at=now() + timedelta(hours=1))
    assert going(later, at=now() + 2 * DAYS) == {"temp_file"}


def test_erasure_gives_back_a_shared_answer_but_not_its_key():
    run = finished(ago=DAYS)
    shared(run)
    erase(run)
    assert going(run) == set(CLASSES) - {"effect_key"}


def test_what_has_gone_is_not_gone_for_again_and_holds_no_row():
    run = finished()
    RunSummary.objects.create(run=run, finished_at=end_of(run), version=1, checkpoints=1, cleaned={"event": "then"})
    rule("event", None)
    assert "event" not in going(run)
    assert "effect_key" in going(run)


def test_every_holder_and_every_class_has_its_words():
    assert set(HOLDERS) == set(NEEDS)
    assert all(set(needs) <= set(CLASSES) for needs in NEEDS.values())
    assert in_words("class:effect_body") == "its data of class effect body is kept"
    assert in_words("legal_hold") == "a legal hold"
    assert "effect_key" not in CLOSES


def test_every_table_that_names_a_run_is_known_to_retention():
    """A table that another part adds is either removed with its run, or keeps the run's row."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND confrelid::regclass::text = ANY(%s)",
            [sorted(OF_A_RUN)],
        )
        naming = {row[0] for row in cursor.fetchall()}
    assert naming - OF_A_RUN == set()


# C118: whoever removes a row makes the database look for what names it, in every table that may.
def test_whatever_names_what_retention_removes_is_found_by_an_index():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.conrelid::regclass::text || '.' || a.attname, i.indpred IS NOT NULL,"
            " pg_get_expr(i.indpred, i.indrelid) = format('(%%I IS NOT NULL)', a.attname)"
            " FROM pg_constraint c"
            " JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]"
            " LEFT JOIN pg_index i ON i.indrelid = c.conrelid AND i.indkey[0] = a.attnum AND i.indisvalid"
            " WHERE c.contype = 'f' AND c.confrelid::regclass::text = ANY(%s)",
            [sorted(OF_A_RUN)],
        )
        rows = cursor.fetchall()
    found = {name for name, partial, of_all in rows if of_all or partial is False}
    missing = {name for name, *_ in rows} - found
    assert len(found) > 20
    assert missing == set()


def test_every_class_says_where_its_data_lies():
    assert {target.data_class for target in TARGETS} == set(CLASSES)
    tables = {model._meta.db_table for model in apps.get_models()}
    assert tables >= OF_A_RUN


def test_step_refuses_a_moment_that_is_not_over():
    with pytest.raises(DataError, match="not over yet"), connection.cursor() as cursor:
        cursor.execute("SELECT runs_retention_step(now() + interval '1 day', true, '-infinity', %s, 10, 10, 'x')", [
            "00000000-0000-0000-0000-000000000000"])  # fmt: skip


@pytest.mark.parametrize("table", ["runs_retention_rule", "runs_cleanup", "runs_erasure", "runs_legal_hold"])
def test_what_was_decided_about_data_is_never_deleted(table):
    run = finished()
    rule("input", 1)
    erase(run)
    hold(run, "run")
    from runs.models import Cleanup

    Cleanup.objects.create(
        data_class="input", kind="x", rule=0, cutoff=now(), reason="policy", runs=1, rows=1, bytes=1, cleaner="t"
    )
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table}")
    if table in ("runs_retention_rule", "runs_cleanup"):
        with pytest.raises(IntegrityError), connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET id = id")


def test_hold_is_lifted_once_and_changes_in_nothing_else():
    hold(finished(), "tenant")
    with pytest.raises(IntegrityError):
        LegalHold.objects.update(reason="another")
    LegalHold.objects.update(lifted_at=now(), lifted_by="ada")
    with pytest.raises(IntegrityError):
        LegalHold.objects.update(lifted_by="eve")


def test_cleaned_run_is_never_reopened_whoever_writes():
    run = finished("failed")
    RunSummary.objects.create(run=run, finished_at=end_of(run), version=1, checkpoints=1, closed_at=now())
    with pytest.raises(IntegrityError) as refused, connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET state = 'queued', due_at = now(), finished_at = NULL WHERE id = %s", [run.pk]
        )
    assert refused.value.__cause__.diag.constraint_name == "run_reopened_only_whole"  # type: ignore[union-attr]


def test_reopened_run_is_nobodys_to_clean():
    run = finished("failed", ago=DAYS)
    Run.objects.filter(pk=run.pk).update(retain_at=now())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_run SET state = 'queued', due_at = now(), finished_at = NULL WHERE id = %s", [run.pk]
        )
    run.refresh_from_db()
    assert run.retain_at is None


def test_application_asks_the_functions_and_deletes_nothing_itself(app_role_url):
    run = finished()
    with psycopg.connect(app_role_url, autocommit=True) as application:
        for statement in ("DELETE FROM runs_event", "SET durableops.retention = 'on'; DELETE FROM runs_checkpoint"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute(statement)
        row = application.execute(
            "SELECT runs_retention_step(now(), true, '-infinity', gen_random_uuid(), 10, 1000, 'app')"
        ).fetchone()
    assert row is not None
    assert not Run.objects.filter(pk=run.pk).exists()
