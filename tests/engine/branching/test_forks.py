"""Forks: a new run from a checkpoint of another one, which sends anew under keys of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from durableops import Fatal, Page, Secret, State, step, workflow
from durableops.engine import branching
from durableops.errors import InputRefused, TransitionRefused
from runs.models import AuditEntry, Checkpoint, Run
from tests.engine.branching.conftest import ONCE, fork, invariants_hold, plan, told
from tests.factories import events_of, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


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
