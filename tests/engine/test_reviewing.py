"""The review desk: migrate, take back, pin, reject, ask a second person; each audited, and never half."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError

from durableops import State, migration, step, workflow
from durableops.engine import reshaping, reviewing
from durableops.engine.bulk import capture, control, executing
from durableops.engine.bulk.verbs import verb
from durableops.errors import InputRefused, TransitionRefused
from durableops.masking import mask
from runs.models import AuditEntry, BulkItem, Lineage, Review, Run
from tests.factories import events_of, make_effect, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
WHO: dict[str, Any] = {"actor": "rita", "reason": "looked at it"}


class Old(State):
    source: str = "a"


class New(State):
    sources: list[str] = []


def old(registry) -> None:
    registry.clear()

    def ask(run: Any) -> None:
        run.approval("go")

    workflow(name="import", version=1, state=Old)(type("Import", (), {"load": step(id="load")(ask)}))


def new(registry) -> None:
    registry.clear()

    def ask(run: Any) -> str:
        return str(run.approval("go").by)

    made = {"load": step(id="load")(ask)}
    newer = workflow(name="import", version=2, state=New, migrate="reviewed")(type("Import", (), made))

    @migration(newer, from_version=1)
    def sources(state: dict[str, Any]) -> dict[str, Any]:
        return {"sources": [state["source"]] if state["source"] != "bad" else 7}


@pytest.fixture
def parked(engine, own_registry) -> Run:
    """A run of version 1, woken under version 2, which leaves each migration to a person."""
    old(own_registry)
    run = engine.start("import", {"source": "x"})
    new(own_registry)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "in_review"
    return run


def test_approved_migration_goes_on_under_the_new_version(engine, parked):
    done = reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    assert (done.state, done.message) == ("queued", "migrated to version 2.")
    assert (Review.objects.get().closed_as, Review.objects.get().closed_by) == ("migrated", "rita")
    entry = AuditEntry.objects.get(verb="migrate")
    assert (entry.actor, entry.before, entry.after["to"]) == ("rita", {"version": 1}, 2)
    engine.drain()
    parked.refresh_from_db()
    assert (parked.state, parked.plan.version) == ("waiting", 2)


# C110
def test_second_migration_is_refused_and_changes_nothing(engine, parked):
    reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    with pytest.raises(TransitionRefused, match="another version than 2"):
        reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    assert Lineage.objects.count() == 1
    assert AuditEntry.objects.filter(verb="migrate (refused)").count() == 1


def test_migration_that_cannot_be_made_leaves_the_finding_open(engine, own_registry):
    old(own_registry)
    run = engine.start("import", {"source": "bad"})
    new(own_registry)
    engine.drain()
    with pytest.raises(TransitionRefused, match="/sources"):
        reviewing.migrate(run.pk, tenant=engine.tenant, **WHO)
    assert Review.objects.get(run=run).closed_at is None
    assert Run.objects.get(pk=run.pk).state == "in_review"


def test_waiting_run_is_migrated_where_it_waits_and_its_question_stays_open(engine, own_registry):
    old(own_registry)
    run = engine.run("import")
    wait = run.waits.get()
    new(own_registry)
    assert reviewing.migrate(run.pk, tenant=engine.tenant, **WHO).state == "waiting"
    wait.refresh_from_db()
    assert (wait.state, wait.lineage) == ("open", 2)


def test_migration_is_taken_back_until_something_is_committed(engine, parked):
    reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    reviewing.revert(parked.pk, tenant=engine.tenant, **WHO)
    parked.refresh_from_db()
    assert (parked.lineage, parked.plan.version, parked.step_id) == (3, 1, "load")
    assert parked.checkpoints.get(seq=parked.head_seq).state == '{"source":"x"}'
    engine.drain()
    parked.refresh_from_db()
    assert (parked.state, parked.plan.version) == ("in_review", 1), "nobody migrates it again by itself"
    with pytest.raises(TransitionRefused, match="newest checkpoint is that of a migration"):
        reviewing.revert(parked.pk, tenant=engine.tenant, **WHO)
    reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    engine.drain()
    parked.refresh_from_db()
    assert (parked.state, parked.plan.version, parked.lineage) == ("waiting", 2, 4)


def test_wait_goes_back_with_a_migration_that_is_taken_back(engine, own_registry):
    old(own_registry)
    run = engine.run("import")
    new(own_registry)
    reviewing.migrate(run.pk, tenant=engine.tenant, **WHO)
    reviewing.revert(run.pk, tenant=engine.tenant, **WHO)
    run.refresh_from_db()
    wait = run.waits.get()
    assert (run.state, wait.state, wait.lineage, wait.step_id) == ("waiting", "open", 3, "load")


def test_pinned_run_waits_for_its_own_version_and_goes_on_there(engine, own_registry, parked):
    reviewing.pin(parked.pk, tenant=engine.tenant, **WHO)
    engine.drain()
    parked.refresh_from_db()
    assert (parked.state, parked.pinned) == ("queued", True)
    old(own_registry)
    engine.drain()
    parked.refresh_from_db()
    assert (parked.state, parked.plan.version) == ("waiting", 1)
    reviewing.unpin(parked.pk, tenant=engine.tenant, **WHO)
    assert not Run.objects.get(pk=parked.pk).pinned
    assert {"pin", "unpin"} <= set(events_of(parked))


def test_rejected_run_ends_cancelled(engine, parked):
    reviewing.reject(parked.pk, tenant=engine.tenant, **WHO)
    assert Run.objects.get(pk=parked.pk).state == "cancelled"
    assert Review.objects.get().closed_as == "rejected"


def test_whoever_asks_for_a_second_reviewer_does_not_decide(engine, parked):
    reviewing.ask_second(parked.pk, tenant=engine.tenant, **WHO)
    with pytest.raises(TransitionRefused, match="asked for a second reviewer"):
        reviewing.migrate(parked.pk, tenant=engine.tenant, **WHO)
    assert reviewing.migrate(parked.pk, tenant=engine.tenant, actor="ruth", reason="agreed").state == "queued"


def test_running_run_is_left_to_its_holder(engine, parked):
    Run.objects.filter(pk=parked.pk).update(state="running", worker=make_worker(), fence=parked.fence + 1)
    with pytest.raises(TransitionRefused):
        reviewing.pin(parked.pk, tenant=engine.tenant, **WHO)


class TestMany:
    """The migration of a group: one run, one transaction, each once, and only what still is as it was shown."""

    @pytest.fixture
    def group(self, engine, own_registry) -> list[Run]:
        old(own_registry)
        runs = [engine.start("import", {"source": str(n)}) for n in range(5)]
        new(own_registry)
        engine.drain()
        return runs

    def begin(self, engine, runs: list[Run]) -> Any:
        finding = Review.objects.filter(run__in=runs).values_list("fingerprint", flat=True).distinct().get()
        bulk = capture.preview(
            verb("migrate"), capture.Selection(words="the group", ids=[run.pk for run in runs]),
            tenant=engine.tenant, actor="rita", arguments={"workflow": "import", "version": 2, "finding": finding},
        )  # fmt: skip
        return control.start(bulk.pk, tenant=engine.tenant, actor="rita", reason="all the same")

    def test_all_are_migrated_once_however_often_the_executor_dies(self, engine, group, monkeypatch):
        self.begin(engine, group)
        executing.execute_batch(limit=2)
        with monkeypatch.context() as broken:
            broken.setattr(executing, "_SETTLE", "SELECT 1/0 WHERE concat(%s, %s, %s, %s) IS NOT NULL")
            with pytest.raises(DataError, match="division by zero"):
                executing.execute_batch()
        while executing.execute_batch():
            pass
        assert set(BulkItem.objects.values_list("state", flat=True)) == {"done"}
        assert Lineage.objects.count() == 5
        assert set(Run.objects.values_list("lineage", flat=True)) == {2}

    def test_run_that_changed_meanwhile_is_refused_and_listed(self, engine, group):
        self.begin(engine, group)
        reviewing.pin(group[0].pk, tenant=engine.tenant, **WHO)
        while executing.execute_batch():
            pass
        item = BulkItem.objects.get(run_id=group[0].pk)
        assert (item.state, "changed meanwhile" in item.message) == ("refused", True)
        assert BulkItem.objects.filter(state="done").count() == 4

    def test_process_without_the_version_leaves_it_to_one_that_has_it(self, engine, group, own_registry):
        self.begin(engine, group)
        old(own_registry)
        assert executing.execute_batch() == 0
        new(own_registry)
        assert executing.execute_batch() == 5

    def test_arguments_that_mean_nothing_are_refused(self):
        with pytest.raises(InputRefused, match="bulk migration takes"):
            reviewing._read_arguments({"version": "2"})


# Editing and moving.


@pytest.fixture
def unfit(engine, own_registry) -> Run:
    """A run whose state no migration brings into the new schema."""
    old(own_registry)
    run = engine.start("import", {"source": "bad"})
    new(own_registry)
    engine.drain()
    run.refresh_from_db()
    return run


def test_state_that_a_reviewer_gives_within_the_schema_lets_the_run_go_on(engine, unfit):
    done = reshaping.edit(unfit.pk, tenant=engine.tenant, **WHO, state={"sources": ["mended"]})
    assert (done.state, "version 2" in done.message) == ("queued", True)
    assert (Review.objects.get().closed_as, Lineage.objects.get().kind) == ("edited", "edit")
    entry = AuditEntry.objects.get(verb="edit")
    assert (entry.before["version"], entry.after["version"]) == (1, 2)
    engine.drain()
    unfit.refresh_from_db()
    assert (unfit.state, unfit.plan.version) == ("waiting", 2)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"state": {"sources": 7}}, "/sources"), ({"state": {"more": 1}}, "/more"), ({}, "/source"),
        ({"state": {}, "step_id": "x"}, "x"), ({"state": {}, "version": 9}, "version 9"),
    ],
    ids=str,
)  # fmt: skip
def test_state_or_step_that_does_not_fit_is_refused_and_changes_nothing(engine, unfit, given, wrong):
    with pytest.raises(TransitionRefused, match=wrong):
        reshaping.edit(unfit.pk, tenant=engine.tenant, **WHO, **given)
    unfit.refresh_from_db()
    assert (unfit.state, unfit.lineage, Review.objects.get().closed_at) == ("in_review", 1, None)
    assert AuditEntry.objects.filter(verb__endswith="(refused)").count() == 1


def test_edit_is_taken_back_until_something_is_committed(engine, unfit):
    reshaping.edit(unfit.pk, tenant=engine.tenant, **WHO, state={"sources": []})
    reviewing.revert(unfit.pk, tenant=engine.tenant, **WHO)
    unfit.refresh_from_db()
    assert (unfit.lineage, unfit.plan.version) == (3, 1)
    assert unfit.checkpoints.get(seq=unfit.head_seq).state == '{"source":"bad"}'


def test_mask_that_was_left_keeps_what_it_hides(engine, own_registry):
    old(own_registry)
    run = engine.start("import", {"source": "x"})
    own_registry.clear()

    class Tokens(State):
        password: str = ""
        source: str = ""

    workflow(name="import", version=3, state=Tokens, migrate="reviewed")(
        type("Import", (), {"load": step(id="load")(lambda run: run.state.password)})
    )
    engine.drain()
    reshaping.edit(run.pk, tenant=engine.tenant, **WHO, state={"password": "s3cret-value", "source": "x"})
    Run.objects.filter(pk=run.pk).update(state="in_review", due_at=None)
    shown = mask({"password": "s3cret-value", "source": "x"})
    assert "s3cret-value" not in str(shown)
    reshaping.edit(run.pk, tenant=engine.tenant, **WHO, state={**shown, "source": "y"})
    run.refresh_from_db()
    kept = run.checkpoints.get(seq=run.head_seq).state or ""
    assert ("s3cret-value" in kept, '"y"' in kept) == (True, True)


def two_steps(registry, version: int) -> None:
    registry.clear()

    def ask(run: Any) -> None:
        run.approval("go")

    steps = {"load": step(id="load")(ask), "send": step(id="send")(lambda run: "sent")}
    if version == 2:
        steps = {"fetch": step(id="fetch")(lambda run: None), "send": steps["send"]}
    workflow(name="import", version=version, state=Old, migrate="reviewed")(type("Import", (), steps))


def test_run_is_moved_to_another_step_and_its_wait_is_given_up(engine, own_registry):
    two_steps(own_registry, 1)
    run = engine.run("import")
    two_steps(own_registry, 2)
    with pytest.raises(TransitionRefused, match="'load'"):
        reshaping.edit(run.pk, tenant=engine.tenant, **WHO)
    reshaping.edit(run.pk, tenant=engine.tenant, **WHO, step_id="send")
    assert (run.waits.get().state, Lineage.objects.get().kind) == ("cancelled", "move")
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_call_without_an_outcome_is_not_left_behind(engine, own_registry):
    two_steps(own_registry, 1)
    run = engine.run("import")
    make_effect(run, tool="post", step_id="load", state="in_doubt")
    two_steps(own_registry, 2)
    with pytest.raises(TransitionRefused, match="has no outcome"):
        reshaping.edit(run.pk, tenant=engine.tenant, **WHO, step_id="send")


def test_finding_is_claimed_by_one_and_released(engine, unfit):
    review = Review.objects.get()
    reshaping.claim(review.pk, tenant=engine.tenant, actor="rita")
    with pytest.raises(TransitionRefused, match="rita is on it"):
        reshaping.claim(review.pk, tenant=engine.tenant, actor="ron")
    reshaping.unclaim(review.pk, tenant=engine.tenant, actor="ron")
    review.refresh_from_db()
    assert (review.claimed_by, review.claimed_at) == ("", None)
    assert events_of(unfit)[-2:] == ["claim_review", "unclaim_review"]
