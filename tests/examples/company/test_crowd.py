"""The company's verdict: it passes when nobody lost anything, and names what is wrong when somebody did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from durableops.upkeep.drills.checks import Checks
from examples.company.crowd import KINDS, Crowd
from examples.demo.desk_client import DeskClient, DeskRequest, DeskTicket
from runs.models import Run, RunEvent
from tests.factories import as_json, make_checkpoint, make_effect, make_run, make_worker

pytestmark = pytest.mark.django_db


@dataclass
class DeskLog:
    """What a desk saw."""

    seen: list[DeskRequest] = field(default_factory=list)
    opened: list[DeskTicket] = field(default_factory=list)

    def requests(self) -> list[DeskRequest]:
        return self.seen

    def tickets(self) -> list[DeskTicket]:
        return self.opened


@pytest.fixture
def desk() -> DeskLog:
    return DeskLog()


@pytest.fixture
def crowd(desk: DeskLog) -> Crowd:
    """A run of each kind with one errand that came through, interrupted by one strike."""
    made, struck = Crowd(name="c"), make_worker(ended="killed")
    made.struck.append(struck.pk)
    for kind in KINDS:
        run = make_run(workflow=kind, state="succeeded", state_json=as_json({"company": "c", "errands": 1}), fence=2)
        make_effect(run, state="succeeded", key=f"key of {kind}", resource=f"{run.pk}/1")
        for event in ("claim", "lose_worker"):
            RunEvent.objects.create(run=run, event=event, fence=1, worker=struck)
        made.runs[run.pk] = kind
        desk.seen.append(DeskRequest(key=f"key of {kind}", outcome="created"))
        desk.opened.append(DeskTicket(key=f"key of {kind}", reference=f"{run.pk}/1"))
    return made


def failed(crowd: Crowd, desk: DeskLog) -> dict[str, str]:
    checks = Checks()
    crowd.judge(checks, cast("DeskClient", desk))
    return {check.name: check.detail for check in checks.made if not check.passed}


def one_of(crowd: Crowd) -> Run:
    return Run.objects.get(pk=next(iter(crowd.runs)))


def test_company_that_lost_nothing_passes_with_its_figures(crowd: Crowd, desk: DeskLog):
    checks = Checks()
    figures: dict[str, Any] = crowd.judge(checks, cast("DeskClient", desk))

    assert [check.name for check in checks.made if not check.passed] == []
    assert figures == {"runs": 2, "interrupted": 2, "errands": 2, "tickets": 2, "repeated_keys": 0}


def test_strike_that_took_only_one_kind_of_company_proves_nothing(crowd: Crowd, desk: DeskLog):
    crowd.runs = dict.fromkeys(crowd.runs, KINDS[0])

    assert set(failed(crowd, desk)) == {"company_was_struck_too"}


def test_company_that_nobody_struck_proves_nothing(crowd: Crowd, desk: DeskLog):
    crowd.struck.clear()

    assert set(failed(crowd, desk)) == {"company_was_struck_too"}


def test_run_that_did_not_come_home_is_named_by_its_state(crowd: Crowd, desk: DeskLog):
    lost = make_run(workflow=KINDS[0], state_json=as_json({"company": "c", "errands": 0}))
    crowd.runs[lost.pk] = KINDS[0]

    assert "'queued': 1" in failed(crowd, desk)["company_succeeded"]


def test_errand_without_its_ticket_is_found(crowd: Crowd, desk: DeskLog):
    desk.opened.pop()

    assert set(failed(crowd, desk)) == {"company_repeats_are_explained", "company_has_no_duplicates"}


def test_second_ticket_of_an_errand_is_found(crowd: Crowd, desk: DeskLog):
    desk.opened.append(desk.opened[0])

    assert set(failed(crowd, desk)) == {"company_repeats_are_explained", "company_has_no_duplicates"}


def test_request_that_came_again_for_no_recorded_reason_is_found(crowd: Crowd, desk: DeskLog):
    desk.seen.append(DeskRequest(key=desk.seen[0].key, outcome="replayed"))

    assert set(failed(crowd, desk)) == {"company_repeats_are_explained"}


def test_request_that_the_desk_turned_away_is_no_repeat(crowd: Crowd, desk: DeskLog):
    desk.seen.append(DeskRequest(key=desk.seen[0].key, outcome="busy"))

    assert failed(crowd, desk) == {}


def test_write_of_another_worker_is_found(crowd: Crowd, desk: DeskLog):
    run, holder = one_of(crowd), make_worker()
    RunEvent.objects.create(run=run, event="claim", fence=2, worker=holder)
    make_checkpoint(run, seq=1, fence=2, worker=make_worker())

    assert "was written by" in failed(crowd, desk)["company_has_one_writer"]
