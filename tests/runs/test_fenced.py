"""The fenced write: all hangs on the run's row, and nothing is written where fence or head are not ours."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from runs import fenced
from runs.fenced import CheckpointRow, FencedWrite
from runs.models import (
    Artifact,
    Checkpoint,
    Decision,
    Doubt,
    IdempotencyRecord,
    LogLine,
    PauseSwitch,
    Receipt,
    Run,
    RunEvent,
    Wait,
)
from runs.states import TRANSITIONS, State
from tests.factories import make_doubt, make_effect, make_run, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def write_for(run: Run, **over: Any) -> FencedWrite:
    values: dict[str, Any] = {
        "run_id": run.pk,
        "fence": run.fence,
        "seq": run.head_seq,
        "worker_id": run.worker_id,
        "step_id": "first",
    }
    return FencedWrite(**(values | over))


@pytest.fixture
def execute(database):
    """Write it through a connection of the engine's kind."""
    return lambda write: database.retrying(lambda cursor: fenced.execute(cursor, write))


def checkpoint(kind: str = "step", **over: Any) -> CheckpointRow:
    values = {"kind": kind, "step_id": "first", "next_step": "second", "state": None}
    return CheckpointRow(**(values | over))


def intent(n: int = 0, **over: Any) -> dict[str, Any]:
    return {
        "n": n, "slot": f"{n:064x}", "key": f"k{n}", "request_hash": "r" * 64, "request_summary": {"a": 1},
        "step_id": "first", "tool": "send", "resource": f"thing-{n}", "author_key": "", "safety": "keyed",
        "scope": "run", "send_seconds": 30.0, "quiet_seconds": 60.0, "window_seconds": None, "remind_seconds": None,
        "escalate_seconds": None,
    } | over  # fmt: skip


def everything() -> dict[str, Any]:
    """One of each thing a holder can say."""
    return {
        "checkpoint": checkpoint(state='{"n":1}', output="7", output_hash="h" * 64),
        "intents": [intent()],
        "records": [
            {
                **{
                    k: v
                    for k, v in intent(1, safety="read").items()
                    if k not in ("n", "send_seconds", "window_seconds")
                },
                "state": "succeeded",
                "result": "1",
                "downstream_id": "",
                "error_class": "",
                "error_message": "",
                "attempts": 1,
            }
        ],
        "decisions": [{"name": "d", "author_key": "", "input_hash": "i" * 64, "result": "1"}],
        "artifacts": [
            {
                "name": "a",
                "data_class": "deliverable",
                "readable_by": "payloads",
                "sealed_with": "",
                "content_type": "text/plain",
                "content_hash": "c" * 64,
                "size_bytes": 3,
                "path": "p",
            }
        ],
        "waits": [
            {
                "kind": "event",
                "name": "go",
                "author_key": "",
                "correlation": "",
                "since": None,
                "due_seconds": None,
                "expires_seconds": 60.0,
                "on_timeout": "raise",
                "turns": 0,
                "question": "",
                "facts": "",
                "facts_hash": "",
            }
        ],
        "events": [{"n": 0, "event": "noted", "reason": "r", "data": {"x": 1}, "moves": False}],
        "logs": [{"n": 0, "at": now().isoformat(), "level": "info", "message": "m", "fields": {}}],
        "progress": (3, 10, "going"),
    }


def rows_of(run: Run) -> dict[str, int]:
    found = (Artifact, Checkpoint, Decision, IdempotencyRecord, LogLine, RunEvent, Wait)
    return {model.__name__: model.objects.filter(run=run).count() for model in found}


def test_everything_is_written_by_one_statement(execute):
    run = make_run(state="running")
    written = execute(write_for(run, **everything()))
    assert written.head_seq == 1
    assert rows_of(run) == {
        "Artifact": 1, "Checkpoint": 2, "Decision": 1, "IdempotencyRecord": 2, "LogLine": 1, "RunEvent": 1, "Wait": 1,
    }  # fmt: skip
    run.refresh_from_db()
    assert (run.head_seq, run.state_seq, run.step_id) == (1, 1, "second")
    assert (run.progress_done, run.progress_total, run.progress_note) == (3, 10, "going")
    assert list(written.intents) == [intent()["slot"]]


STALE = {
    "older fence": {"fence": 0},
    "newer fence": {"fence": 2},
    "older head": {"seq": -1},
    "newer head": {"seq": 1},
}


@pytest.mark.parametrize("how", STALE)
def test_nothing_is_written_where_fence_or_head_do_not_fit(execute, how):  # C019
    run = make_run(state="running")
    before, columns = rows_of(run), Run.objects.filter(pk=run.pk).values().get()
    assert execute(write_for(run, **everything(), **STALE[how])) is None
    assert rows_of(run) == before
    assert Run.objects.filter(pk=run.pk).values().get() == columns


@pytest.mark.parametrize("state", [s for s in State if s is not State.RUNNING])
def test_nothing_is_written_for_a_run_that_does_not_run(execute, state):
    run = make_run(state=state, fence=1)
    before = rows_of(run)
    write = write_for(run, **everything(), worker_id=run.pk)
    assert execute(write) is None
    assert rows_of(run) == before


# A holder also sees its run's deadline pass.
HOLDER_EVENTS = ["time_out"] + [name for name, edge in TRANSITIONS.items() if edge.by == "holder"]


@pytest.mark.parametrize("event", HOLDER_EVENTS)
def test_holder_lets_go_with_each_of_its_events(execute, event):
    run = make_run(state="running")
    moving = [{"n": 0, "event": event, "reason": "", "data": {}, "moves": True}]
    written = execute(write_for(run, transition=event, events=moving))
    run.refresh_from_db()
    assert run.state == written.state == TRANSITIONS[event].target
    row = RunEvent.objects.get(run=run)
    assert (row.event, row.from_state, row.to_state) == (event, "running", run.state)


@pytest.mark.parametrize("event", HOLDER_EVENTS)
def test_accepted_cancel_wins_over_whatever_the_holder_says_after_it(execute, event):  # C013
    run = make_run(state="running", cancel_requested=True)
    moving = [{"n": 0, "event": event, "reason": "", "data": {}, "moves": True}]
    execute(write_for(run, transition=event, events=moving, delay=60.0))
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert run.due_at is None
    assert run.finished_at is not None
    row = RunEvent.objects.get(run=run)
    assert (row.event, row.to_state) == ("stop", "cancelled")


def test_page_cursor_that_is_a_number_never_falls_or_stays(execute):
    run = make_run(state="running", cursor=5)
    for cursor in ("4", "5"):
        page = checkpoint("page", next_step="first", cursor=cursor)
        assert execute(write_for(run, checkpoint=page)) is None
    assert execute(write_for(run, checkpoint=checkpoint("page", next_step="first", cursor="6"))).head_seq == 1


def test_step_commit_clears_the_cursor_and_the_counters_of_its_failures(execute):
    run = make_run(state="running", cursor=5, step_attempts=2, recoveries=3, step_entries=4)
    execute(write_for(run, checkpoint=checkpoint()))
    run.refresh_from_db()
    assert (run.cursor, run.step_attempts, run.recoveries, run.step_entries) == (None, 0, 0, 1)


@pytest.mark.parametrize("stop", ["cancelled", "paused", "deadline", "switch"])
def test_intent_of_what_may_not_be_sent_leaves_no_trace(execute, stop):
    over: Any = {
        "cancelled": {"cancel_requested": True},
        "paused": {"paused": True},
        "deadline": {"deadline_at": now()},
        "switch": {},
    }[stop]
    run = make_run(state="running", **over)
    if stop == "switch":
        PauseSwitch.objects.create(scope="all", actor="a", reason="r")
    written = execute(write_for(run, intents=[intent()]))
    assert not written.may_send
    assert written.intents == {}
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("stop", ["cancel_requested", "paused"])
def test_effect_is_not_sent_again_once_its_run_is_stopped(execute, stop):
    run = make_run(state="running")
    effect = make_effect(run)
    Run.objects.filter(pk=run.pk).update(**{stop: True})
    written = execute(write_for(run, repeats=[effect.pk], repeat_seconds=10.0))
    assert written.repeats == frozenset()
    effect.refresh_from_db()
    assert effect.attempts == 1


def test_repeat_counts_the_attempt_and_moves_the_time_to_send(execute):
    run = make_run(state="running", fence=3)
    effect = make_effect(run, send_before=now())
    written = execute(write_for(run, repeats=[effect.pk], repeat_seconds=10.0))
    assert written.repeats == {effect.pk}
    before = effect.send_before
    effect.refresh_from_db()
    assert effect.attempts == 2
    assert effect.fence == 3
    assert before is not None
    assert effect.send_before is not None
    assert effect.send_before > before


@pytest.mark.parametrize("state", ["succeeded", "refused", "withdrawn", "given_up"])
def test_effect_with_an_outcome_is_not_sent_again(execute, state):
    run = make_run(state="running")
    effect = make_effect(run, state=state)
    assert execute(write_for(run, repeats=[effect.pk], repeat_seconds=1.0)).repeats == frozenset()


@pytest.mark.parametrize(
    ("more", "again"),
    [
        ({}, True),
        ({"window_ends_at": now() + timedelta(hours=1)}, True),
        ({"window_ends_at": now() - timedelta(hours=1)}, False),
        ({"safety": "legacy", "holds_system": True}, False),
    ],
    ids=["never forgets", "remembers", "forgot", "legacy"],
)
def test_doubt_is_answered_by_sending_again_only_where_the_key_is_remembered(execute, more, again):
    run = make_run(state="running")
    effect = make_effect(run, state="in_doubt", **more)
    doubt = make_doubt(effect)
    written = execute(write_for(run, repeats=[effect.pk], repeat_seconds=1.0))
    effect.refresh_from_db()
    doubt.refresh_from_db()
    assert (effect.pk in written.repeats) is again
    assert (effect.state, doubt.settled_as) == (("intended", "sent_again") if again else ("in_doubt", ""))


def outcome(effect: IdempotencyRecord, **over: Any) -> dict[str, Any]:
    return {"id": effect.pk, "state": "succeeded", "result": '"ours"', "downstream_id": "d-1", "reused": 0} | over


def test_outcome_is_written_once(execute):
    run = make_run(state="running")
    effect = make_effect(run)
    execute(write_for(run, outcomes=[outcome(effect)]))
    execute(write_for(run, outcomes=[outcome(effect, state="refused", result='"theirs"')]))
    effect.refresh_from_db()
    assert (effect.state, effect.result, effect.downstream_id) == ("succeeded", '"ours"', "d-1")
    assert effect.completed_at is not None


def test_doubt_is_opened_with_the_effect_that_is_in_doubt_and_told(execute):
    run = make_run(state="running")
    effect = make_effect(run)
    execute(write_for(run, doubts=[{"id": effect.pk, "cause": "window_closed", "why": "too late"}]))
    effect.refresh_from_db()
    assert (effect.state, effect.completed_at, effect.error_class) == ("in_doubt", None, "window_closed")
    doubt = Doubt.objects.get()
    assert (doubt.effect_id, doubt.run_id, doubt.tenant_id) == (effect.pk, run.pk, run.tenant_id)
    assert (doubt.cause, doubt.why, doubt.settled_at) == ("window_closed", "too late", None)
    told = RunEvent.objects.get(run=run)
    assert (told.event, told.data["effect"], told.data["key"]) == ("effect_in_doubt", effect.pk, effect.key)


def left_by(run):
    return {
        "keyed": make_effect(run),
        "answered": make_effect(run),
        "kept": make_effect(run),
        "legacy": make_effect(run, safety="legacy"),
        "waiting": make_effect(run, safety="legacy", state="queued"),
        "message": make_effect(run, safety="outbox", state="queued"),
    }


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ({"transition": "retry_later"}, {"keyed": "intended", "legacy": "in_doubt", "waiting": "queued"}),
        ({"transition": "fail"}, {"keyed": "in_doubt", "legacy": "in_doubt", "waiting": "withdrawn"}),
        ({"checkpoint": "step"}, {"keyed": "in_doubt", "legacy": "in_doubt", "waiting": "withdrawn"}),
    ],
    ids=["comes back", "ends", "goes on"],
)
def test_effects_the_holder_leaves_without_an_outcome_get_one_or_a_doubt(execute, write, expected):
    run = make_run(state="running")
    effects = left_by(run)
    given = dict(write)
    if "checkpoint" in given:
        given["checkpoint"] = checkpoint(kind="step", next_step="second")
    given |= {"outcomes": [outcome(effects["answered"])], "keeps": [effects["kept"].pk]}
    execute(write_for(run, leaves="it was left.", **given))
    found = dict(IdempotencyRecord.objects.values_list("pk", "state"))
    states = {name: found[effect.pk] for name, effect in effects.items()}
    assert states == {**expected, "answered": "succeeded", "kept": "intended", "message": "queued"}
    doubted = set(Doubt.objects.values_list("effect_id", flat=True))
    assert doubted == {effects[name].pk for name, state in expected.items() if state == "in_doubt"}


def test_cancel_that_was_accepted_ends_the_run_and_leaves_its_calls_in_doubt(execute):
    run = make_run(state="running", cancel_requested=True)
    effects = left_by(run)
    written = execute(write_for(run, transition="retry_later", leaves="it was left."))
    assert written.state == "cancelled"
    effects["keyed"].refresh_from_db()
    assert (effects["keyed"].state, effects["keyed"].error_class) == ("in_doubt", "run_ended")


def test_late_outcome_does_not_settle_a_doubt_that_a_person_may_be_settling(execute):
    run = make_run(state="running")
    effect = make_effect(run, state="in_doubt")
    execute(write_for(run, outcomes=[outcome(effect)]))
    effect.refresh_from_db()
    assert effect.state == "in_doubt"


def test_slot_that_is_taken_is_not_intended_again(execute):
    run = make_run(state="running")
    assert len(execute(write_for(run, intents=[intent()])).intents) == 1
    assert execute(write_for(run, intents=[intent(key="other")])).intents == {}
    assert IdempotencyRecord.objects.get().key == "k0"


def test_withdrawn_slot_is_intended_again_with_the_same_request_only(execute):
    run = make_run(state="running")
    execute(write_for(run, intents=[intent()]))
    IdempotencyRecord.objects.update(state="withdrawn", completed_at=now())
    assert execute(write_for(run, intents=[intent(request_hash="x" * 64)])).intents == {}
    assert len(execute(write_for(run, intents=[intent()])).intents) == 1
    effect = IdempotencyRecord.objects.get()
    assert (effect.state, effect.attempts, effect.completed_at) == ("intended", 1, None)


def test_reuse_is_counted_on_the_effect_the_run_and_the_receipt(execute):
    run = make_run(state="running", resumes=1)
    Receipt.objects.create(run=run, number=1, cause="x", step_id="first", fence=1)
    effect = make_effect(run, state="succeeded", result="1")
    execute(write_for(run, outcomes=[{"id": effect.pk, "reused": 2}], reused=2, repeated=1))
    run.refresh_from_db()
    effect.refresh_from_db()
    receipt = Receipt.objects.get(run=run)
    assert (run.effects_avoided, effect.reused) == (2, 2)
    assert (receipt.reused_effects, receipt.repeated_effects) == (2, 1)


def test_hostile_text_travels_as_data(execute):
    run = make_run(state="running")
    text = "'; DROP TABLE runs_run; -- %s %(run)s {may_send} \\u0000 <script>"
    logs = [{"n": 0, "at": now().isoformat(), "level": "info", "message": text, "fields": {text: text}}]
    execute(write_for(run, logs=logs, checkpoint=checkpoint(state=json.dumps({"a": text}), output=json.dumps(text))))
    assert LogLine.objects.get().message == text
    assert json.loads(Checkpoint.objects.get(seq=1).output or "") == text


def test_shapes_are_built_once():
    run = make_run(state="running")
    first, _ = fenced.compile_write(write_for(run, checkpoint=checkpoint()))
    second, _ = fenced.compile_write(write_for(run, checkpoint=checkpoint(output="1")))
    assert first is second
