"""Runs that cannot simply go on: parked once, with the exact finding, untouched, and never tried in a loop."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from durableops import State, step, workflow
from durableops.checkpoints.compatibility import Park
from durableops.engine import commands, findings
from durableops.engine.inbound import send_event
from runs.models import Checkpoint, Review, Run, RunEvent
from tests.runs.version_violations import make_review

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
WHO: dict[str, Any] = {"actor": "rita", "reason": "the code was put right"}


class Order(State):
    number: str = "7"


class OrderWithNote(State):
    number: str = "7"
    note: str = ""


def deploy(own_registry, *steps: str, version: int = 1, state: type[State] = Order, event: str = "") -> None:
    """Replace the code of this process."""
    own_registry.clear()

    def nothing(run: Any) -> None:
        pass

    def wait(run: Any) -> None:
        run.wait_for("parcel" if event == "parcel" else "letter")

    def wait_for_parcel(run: Any) -> None:
        run.wait_for("parcel")

    def wait_for_letter(run: Any) -> None:
        run.wait_for("letter")

    body = {"parcel": wait_for_parcel, "letter": wait_for_letter}.get(event, nothing)
    made = {name: step(id=name)(body if place == 0 else nothing) for place, name in enumerate(steps)}
    workflow(name="order", version=version, state=state)(type("Order", (), made))


def test_run_that_does_not_fit_is_found_once_with_every_difference(engine, own_registry):
    deploy(own_registry, "a", "b")
    run = engine.start("order")
    before = list(Checkpoint.objects.filter(run=run).values())
    deploy(own_registry, "a", "c", version=2, state=OrderWithNote)
    for _ in range(3):
        engine.drain()
        engine.rounds()
    run.refresh_from_db()
    found = Review.objects.get(run=run)
    assert run.state == "in_review"
    assert found.target is not None
    assert (found.code, found.plan_id, found.target.version, found.seq) == ("version_changed", run.plan_id, 2, 0)
    assert [d["kind"] for d in found.differences] == ["version", "field_added", "step_renamed"]
    assert list(Checkpoint.objects.filter(run=run).values()) == before
    assert RunEvent.objects.filter(run=run, event="claim").count() == 1  # C103: no loop


def test_runs_with_the_same_finding_share_its_fingerprint(engine, own_registry):
    deploy(own_registry, "a")
    for _ in range(3):
        engine.start("order")
    deploy(own_registry, "b", version=2)
    engine.drain()
    assert Review.objects.count() == 3
    assert Review.objects.values("fingerprint").distinct().count() == 1


# C104
def test_state_that_cannot_be_decoded_is_found_with_its_path_and_left_as_it_is(engine, own_registry):
    deploy(own_registry, "a")
    run = engine.start("order")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_checkpoint DISABLE TRIGGER runs_checkpoint_immutable")
        cursor.execute("""UPDATE runs_checkpoint SET state = '{"number":7}' WHERE run_id = %s""", [run.pk])
        cursor.execute("ALTER TABLE runs_checkpoint ENABLE TRIGGER runs_checkpoint_immutable")
    engine.drain()
    found = Review.objects.get(run=run)
    assert found.code == "state_unreadable"
    assert "/number" in found.reason
    assert Checkpoint.objects.get(run=run).state == '{"number":7}'


def test_event_that_came_for_a_wait_the_code_no_longer_has_parks_the_run(engine, own_registry):
    deploy(own_registry, "a", event="parcel")
    run = engine.run("order")
    assert run.state == "waiting"
    deploy(own_registry, "a", event="letter")
    send_event("parcel", tenant=engine.tenant, actor="post")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "in_review"
    found = Review.objects.get(run=run)
    assert (found.code, found.differences[0]["subject"]) == ("wait_gone", "a/parcel")
    assert run.waits.get().state == "answered", "what was answered is kept"


def test_recheck_closes_the_finding_and_a_new_one_is_a_new_row(engine, own_registry):
    deploy(own_registry, "a")
    run = engine.start("order")
    deploy(own_registry, "b", version=2)
    engine.drain()
    commands.recheck(run.pk, tenant=engine.tenant, **WHO)
    engine.drain()
    first, second = Review.objects.filter(run=run).order_by("pk")
    assert (first.closed_as, first.closed_by, second.closed_at) == ("rechecked", "rita", None)


# C110
def test_newer_finding_supersedes_the_older_one_and_names_itself(engine):
    old = make_review()
    about = findings.About(
        run_id=old.run_id, tenant_id=old.tenant_id, workflow=old.workflow, plan_id=old.plan_id, target_id=None, seq=0
    )
    park = Park(reason_code="needs_review", reason="somebody should look")
    with transaction.atomic(), connection.cursor() as cursor:
        assert findings.record(cursor, about, park)
        assert not findings.record(cursor, about, park), "found twice, it is one finding"
    old.refresh_from_db()
    newer = Review.objects.get(run=old.run_id, closed_at=None)
    assert (old.closed_as, old.superseded_by_id) == ("superseded", newer.pk)


def test_end_of_a_run_closes_its_finding(engine):
    found = make_review()
    commands.cancel(found.run_id, tenant=found.tenant, **WHO)
    found.refresh_from_db()
    assert (found.closed_as, Run.objects.get(pk=found.run_id).state) == ("ended", "cancelled")


def test_decision_about_a_finding_is_final(engine):
    found = make_review()
    with connection.cursor() as cursor:
        findings.close(cursor, [found.run_id], closed_as="pinned", by="rita")
    with pytest.raises(DatabaseError, match="what was decided is final"):
        Review.objects.filter(pk=found.pk).update(closed_as="migrated")
