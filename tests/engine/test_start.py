"""Starting: one run for one key, everything checked before anything is written, bells after the commit."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from durableops import State, step, workflow
from durableops.conf import override_conf
from durableops.engine import bell
from durableops.engine.start import start
from durableops.errors import InputRefused, StartConflict, WorkflowNotFound
from runs.models import Checkpoint, Run, RunEvent, WorkflowPlan
from tests.factories import make_tenant, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Given(State):
    n: int = 0
    text: str = ""
    rows: list[int] = []
    more: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def one(own_registry, clean_queue):
    for version in (1, 2):

        @workflow(name="one", version=version, state=Given, deadline=timedelta(hours=1), max_recoveries=4)
        class One:
            @step
            def first(run: Any):
                pass


@pytest.fixture
def begin(tenant):
    def begin(given: Any = None, **options: Any):
        return start(
            options.pop("workflow", "one"), given if given is not None else {}, tenant=tenant, actor="ann", **options
        )

    return begin


def nothing_was_written() -> bool:
    return not (Run.objects.exists() or Checkpoint.objects.exists() or RunEvent.objects.exists())


def test_start_writes_the_run_its_first_checkpoint_and_its_first_event(begin, tenant):
    started = begin({"n": 3}, labels={"who": "x"}, priority=7)
    run = Run.objects.get()
    assert (started.run_id, started.created) == (run.pk, True)
    assert (run.state, run.step_id, run.priority, run.labels, run.created_by) == (
        "queued",
        "first",
        7,
        {"who": "x"},
        "ann",
    )
    assert (run.max_recoveries, run.version, run.fence) == (4, 2, 0)
    assert run.deadline_at is not None
    assert run.deadline_at - run.created_at == timedelta(hours=1)
    assert json.loads(Checkpoint.objects.get().state or "")["n"] == 3
    event = RunEvent.objects.get()
    assert (event.event, event.to_state, event.actor) == ("start", "queued", "ann")


def test_same_key_and_input_is_the_same_run(begin):
    first, second = begin({"n": 1}, start_key="k"), begin({"n": 1}, start_key="k")
    assert (first.run_id, first.created, second.created) == (second.run_id, True, False)
    assert Run.objects.count() == 1


def test_same_input_in_other_words_is_the_same_run(begin):
    first = begin({"n": 1, "text": "a"}, start_key="k")
    assert begin({"text": "a", "n": 1}, start_key="k").run_id == first.run_id


def test_same_key_with_another_input_or_workflow_is_a_conflict(begin):
    begin({"n": 1}, start_key="k")
    with pytest.raises(StartConflict, match="another input"):
        begin({"n": 2}, start_key="k")
    assert Run.objects.count() == 1


def test_key_outlives_the_run(begin):  # C122
    first = begin({"n": 1}, start_key="k")
    Run.objects.update(state="succeeded", due_at=None, finished_at=now())
    assert begin({"n": 1}, start_key="k").run_id == first.run_id


def test_keys_are_compared_byte_for_byte(begin):
    for key in ("k", "K", "k1", "ｋ", "é", "e\u0301"):
        assert begin(start_key=key).created


def test_refused_input_does_not_take_its_key(begin):  # C029
    with pytest.raises(InputRefused):
        begin({"n": "many"}, start_key="k")
    assert begin({"n": 1}, start_key="k").created


def test_without_a_key_every_request_is_a_run(begin):
    assert begin().run_id != begin().run_id


def test_version_can_be_chosen_and_the_newest_is_the_default(begin):
    begin(version=1)
    begin()
    assert sorted(run.version for run in Run.objects.all()) == [1, 2]
    begin()
    assert WorkflowPlan.objects.count() == 2


def test_start_in_the_future_waits_and_in_the_past_is_due_now(begin):  # C073
    later = begin(start_at=now() + timedelta(hours=5)).run_id
    past = begin(start_at=now() - timedelta(hours=1)).run_id
    assert Run.objects.filter(pk=later, due_at__gt=now() + timedelta(hours=4)).exists()
    assert Run.objects.filter(pk=past, due_at__lte=now()).exists()


def test_start_inside_a_transaction_that_is_rolled_back_leaves_nothing_and_rings_no_bell(begin, monkeypatch):
    rung = []
    monkeypatch.setattr(bell, "ring", lambda *a: rung.append(1))
    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
        begin()
        raise ZeroDivisionError
    assert nothing_was_written()
    assert rung == []
    begin()
    assert rung == [1]


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


BAD_INPUT = {
    "no object": [1],
    "null": None,
    "text": "x",
    "wrong type": {"n": "many"},
    "unknown field": {"m": 1},
    "nul": {"text": "a\0b"},
    "nul in a key": {"more": {"a\0": 1}},
    "lone surrogate": {"text": "\ud800"},
    "nan": {"more": {"a": float("nan")}},
    "infinity": {"more": {"a": float("inf")}},
    "minus infinity": {"more": {"a": float("-inf")}},
    "too great an integer": {"n": 2**53 + 1},
    "too small an integer": {"more": {"a": -(2**53) - 1}},
    "a thousand levels": {"more": {"a": deep(1000)}},
    "a hundred thousand levels": {"more": {"a": deep(100_000)}},
    "too large": {"text": "x" * (1024 * 1024 + 1)},
    "no JSON": {"more": {"a": object()}},
    "bytes": {"more": {"a": b"x"}},
    "keys that are no text": {"more": {1: 2}},
}


@pytest.mark.parametrize("what", BAD_INPUT)
def test_bad_input_is_refused_with_a_sentence_and_nothing_is_written(tenant, what):
    with pytest.raises(InputRefused) as refused:
        start("one", BAD_INPUT[what], tenant=tenant, actor="a", start_key="k")
    assert len(refused.value.detail) > 20
    assert len(refused.value.detail) < 2000
    assert nothing_was_written()


def test_refusal_names_the_place(begin):
    with pytest.raises(InputRefused) as refused:
        begin({"rows": [1, "two", 3]})
    assert refused.value.path == "/rows/1"


@pytest.mark.parametrize("n", [2**53 - 1, -(2**53) + 1, 0])
def test_integers_up_to_the_limit_are_accepted(begin, n):
    run_id = begin({"n": n}).run_id
    assert json.loads(Checkpoint.objects.get(run_id=run_id).state or "")["n"] == n


def test_limit_of_the_input_can_be_turned(begin):
    with override_conf(payload_max_bytes=100), pytest.raises(InputRefused):
        begin({"text": "x" * 101})
    with override_conf(payload_max_bytes=4 * 1024 * 1024):
        assert begin({"text": "x" * (2 * 1024 * 1024)}).created


@pytest.mark.parametrize(
    "key", ["", " ", " k", "k ", "a\nb", "a\0b", "\ud800", "k" * 256, "é" * 128, "k" * 10_000], ids=repr
)
@pytest.mark.parametrize("where", ["start_key", "label name", "label value"])
def test_bad_key_or_label_is_refused_and_nothing_is_written(begin, where, key):
    options = {
        "start_key": {"start_key": key},
        "label name": {"labels": {key: "x"}},
        "label value": {"labels": {"x": key}},
    }[where]
    with pytest.raises(InputRefused):
        begin(**options)
    assert nothing_was_written()


def test_too_many_labels_and_labels_that_are_no_text_are_refused(begin):
    with pytest.raises(InputRefused, match="21 labels"):
        begin(labels={str(n): "x" for n in range(21)})
    with pytest.raises(InputRefused, match="is not text"):
        begin(labels={"a": 1})
    assert nothing_was_written()


@pytest.mark.parametrize("priority", [101, -101, 10**9])
def test_senseless_priority_is_refused(begin, priority):
    with pytest.raises(InputRefused, match="priority"):
        begin(priority=priority)
    assert nothing_was_written()


@pytest.mark.parametrize("name", ["two", "", "one ", "ONE", "a\0b", "x" * 10_000])
def test_unknown_workflow_is_refused_and_nothing_is_written(begin, name):
    with pytest.raises(WorkflowNotFound):
        begin(workflow=name)
    assert nothing_was_written()


def test_unknown_version_is_refused_and_the_known_ones_are_named(begin):
    with pytest.raises(WorkflowNotFound, match="1, 2"):
        begin(version=3)


def test_tenants_do_not_share_start_keys(begin):
    begin(start_key="k")
    assert start("one", {}, tenant=make_tenant("other"), actor="a", start_key="k").created


def test_refused_start_does_not_break_the_callers_transaction(begin):
    begin({"n": 1}, start_key="k")
    with transaction.atomic():
        assert not begin({"n": 1}, start_key="k").created
        with pytest.raises(StartConflict):
            begin({"n": 2}, start_key="k")
        assert Run.objects.count() == 1
    assert not connection.in_atomic_block
