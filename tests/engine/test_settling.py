"""Settling: what a person says becomes the outcome, once, and the run goes on with exactly that."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import DoneEffect, EffectGivenUp, Retry, State, step, tool, workflow
from durableops.engine import commands, doubts, settling
from durableops.engine.settlements import Settlement
from durableops.errors import DoubtNotFound, InputRefused, TransitionRefused
from runs.models import AuditEntry, Checkpoint, Compensation, Doubt, IdempotencyRecord, Run, RunEvent, System, Worker
from tests.factories import events_of, make_doubt, make_effect, make_run, make_tenant, make_wait, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ONCE = Retry(max_attempts=1)
WHY: dict[str, Any] = {"actor": "ann", "reason": "asked the bank"}


class Facts(State):
    n: int = 0


def settle(doubt: Doubt, how: str, *, tenant=None, **said: Any):
    who = {key: said.pop(key) for key in ("actor", "reason") if key in said}
    given = Settlement(how=how, has_result="result" in said, **said)
    return settling.settle(doubt.pk, tenant=tenant or doubt.tenant, settlement=given, **(WHY | who))


def quiet(effect: IdempotencyRecord) -> None:
    """Let the time come after which nobody can be sending it any more."""
    IdempotencyRecord.objects.filter(pk=effect.pk).update(quiet_after=now() - timedelta(seconds=1))


@pytest.fixture
def stuck(engine):
    """A run whose call to a legacy system got no answer."""
    calls: list[Any] = []

    @tool(safety="legacy", system="ledger", name="post", resource_id="id", retry=ONCE, instructions="Ring them up.")
    def post(call, *, amount: int):
        calls.append(call.key)
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return {"id": f"L-{len(calls)}", "amount": amount}

    @workflow(name="posting", version=1, state=Facts)
    class Posting:
        @step
        def a(run: Any):
            try:
                return run.call(post, resource="r1", amount=40)
            except EffectGivenUp as given_up:
                return str(given_up)

    run = engine.run("posting")
    assert run.state == "in_doubt"
    run.calls = calls
    return run


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def the(run: Run) -> tuple[Doubt, IdempotencyRecord]:
    doubt = Doubt.objects.select_related("effect", "tenant").get(run=run)
    return doubt, doubt.effect


def test_it_happened_with_its_id_and_result_and_the_step_gets_that(engine, stuck):
    doubt, effect = the(stuck)
    done = settle(doubt, "happened", downstream_id="L-7", result={"id": "L-7", "amount": 40}, evidence="statement 3")
    assert done.state == "queued"
    engine.drain()
    stuck.refresh_from_db()
    assert (stuck.state, output(stuck)) == ("succeeded", {"id": "L-7", "amount": 40})
    assert len(stuck.calls) == 1
    effect.refresh_from_db()
    assert (effect.state, effect.downstream_id, effect.holds_system) == ("succeeded", "L-7", False)
    assert (effect.error_class, effect.reused) == ("", 1)
    doubt.refresh_from_db()
    assert (doubt.settled_as, doubt.settled_by, doubt.evidence) == ("happened", "ann", "statement 3")
    assert stuck.wake_cause == "settled"


def test_id_alone_makes_the_result_that_names_it(engine, stuck):
    doubt, _ = the(stuck)
    settle(doubt, "happened", downstream_id=" L-7 ")
    engine.drain()
    assert output(stuck) == {"id": "L-7"}


def test_it_did_not_happen_and_is_sent_again_with_the_old_key(engine, stuck):
    doubt, effect = the(stuck)
    quiet(effect)
    settle(doubt, "did_not", evidence="not on their list")
    engine.drain()
    stuck.refresh_from_db()
    assert (stuck.state, output(stuck)["id"]) == ("succeeded", "L-2")
    assert len(set(stuck.calls)) == 1
    effect.refresh_from_db()
    assert (effect.state, effect.attempts) == ("succeeded", 2)


def test_did_not_is_refused_while_somebody_may_still_be_sending_it(engine, stuck):
    doubt, effect = the(stuck)
    with pytest.raises(TransitionRefused, match="may send it or wait for its answer for another"):
        settle(doubt, "did_not")
    effect.refresh_from_db()
    assert effect.state == "in_doubt"
    assert AuditEntry.objects.get().verb == "settle (refused)"
    Worker.objects.filter(pk=engine.worker.id).update(gone=True)
    assert settle(doubt, "did_not").settled


def test_worker_that_only_fell_silent_may_still_be_sending(engine, stuck):
    doubt, _ = the(stuck)
    Worker.objects.filter(pk=engine.worker.id).update(ended_at=now(), ended_why="its counter stood still")
    with pytest.raises(TransitionRefused):
        settle(doubt, "did_not")


def test_given_up_is_an_error_the_step_may_handle(engine, stuck):
    doubt, effect = the(stuck)
    settle(doubt, "give_up", reason="they never answer")
    engine.drain()
    stuck.refresh_from_db()
    assert stuck.state == "succeeded"
    assert "ann: they never answer" in output(stuck)
    effect.refresh_from_db()
    assert (effect.state, effect.holds_system, effect.result) == ("given_up", False, None)


def test_given_up_fails_a_step_that_does_not_handle_it_without_a_retry(engine):
    @tool(safety="legacy", name="post", retry=ONCE)
    def post(call):
        raise TimeoutError("no answer")

    @workflow(name="posting", version=1, state=Facts)
    class Posting:
        @step
        def a(run: Any):
            run.call(post, resource="r1")

    run = engine.run("posting")
    settle(the(run)[0], "give_up")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.error_class, run.step_attempts) == ("failed", "durableops.errors.EffectGivenUp", 1)


def test_to_be_undone_is_owed_and_the_step_hears_that_it_was_given_up(engine, stuck):
    doubt, effect = the(stuck)
    settle(doubt, "compensate", downstream_id="L-7")
    owed = Compensation.objects.get()
    assert (owed.effect_id, owed.state, owed.instructions) == (effect.pk, "owed", "Ring them up.")
    engine.drain()
    effect.refresh_from_db()
    stuck.refresh_from_db()
    assert (stuck.state, effect.state, effect.downstream_id) == ("succeeded", "given_up", "L-7")
    assert DoneEffect is not None


def test_each_settlement_is_an_event_and_an_audit_entry_without_the_result(engine, stuck):
    doubt, effect = the(stuck)
    settle(doubt, "happened", downstream_id="L-7", result={"id": "L-7", "iban": "DE-secret"})
    event = RunEvent.objects.get(run=stuck, event="settle", from_state="")
    assert (event.actor, event.reason, event.data["as"]) == ("ann", "asked the bank", "happened")
    assert (event.data["effect"], event.data["doubt"]) == (effect.pk, doubt.pk)
    entry = AuditEntry.objects.get(verb="settle")
    assert (entry.actor, entry.target_id, entry.before["state"]) == ("ann", str(stuck.pk), "in_doubt")
    assert "DE-secret" not in json.dumps([event.data, entry.before, entry.after])


def test_second_settlement_is_refused_and_says_what_happened(engine, stuck):
    doubt, _ = the(stuck)
    settle(doubt, "happened", downstream_id="L-7")
    with pytest.raises(TransitionRefused, match="settled as happened by ann"):
        settle(doubt, "give_up", actor="bob")
    assert Doubt.objects.get().settled_as == "happened"
    assert AuditEntry.objects.filter(verb="settle (refused)", actor="bob").exists()


def test_run_goes_on_only_when_the_last_doubt_of_its_step_is_settled(engine):
    @tool(safety="keyed", name="send", key_window=timedelta(microseconds=1), retry=ONCE)
    def send(call):
        raise TimeoutError("no answer")

    @workflow(name="sending", version=1, state=Facts)
    class Sending:
        @step(retry=Retry(max_attempts=2, first_delay=0))
        def a(run: Any):
            return [r["n"] for r in run.call_many(send, [{"resource": f"r{n}"} for n in range(3)])]

    run = engine.run("sending")
    assert run.state == "in_doubt"
    found = list(Doubt.objects.select_related("effect", "tenant").order_by("id"))
    states = []
    for n, doubt in enumerate(found):
        settle(doubt, "happened", result={"n": n})
        run.refresh_from_db()
        states.append(run.state)
    assert states == ["in_doubt", "in_doubt", "queued"]
    engine.drain()
    assert output(run) == [0, 1, 2]


def test_run_in_doubt_that_was_paused_stays_paused_when_it_is_settled(engine, stuck):
    commands.pause(stuck.pk, tenant=engine.tenant, actor="bob", reason="wait")
    settle(the(stuck)[0], "happened", result=1)
    engine.drain()
    stuck.refresh_from_db()
    assert (stuck.state, stuck.paused) == ("queued", True)


def test_doubt_of_a_cancelled_run_stays_and_can_be_settled(engine, stuck):
    commands.cancel(stuck.pk, tenant=engine.tenant, actor="bob", reason="no more")
    doubt, effect = the(stuck)
    assert doubt.settled_at is None
    quiet(effect)
    assert settle(doubt, "did_not").state == "cancelled"
    effect.refresh_from_db()
    assert (effect.state, effect.holds_system) == ("withdrawn", False)


def test_settling_lets_the_next_call_go_to_its_system(engine, stuck):
    waiting = engine.run("posting")
    assert waiting.state == "waiting"
    settle(the(stuck)[0], "give_up")
    engine.drain()
    waiting.refresh_from_db()
    assert waiting.state == "succeeded"


def test_release_lets_the_queue_go_on_and_the_doubt_stays_open(engine, stuck):
    waiting = engine.run("posting")
    doubt, effect = the(stuck)
    done = settling.release(doubt.pk, tenant=engine.tenant, **WHY)
    assert "ledger" in done.message
    engine.drain()
    waiting.refresh_from_db()
    effect.refresh_from_db()
    doubt.refresh_from_db()
    assert (waiting.state, effect.state, effect.holds_system) == ("succeeded", "in_doubt", False)
    assert (doubt.settled_at, doubt.released_by) == (None, "ann")
    assert "release_system" in events_of(stuck)
    with pytest.raises(TransitionRefused):
        settling.release(doubt.pk, tenant=engine.tenant, **WHY)


def test_doubt_that_was_released_settles_like_any_other(engine, stuck):
    doubt, _ = the(stuck)
    settling.release(doubt.pk, tenant=engine.tenant, **WHY)
    System.objects.update(paused=True, paused_by="bob", paused_at=now())
    settle(doubt, "happened", downstream_id="L-1")
    engine.drain()
    stuck.refresh_from_db()
    assert stuck.state == "succeeded"


@pytest.mark.parametrize(
    ("how", "said", "path"),
    [
        ("perhaps", {}, "/how"),
        ("happened", {"downstream_id": "x" * 256}, "/downstream_id"),
        ("happened", {"downstream_id": "a\nb"}, "/downstream_id"),
        ("happened", {"evidence": "x" * 2001}, "/evidence"),
        ("happened", {"result": float("nan")}, "/result"),
        ("happened", {"result": {"a": 2**60}}, "/result/a"),
        ("happened", {"result": "x" * (1024 * 1024 + 1)}, "/result"),
        ("did_not", {"result": 1}, "/result"),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_changes_nothing(engine, stuck, how, said, path):
    doubt, effect = the(stuck)
    with pytest.raises(InputRefused) as refused:
        settle(doubt, how, **said)
    assert refused.value.path == path
    effect.refresh_from_db()
    assert effect.state == "in_doubt"


def test_doubt_of_another_tenant_is_not_found(engine, stuck):  # C143
    for verb in (settling.release, doubts.claim):
        with pytest.raises(DoubtNotFound):
            verb(the(stuck)[0].pk, tenant=make_tenant("other"), **WHY)
    with pytest.raises(DoubtNotFound):
        settle(the(stuck)[0], "give_up", tenant=make_tenant("other"))


def test_settled_doubt_of_the_engines_own_making_is_not_settled_by_hand(engine):
    effect = make_effect(make_run(state="running", worker=make_worker()), state="intended")
    doubt = make_doubt(effect, settled_at=now(), settled_as="sent_again", settled_by="engine")
    with pytest.raises(TransitionRefused, match="sent again by engine"):
        settle(doubt, "happened")


def test_runs_that_ask_for_the_same_thing_are_woken_by_its_settlement(engine):
    effect = make_effect(make_run(state="in_doubt"), state="in_doubt", scope="tenant")
    asker = make_run(state="waiting")
    make_wait(asker, kind="turn", name=effect.tool, correlation=f"effect:{effect.pk}")
    other = make_run(state="waiting")
    make_wait(other, kind="turn", name=effect.tool, correlation="effect:1")
    settle(make_doubt(effect), "happened", result=1)
    assert [Run.objects.get(pk=run.pk).state for run in (asker, other)] == ["queued", "waiting"]


@pytest.mark.parametrize("how", ["happened", "did_not", "compensate", "give_up"])
def test_nothing_is_said_of_a_call_that_a_worker_left_for_dead_may_still_send(tenant, clean_queue, how):
    soon = now() + timedelta(minutes=1)
    run = make_run(state="in_doubt")
    effect = make_effect(run, state="in_doubt", send_before=soon, quiet_after=soon + timedelta(minutes=1))
    doubt = make_doubt(effect, cause="worker_lost")
    with pytest.raises(TransitionRefused, match=r"may (still )?send it"):
        settle(doubt, how)
    past = now() - timedelta(seconds=1)
    IdempotencyRecord.objects.update(send_before=past, quiet_after=past)
    settle(doubt, how)
    told = make_doubt(make_effect(run, state="in_doubt", send_before=soon, quiet_after=past), cause="call_timeout")
    settle(told, how)
