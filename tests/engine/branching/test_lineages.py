"""Going back: a new lineage of the same run reuses what earlier ones did."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import Fatal, Page, Refused, Retry, State, step, tool, workflow
from durableops.engine import branching, commands, compensating
from durableops.engine.compensation import undoing
from durableops.engine.inbound import send_event
from durableops.errors import RunNotFound, TransitionRefused
from runs.models import AuditEntry, Checkpoint, Decision, IdempotencyRecord, Run, RunEvent, Wait
from runs.states import REOPENABLE
from runs.states import State as RunState
from tests.engine.branching.conftest import ONCE, WHY, back, invariants_hold, plan
from tests.factories import make_checkpoint, make_effect, make_run, make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_new_lineage_reuses_calls_and_decisions_and_reads_again(engine, seen, trip):
    run = engine.run(trip)
    assert (run.state, run.head_seq, run.lineage) == ("failed", 2, 1)
    seen.fail = False
    done = back(run, 1)
    assert done.state == "queued"
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.lineage, run.head_seq) == ("succeeded", 2, 5)
    assert seen.of("book") == ["hotel", "flight", "car"]
    assert seen.of("note") == ["diary"]
    assert seen.of("look") == ["sky", "sky"]
    assert seen.decided == [7]
    assert Decision.objects.filter(run=run).count() == 1
    assert IdempotencyRecord.objects.filter(run=run, tool="book").count() == 3
    state = json.loads(branching.state_text(run, Checkpoint.objects.get(run=run, seq=5)))
    assert state == {"n": 3, "looks": [2], "chosen": 8}
    invariants_hold()


def test_lineage_begins_with_a_checkpoint_of_its_own_and_no_row_is_changed(engine, seen, trip):
    run = engine.run(trip)
    before = list(Checkpoint.objects.filter(run=run).order_by("seq").values())
    back(run, 1)
    rows = list(Checkpoint.objects.filter(run=run).order_by("seq").values())
    assert rows[:3] == before
    branch = Checkpoint.objects.get(run=run, seq=3)
    assert (branch.kind, branch.lineage, branch.next_step, branch.state, branch.state_seq) == (
        "branch", 2, "second", None, 1,
    )  # fmt: skip
    assert branch.effects_through == before[1]["effects_through"]
    run.refresh_from_db()
    assert (run.step_id, run.state_seq, run.error_class, run.wake_cause) == ("second", 1, "", "retry_from")
    event = RunEvent.objects.get(run=run, event="branch")
    assert (event.actor, event.reason, event.from_state, event.to_state) == ("ann", "again", "failed", "queued")
    assert (event.data["checkpoint"], event.data["lineage"]) == (1, 2)
    entry = AuditEntry.objects.get(verb="retry_from")
    assert (entry.before, entry.after["lineage"]) == ({"state": "failed", "lineage": 1, "head_seq": 2}, 2)


def test_start_of_the_run_is_a_checkpoint_too(engine, seen, trip):
    run = engine.run(trip)
    seen.fail = False
    back(run, 0)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert seen.of("book") == ["hotel", "flight", "car"]
    invariants_hold()


def test_several_lineages_follow_each_other(engine, seen, trip):
    run = engine.run(trip)
    for seq, lineage in ((1, 2), (0, 3), (2, 4)):
        back(run, seq)
        engine.drain()
        run.refresh_from_db()
        assert (run.state, run.lineage) == ("failed", lineage)
    seen.fail = False
    back(run, 4)  # a checkpoint of the second lineage
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.lineage) == ("succeeded", 5)
    assert seen.of("book") == ["hotel", "flight", "car"]
    invariants_hold()


def test_worker_lost_in_a_later_lineage_goes_on_in_it(engine, seen, trip):
    run = engine.run(trip)
    back(run, 1)
    lost = [False]

    def lose() -> None:
        if not lost[0]:
            lost[0] = True
            engine.lose_worker()

    seen.on_call = lose
    seen.fail = False
    engine.drain()
    engine.drain()  # by the worker that took the lost one's place
    run.refresh_from_db()
    assert (run.state, run.lineage, seen.of("book")) == ("succeeded", 2, ["hotel", "flight", "car"])


def test_pages_begin_again_at_the_cursor_and_their_calls_are_reused_in_any_order(engine, seen):
    order = ["a", "b", "c", "d"]
    fail = [True]

    @tool(safety="keyed", name="put")
    def put(call):
        seen.calls.append(("put", call.resource))
        return {}

    class PagesState(State):
        done: int = 0

    def read(at: int) -> Page | None:
        rows = order[at : at + 2]
        return Page(items=rows, next_cursor=at + 2) if rows else None

    @workflow(name="pages", version=1, state=PagesState)
    class Pages:
        @step(retry=ONCE)
        def all(run: Any):
            for rows in run.pages(read, start=0):
                run.call_many(put, [{"resource": row} for row in rows])
                run.state.done += len(rows)
            if fail[0]:
                raise Fatal("no")

    run = engine.run("pages")
    assert (run.state, run.head_seq) == ("failed", 2)
    fail[0] = False
    order[:] = ["d", "c", "b", "a", "e"]  # rows come in another order now
    back(run, 0)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded", run.error_message
    assert sorted(seen.of("put")) == ["a", "b", "c", "d", "e"]
    invariants_hold()
    assert json.loads(branching.state_text(run, Checkpoint.objects.get(run=run, seq=run.head_seq))) == {"done": 5}


def test_checkpoint_between_two_pages_is_gone_back_to(engine, seen):
    fail, asked = [True], []

    class PagesState(State):
        done: int = 0

    @workflow(name="pages", version=1, state=PagesState)
    class Pages:
        @step(retry=ONCE)
        def all(run: Any):
            answer = run.approval("may I")
            asked.append(answer.by)
            for rows in run.pages(lambda at: Page(items=[at], next_cursor=at + 1) if at < 3 else None, start=0):
                run.state.done += len(rows)
            if fail[0]:
                raise Fatal("no")

    run = engine.run("pages")
    commands.approve(Wait.objects.get(run=run).pk, tenant=run.tenant, actor="bob")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.head_seq) == ("failed", 3)
    fail[0] = False
    back(run, 1)
    engine.drain()
    run.refresh_from_db()
    # What the step had asked before that page stays answered.
    assert (run.state, asked) == ("succeeded", ["bob", "bob", "bob"][: len(asked)])
    assert json.loads(branching.state_text(run, Checkpoint.objects.get(run=run, seq=run.head_seq))) == {"done": 3}
    assert Wait.objects.filter(run=run, state="open").count() == 0
    invariants_hold()


class Plain(State):
    n: int = 0
    heard: list[int] = []


@pytest.fixture
def listener(engine) -> str:
    """Hears two news in two steps, asks, and fails."""

    @workflow(name="listener", version=1, state=Plain)
    class Listener:
        @step(retry=ONCE)
        def one(run: Any):
            run.state.heard = [*run.state.heard, run.wait_for("news")["n"]]

        @step(retry=ONCE)
        def two(run: Any):
            run.state.heard = [*run.state.heard, run.wait_for("news")["n"]]

        @step(retry=ONCE)
        def three(run: Any):
            run.approval("go on")
            raise Fatal("no")

    return "listener"


def hear(engine: Any, *numbers: int) -> None:
    for n in numbers:
        send_event("news", tenant=engine.tenant, actor="desk", payload={"n": n})
        engine.drain()


def heard(run: Run) -> list[int]:
    run.refresh_from_db()
    found: list[int] = json.loads(branching.state_text(run, Checkpoint.objects.get(run=run, seq=run.head_seq)))["heard"]
    return found


def test_events_answer_again_and_each_only_the_wait_it_belongs_to(engine, listener):
    run = engine.run(listener)
    hear(engine, 1, 2)
    assert (run.waits.filter(state="open").get().kind, heard(run)) == ("approval", [1, 2])
    back(run, 1)
    engine.drain()
    assert heard(run) == [1, 2]
    assert plan(run, seq=1).waits == {"event": 1, "approval": 1}
    back(run, 0)
    engine.drain()
    assert heard(run) == [1, 2]
    assert Wait.objects.filter(run=run, state="open", kind="approval", lineage=3).count() == 1
    invariants_hold()


def test_open_questions_of_the_old_lineage_are_closed_and_asked_again(engine, listener):
    run = engine.run(listener)
    hear(engine, 1, 2)
    old = run.waits.get(kind="approval")
    back(run, 2)
    old.refresh_from_db()
    assert old.state == "cancelled"
    with pytest.raises(TransitionRefused):
        commands.approve(old.pk, tenant=run.tenant, actor="bob")
    engine.drain()
    fresh = run.waits.get(kind="approval", state="open")
    assert (fresh.lineage, fresh.pk != old.pk) == (2, True)
    run.refresh_from_db()
    assert run.state == "waiting"


def test_child_runs_are_kept_and_not_started_again(engine, seen):
    @tool(safety="keyed", name="put")
    def put(call):
        seen.calls.append(("put", call.resource))
        return {}

    @workflow(name="kid", version=1, state=Plain)
    class Kid:
        @step
        def work(run: Any):
            run.call(put, resource=f"kid {run.state.n}")
            return run.state.n

    fail = [True]

    @workflow(name="parent", version=1, state=Plain)
    class Parent:
        @step
        def before(run: Any):
            pass

        @step(retry=ONCE)
        def family(run: Any):
            run.state.heard = [child.result for child in run.children("kid", [{"n": 1}, {"n": 2}])]

        @step(retry=ONCE)
        def after(run: Any):
            if fail[0]:
                raise Fatal("no")

    run = engine.go_on(engine.run("parent"))
    assert (run.state, sorted(seen.of("put"))) == ("failed", ["kid 1", "kid 2"])
    fail[0] = False
    assert plan(run, seq=1).waits == {"children": 1}
    back(run, 1)
    engine.drain()
    assert heard(run) == [1, 2]
    assert (run.state, sorted(seen.of("put"))) == ("succeeded", ["kid 1", "kid 2"])
    assert Run.objects.filter(parent=run).count() == 2
    invariants_hold()


@pytest.mark.parametrize("state", RunState)
def test_only_runs_in_nobodys_hand_that_may_be_reopened_go_back(tenant, clean_queue, state):
    run = make_run(state=state, tenant=tenant, head_seq=1)
    legal = REOPENABLE | {"queued", "waiting", "in_doubt", "in_review"}
    if state in legal:
        assert back(run, 0).state == "queued"
        run.refresh_from_db()
        assert (run.state, run.lineage, run.head_seq) == ("queued", 2, 2)
        return
    with pytest.raises(TransitionRefused, match="Nothing was changed"):
        back(run, 0)
    run.refresh_from_db()
    assert (run.state, run.lineage, run.head_seq) == (state, 1, 1)
    assert AuditEntry.objects.get().verb == "retry_from (refused)"


@pytest.mark.parametrize("seq", [-1, 7, 10**9])
def test_checkpoint_that_does_not_exist_is_refused(tenant, seq):
    run = make_run(state="failed", tenant=tenant)
    with pytest.raises(TransitionRefused, match="a checkpoint that a step follows"):
        back(run, seq)


def test_finish_is_no_place_to_go_back_to(tenant):
    run = make_run(state="failed", tenant=tenant, head_seq=1)
    make_checkpoint(run, seq=2, kind="finish", next_step="")
    with pytest.raises(TransitionRefused, match="a checkpoint that a step follows"):
        back(run, 2)


def test_run_of_another_tenant_is_not_found(tenant):  # C143
    run = make_run(state="failed", tenant=tenant)
    for verb, more in ((branching.retry_from, {}), (branching.fork, {"once": "a"})):
        with pytest.raises(RunNotFound):
            verb(run.pk, tenant=make_tenant("other"), seq=0, plan_hash=None, **WHY, **more)


def test_run_that_was_asked_to_stop_or_is_past_its_deadline_does_not_go_back(tenant, clean_queue):
    stopping = make_run(state="waiting", tenant=tenant, cancel_requested=True, cancel_requested_by="bob")
    with pytest.raises(TransitionRefused, match="nobody asked to stop"):
        back(stopping, 0)
    late = make_run(state="timed_out", tenant=tenant)
    Run.objects.filter(pk=late.pk).update(deadline_at=late.created_at - timedelta(hours=1))
    with pytest.raises(TransitionRefused, match="a deadline in the future"):
        back(late, 0)
    back(late, 0, deadline_at=late.created_at + timedelta(days=1))
    late.refresh_from_db()
    assert late.deadline_at == late.created_at + timedelta(days=1)


def test_run_of_which_undoing_has_begun_does_not_go_back(engine, seen):
    undoing.install()

    @tool(safety="keyed", name="pay", instructions="Take it back.")
    def pay(call):
        return {}

    @workflow(name="payer", version=1, state=Plain)
    class Payer:
        @step(retry=ONCE)
        def act(run: Any):
            run.call(pay, resource="a")
            raise Fatal("no")

    run = engine.run("payer")
    compensating.compensate(run.pk, tenant=run.tenant, **WHY)
    with pytest.raises(TransitionRefused, match="of which nothing is being undone"):
        back(run, 0)


def test_call_left_without_an_outcome_is_in_doubt_once_the_run_has_gone_back(engine, seen):
    @workflow(name="leaver", version=1, state=Plain)
    class Leaver:
        @step(retry=Retry(max_attempts=2, first_delay=3600, max_delay=3600))
        def act(run: Any):
            raise ValueError("later")

    run = engine.run("leaver")
    effect = make_effect(run, state="intended", tool="send")
    assert run.state == "queued"
    back(run, 0)
    effect.refresh_from_db()
    assert (effect.state, effect.doubts.count()) == ("in_doubt", 1)


def test_refused_call_stays_refused_in_a_later_lineage(engine, seen):
    @tool(safety="keyed", name="ask")
    def ask(call):
        seen.calls.append(("ask", call.resource))
        raise Refused("no")

    @workflow(name="asker", version=1, state=Plain)
    class Asker:
        @step(retry=ONCE)
        def act(run: Any):
            run.call(ask, resource="a")

    run = engine.run("asker")
    back(run, 0)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.lineage, seen.of("ask")) == ("failed", 2, ["a"])


def test_message_is_not_posted_again_in_a_later_lineage(engine):
    fail = [True]

    @tool(safety="outbox", name="tell")
    def tell(call, *, text: str):
        return None

    @workflow(name="teller", version=1, state=Plain)
    class Teller:
        @step(retry=ONCE)
        def before(run: Any):
            pass

        @step(retry=ONCE)
        def act(run: Any):
            run.call(tell, resource="a", text="hello")

        @step(retry=ONCE)
        def after(run: Any):
            if fail[0]:
                raise Fatal("no")

    run = engine.run("teller")
    assert run.state == "failed"
    fail[0] = False
    back(run, 1)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded", run.error_message
    assert IdempotencyRecord.objects.filter(run=run, tool="tell").count() == 1
