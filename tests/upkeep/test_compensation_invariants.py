"""The invariants of compensation: a healthy history passes, and each fails once its record is broken by hand."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Refused, Retry, State, step, tool, workflow
from durableops.engine import commands
from durableops.engine.compensation import undoing
from durableops.engine.database import Database
from durableops.upkeep.invariants import compensation
from durableops.upkeep.invariants.report import CHECKS, Report, examine
from runs.models import Compensation
from tests.upkeep.breaking import broken_by, guards_off
from tests.upkeep.compensation_breaks import BREAKS

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Facts(State):
    n: int = 0


@pytest.fixture
def undone_half_way(engine) -> None:
    """Three effects of a cancelled run: the newest undone, the next one failed, the oldest not begun."""
    undoing.install()

    @tool(safety="keyed", retry=Retry(max_attempts=1))
    def refund(call, *, downstream_id: str):
        if call.resource == "b":
            raise Refused("no")
        return {}

    @tool(safety="keyed", compensate=refund)
    def charge(call):
        return {}

    @workflow(name="shop", version=1, state=Facts)
    class Shop:
        @step
        def act(run: Any):
            for name in "abc":
                run.call(charge, resource=name)
            run.approval("go on")

    run = engine.run("shop")
    commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="wrong", done="compensate")
    engine.drain()
    assert list(Compensation.objects.order_by("-effect_id").values_list("state", flat=True)) == [
        "done", "failed", "approved"
    ]  # fmt: skip


def look() -> Report:
    database = Database(name="test invariants")
    try:
        return examine(database, checks=compensation.CHECKS, grace_seconds=0.0)
    finally:
        database.close()


def test_compensation_half_way_breaks_nothing(undone_half_way):
    assert [finding.sample for finding in look().broken] == []


def test_each_check_fails_once_its_record_is_broken(undone_half_way, subtests):
    with guards_off():
        for name, statements in BREAKS:
            with subtests.test(name, statements=statements):
                assert name in broken_by(statements, compensation.CHECKS, grace_seconds=0.0)
    assert look().passed


def test_every_check_is_broken_and_is_made_with_all_others():
    assert {name for name, _ in BREAKS} == {check.name for check in compensation.CHECKS}
    assert set(compensation.CHECKS) <= set(CHECKS)
