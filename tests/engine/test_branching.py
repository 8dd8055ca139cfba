"""Going back: a new lineage reuses what earlier ones did, a fork sends it anew, and the guard says so beforehand."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from durableops import Fatal, Page, Refused, Retry, Secret, State, step, tool, workflow
from durableops.engine import branching, commands, compensating
from durableops.engine.compensation import undoing
from durableops.engine.database import Database
from durableops.engine.inbound import send_event
from durableops.errors import InputRefused, PlanChanged, RunNotFound, TransitionRefused
from durableops.upkeep.invariants.report import examine
from runs.models import AuditEntry, Checkpoint, Decision, IdempotencyRecord, Run, RunEvent, Wait
from runs.states import REOPENABLE
from runs.states import State as RunState
from tests.factories import events_of, make_checkpoint, make_effect, make_run, make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ONCE = Retry(max_attempts=1)
WHY: dict[str, Any] = {"actor": "ann", "reason": "again"}
NEVER = UUID("01990000-0000-7000-8000-000000000000")


class Counted:
    """What the other side was asked, by tool and resource, with the key of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.decided: list[Any] = []
        self.fail = True
        self.on_call: Any = lambda: None

    def of(self, tool: str) -> list[str]:
        return [resource for name, resource in self.calls if name == tool]


@pytest.fixture
def seen() -> Counted:
    return Counted()


@pytest.fixture
def trip(engine, seen) -> str:
    """Three steps that call, decide, wait and read; the last one fails as long as it is told to."""

    @tool(safety="keyed", name="book", resource_id="id", retry=ONCE)
    def book(call, *, n: int = 0):
        seen.calls.append(("book", call.resource))
        seen.keys.append(call.key)
        return {"id": f"b-{call.resource}"}

    @tool(safety="read", name="look", retry=ONCE)
    def look(call):
        seen.calls.append(("look", call.resource))
        seen.on_call()
        return len(seen.of("look"))

    @tool(safety="local", name="note")
    def note(call):
        seen.calls.append(("note", call.resource))
        return 1

    def choose(n: int) -> int:
        seen.decided.append(n)
        return n + len(seen.decided)

    class TripState(State):
        n: int = 0
        looks: list[int] = []
        chosen: int = 0

    @workflow(name="trip", version=1, state=TripState)
    class Trip:
        @step(retry=ONCE)
        def first(run: Any):
            run.call(book, resource="hotel")
            run.state.n = 1

        @step(retry=ONCE)
        def second(run: Any):
            run.call(book, resource="flight")
            run.call(note, resource="diary")
            run.state.looks = [*run.state.looks, run.call(look, resource="sky")]
            run.state.chosen = run.decide("choice", {"n": 7}, choose)
            run.state.n = 2

        @step(retry=ONCE)
        def third(run: Any):
            run.call(book, resource="car")
            if seen.fail:
                raise Fatal("the last step fails")
            run.state.n = 3

    return "trip"


def back(run: Run, seq: int, **more: Any) -> Any:
    """Retry from a checkpoint, whatever the plan."""
    return branching.retry_from(run.pk, tenant=run.tenant, seq=seq, plan_hash=None, **WHY, **more)


def plan(run: Run, verb: str = "retry_from", seq: int | None = 1) -> Any:
    from django.db import connection, transaction

    from durableops.engine import guard

    with transaction.atomic(), connection.cursor() as cursor:
        return guard.plan(cursor, verb, run.pk, seq=seq)


def told(run: Run, verb: str = "retry_from", seq: int | None = 1) -> set[tuple[str, str, int]]:
    return {(line.category, line.tool, line.calls) for line in plan(run, verb, seq).lines}


def invariants_hold() -> None:
    database = Database(name="test")
    try:
        broken = examine(database, grace_seconds=0.0).broken
        ignored = "queued_run_has_a_living_worker_that_knows_it"
        assert [(f.check.name, f.sample) for f in broken if f.check.name != ignored] == []
    finally:
        database.close()


# A new lineage of the same run.


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


# The guard.


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


# Forks.


def fork(run: Run, seq: int = 1, *, once: str = "", **more: Any) -> Run:
    once = once or str(uuid4())
    done = branching.fork(run.pk, tenant=run.tenant, seq=seq, plan_hash=None, once=once, **WHY, **more)
    assert done.run_id is not None
    return Run.objects.get(pk=done.run_id)


def test_fork_is_a_new_run_that_calls_anew_under_keys_of_its_own(engine, seen, trip):
    run = engine.run(trip)
    assert told(run, "fork") == {("anew", "book", 2), ("anew", "note", 1), ("read", "look", 1)}
    assert not plan(run, "fork").is_harmless
    seen.fail = False
    made = fork(run)
    engine.drain()
    made.refresh_from_db()
    run.refresh_from_db()
    assert (made.state, run.state, made.labels, made.lineage) == (
        "succeeded", "failed", {"forked_from": str(run.pk)}, 1,
    )  # fmt: skip
    assert seen.of("book") == ["hotel", "flight", "car", "flight", "car"]
    assert len(set(seen.keys)) == 5
    assert events_of(made)[:2] == ["start", "forked_from"]
    assert events_of(run)[-1] == "forked"
    entry = AuditEntry.objects.get(verb="fork")
    assert (entry.target_id, entry.after) == (str(run.pk), {"checkpoint": 1, "fork": str(made.pk), "edited": False})
    invariants_hold()


def test_fork_goes_on_with_the_edited_state(engine, seen, trip):
    run = engine.run(trip)
    seen.fail = False
    made = fork(run, state={"n": 40, "looks": [9], "chosen": 5})
    start = Checkpoint.objects.get(run=made, seq=0)
    assert (json.loads(start.state or ""), start.next_step) == ({"n": 40, "looks": [9], "chosen": 5}, "second")
    engine.drain()
    made.refresh_from_db()
    assert made.state == "succeeded"
    end = json.loads(branching.state_text(made, Checkpoint.objects.get(run=made, seq=made.head_seq)))
    assert end["looks"][0] == 9
    assert AuditEntry.objects.get(verb="fork").after["edited"] is True


@pytest.mark.parametrize(
    ("state", "path"),
    [({"n": "1"}, "/n"), ({"m": 1}, "/m"), ([], ""), ({"n": 1, "looks": [1, "x"]}, "/looks/1"), ("text", "")],
)
def test_state_outside_the_schema_is_refused_with_its_place_and_makes_no_run(engine, seen, trip, state, path):
    run = engine.run(trip)
    with pytest.raises(InputRefused) as refused:
        fork(run, state=state)
    assert refused.value.path == path
    assert Run.objects.count() == 1


def test_fork_that_is_asked_for_twice_is_made_once(engine, seen, trip):  # C046
    run = engine.run(trip)
    assert fork(run, once="a").pk == fork(run, once="a").pk
    assert fork(run, once="b").pk != fork(run, once="a").pk
    assert AuditEntry.objects.filter(verb="fork").count() == 2


def test_fork_begins_at_the_cursor_of_its_checkpoint(engine):
    class PagesState(State):
        done: list[int] = []

    @workflow(name="pages", version=1, state=PagesState)
    class Pages:
        @step(retry=ONCE)
        def all(run: Any):
            for rows in run.pages(lambda at: Page(items=[at], next_cursor=at + 1) if at < 3 else None, start=0):
                run.state.done = [*run.state.done, *rows]

    run = engine.run("pages")
    made = fork(run, seq=2, state={"done": [100]})
    engine.drain()
    end = json.loads(branching.state_text(made, Checkpoint.objects.filter(run=made).order_by("-seq")[0]))
    assert end == {"done": [100, 2]}


def test_fork_of_a_succeeded_run_is_possible_and_leaves_it_as_it_is(engine, seen, trip):
    seen.fail = False
    run = engine.run(trip)
    assert run.state == "succeeded"
    made = fork(run, seq=2)
    engine.drain()
    made.refresh_from_db()
    run.refresh_from_db()
    assert (made.state, run.state, run.head_seq) == ("succeeded", "succeeded", 3)


def test_fork_needs_code_that_can_read_the_checkpoint(tenant):
    run = make_run(state="failed", tenant=tenant)
    with pytest.raises(TransitionRefused, match="code that can read it here: there is no workflow 'made'"):
        fork(run, seq=0)


def test_secret_that_is_left_masked_keeps_its_value(engine):
    class Keeper(State):
        user: str = ""
        api_token: Secret = ""
        password: str = ""
        deep: dict[str, Any] = {}

    @workflow(name="keeper", version=1, state=Keeper)
    class KeeperWorkflow:
        @step(retry=ONCE)
        def act(run: Any):
            raise Fatal("no")

    given = {
        "user": "ann",
        "api_token": "s3cret",
        "password": "hidden",
        "deep": {"secret": "x", "n": [1, "Bearer abcdefgh"]},
    }
    run = engine.run("keeper", given)
    from durableops.masking import mask

    shown = mask(json.loads(branching.state_text(run, Checkpoint.objects.get(run=run, seq=0))))
    assert "s3cret" not in json.dumps(shown)
    made = fork(run, seq=0, state={**shown, "user": "bob"})
    text = branching.state_text(made, Checkpoint.objects.get(run=made, seq=0))
    assert "s3cret" not in text
    from durableops.checkpoints.states import decode_state

    assert decode_state(Keeper, text).model_dump() == {**given, "user": "bob"}
    changed = fork(run, seq=0, state={**shown, "password": "new"})
    text = branching.state_text(changed, Checkpoint.objects.get(run=changed, seq=0))
    assert decode_state(Keeper, text).model_dump() == {**given, "password": "new"}


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
