"""Runs of an old version under new code: migrated by policy or by a person, whole or not at all, and taken back."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from durableops import Migrated, Retry, State, failpoints, migration, step, tool, workflow
from durableops.engine import branching, commands, guard, migrating, reviewing
from durableops.engine.bulk import capture, control, executing
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb as bulk_verb
from durableops.engine.inbound import send_event
from durableops.errors import PlanChanged, PlanWanted, TransitionRefused
from durableops.failpoints import FailpointReached
from runs.models import Bulk, BulkItem, Checkpoint, Lineage, Review, Run
from tests.factories import events_of, make_effect, now
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
ONCE = Retry(max_attempts=1)
WHY: dict[str, Any] = {"actor": "rita", "reason": "looked"}


class Old(State):
    source: str = "a"


class New(State):
    sources: list[str] = []
    ran: list[str] = []


@pytest.fixture(autouse=True)
def forget_previews():
    migrating._clean.clear()


class Company:
    """A workflow in two versions, a downstream that counts, and a deploy between them."""

    def __init__(self, registry) -> None:
        self.registry = registry
        self.sent: list[tuple[str, str]] = []
        self.fails = False

    def old(self) -> None:
        self.registry.clear()
        send = self._tool("send")

        @workflow(name="import", version=1, state=Old, deadline=timedelta(days=1))
        class Import:
            @step
            def prepare(run: Any) -> None:
                run.call(send, resource="prepare")

            @step(retry=ONCE)
            def load(run: Any) -> None:
                run.decide("how", {"n": 1}, lambda n: "slowly")
                run.call(send, resource="load")
                run.approval("go", timeout=timedelta(hours=3))

    def new(self, *, policy: Any = "automatic", answer: Any = None, declare: bool = True) -> None:
        self.registry.clear()
        post = self._tool("post")
        send = self._tool("send")

        @workflow(name="import", version=2, state=New, migrate=policy)
        class Import:
            @step(tools=[send])
            def prepare(run: Any) -> None:
                raise AssertionError("a committed step runs again")

            @step
            def ingest(run: Any) -> str:
                assert run.input.sources == ["x"], "the input is brought forward too"
                assert run.decide("method", {"n": 1}, lambda n: "quickly") == "slowly"
                run.call(post, resource="load")
                by = run.approval("go", timeout=timedelta(hours=3)).by
                run.state.ran.append("ingest")
                return str(by)

        if declare:

            @migration(Import, from_version=1)
            def sources(old: dict[str, Any]) -> Any:
                if answer is not None:
                    return answer(old)
                return self.answer(old)

    @staticmethod
    def answer(old: dict[str, Any], **over: Any) -> Migrated:
        values: dict[str, Any] = {
            "state": {"sources": [old["source"]]}, "steps": {"load": "ingest"},
            "decisions": {"how": "method"}, "effects": {"load/send": "post"},
        }  # fmt: skip
        return Migrated(**(values | over))

    def _tool(self, name: str) -> Any:
        @tool(safety="keyed", name=name, retry=ONCE, timeout=5)
        def send(call: Any) -> str:
            self.sent.append((call.resource, call.key))
            if self.fails:
                raise TimeoutError("no answer")
            return str(call.resource)

        return send


@pytest.fixture
def company(own_registry) -> Company:
    return Company(own_registry)


@pytest.fixture
def waiting(engine, company) -> Run:
    """A run of version 1 that waits for an approval in its second step."""
    company.old()
    run = engine.run("import", {"source": "x"})
    assert run.state == "waiting"
    return run


def approve(engine, run: Run) -> None:
    commands.approve(run.waits.get(state="open").pk, tenant=engine.tenant, actor="rita")


# C100
def test_waiting_run_is_migrated_when_it_is_woken_and_its_answer_is_kept(engine, company, waiting):
    wait = waiting.waits.get()
    company.new()
    approve(engine, waiting)
    engine.drain()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.plan.version, waiting.lineage) == ("succeeded", 2, 2)
    assert len(company.sent) == 2, "neither call is sent again, although step and tool have other names now"
    wait.refresh_from_db()
    assert (wait.step_id, wait.lineage, wait.answered_by) == ("ingest", 2, "rita")
    line = Lineage.objects.get(run=waiting)
    assert (line.kind, line.from_seq, line.seq, line.actor) == ("migrate", 1, 2, "engine")
    assert line.functions[0]["name"] == "sources"
    made = Checkpoint.objects.get(run=waiting, seq=2)
    assert (made.kind, made.state, made.plan_id) == ("migrate", '{"sources":["x"],"ran":[]}', waiting.plan_id)
    assert Checkpoint.objects.get(run=waiting, seq=0).state == '{"source":"x"}'
    assert "migrate" in events_of(waiting)
    assert waiting.receipts.order_by("-number").first().cause == "migrated"


@pytest.mark.parametrize("policy", ["reviewed", "if_clean"])
def test_policy_may_leave_it_to_a_person(engine, company, waiting, policy):
    other = engine.run("import", {"source": "bad"})

    def picky(old: dict[str, Any]) -> Any:
        made: dict[str, Any] = {"sources": 7 if old["source"] == "bad" else []}
        return company.answer(old, state=made)

    company.new(policy=policy, answer=picky)
    approve(engine, waiting)
    engine.drain()
    found = Review.objects.get(run=waiting)
    assert (found.code, Run.objects.get(pk=waiting.pk).state) == ("needs_review", "in_review")
    assert ("approved by a person" in found.reason) or (str(other.pk) in found.reason)


def test_clean_preview_of_all_lets_the_workers_migrate(engine, company, waiting):
    company.new(policy="if_clean")
    approve(engine, waiting)
    engine.drain()
    assert Run.objects.get(pk=waiting.pk).state == "succeeded"


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"state": {"sources": 5}}, "/sources"),
        ({"effects": {}}, "would be sent again"),
        ({"waits": {"go": "leave"}}, "does not ask for"),
    ],
)
def test_migration_that_fails_leaves_everything_as_it_was(engine, company, waiting, over, why):
    def record() -> list[Any]:
        return [list(getattr(waiting, name).order_by("pk").values()) for name in ("checkpoints", "effects", "waits")]

    company.new(answer=lambda old: company.answer(old, **over))
    approve(engine, waiting)
    before = record()
    engine.drain()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.lineage, record()) == ("in_review", 1, before)
    found = Review.objects.get(run=waiting)
    assert found.code == "migration_refused"
    assert why in found.reason
    assert not Lineage.objects.exists()


# C109
def test_clocks_of_a_migrated_run_go_on_and_none_fires_while_it_is_paused(engine, company, waiting):
    before = waiting.waits.get().expires_at
    commands.pause(waiting.pk, tenant=engine.tenant, actor="rita", reason="deploy")
    company.new()
    approve(engine, waiting)
    for _ in range(3):
        engine.drain()
        engine.rounds()
    waiting.refresh_from_db()
    assert (waiting.state, waiting.lineage) == ("queued", 1), "paused, it is neither migrated nor moved"
    moves = events_of(waiting)
    commands.resume(waiting.pk, tenant=engine.tenant, actor="rita", reason="done")
    engine.worker.listener.in_hand.offer.keep(engine.worker.database, at_once=True)
    engine.drain()
    waiting.refresh_from_db()
    assert waiting.state == "succeeded"
    assert waiting.waits.get().expires_at == before
    assert events_of(waiting)[: len(moves)] == moves
    assert "wait_timeout" not in events_of(waiting)


def test_deadline_of_a_migrated_run_stays(engine, company, waiting):
    before = waiting.deadline_at
    company.new()
    approve(engine, waiting)
    engine.drain()
    waiting.refresh_from_db()
    assert waiting.deadline_at == before
    assert before is not None
    assert before > now()


def test_event_sent_after_the_deploy_reaches_a_run_that_waits_for_it(engine, own_registry):
    def declare(version: int, event: str) -> Any:
        def first(run: Any) -> Any:
            return run.wait_for("parcel") if event == "parcel" else run.wait_for("delivery")

        return workflow(name="post", version=version, state=Old, migrate="automatic")(
            type("Post", (), {"first": step(id="first")(first)})
        )

    declare(1, "parcel")
    run = engine.run("post")
    own_registry.clear()
    migration(declare(2, "delivery"), from_version=1)(
        lambda old: Migrated(state=old, waits={"parcel": "delivery"})
    )  # fmt: skip
    send_event("parcel", tenant=engine.tenant, actor="post", payload="box")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.checkpoints.get(kind="finish").output) == ("succeeded", '"box"')


def test_step_committed_only_in_a_lineage_that_was_left_may_run_under_the_new_version(engine, own_registry):
    def commit(run: Any) -> None:
        run.state.source += "."

    def ask(run: Any) -> None:
        run.approval("go")

    steps = {"fetch": step(id="fetch")(commit), "check": step(id="check")(commit), "load": step(id="load")(ask)}
    workflow(name="import", version=1, state=Old)(type("Import", (), dict(steps)))
    run = engine.run("import")
    kept = engine.run("import")
    branching.retry_from(run.pk, tenant=engine.tenant, actor="ann", reason="anew", seq=0, plan_hash=None)
    own_registry.clear()
    newer = workflow(name="import", version=2, state=Old, migrate="reviewed")(
        type("Import", (), {name: steps[name] for name in ("check", "load")})
    )

    @migration(newer, from_version=1)
    def without_fetch(old: dict[str, Any]) -> Migrated:
        return Migrated(state=old, at="check", waits={"go": None})

    migrate(engine, run)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.plan.version, run.step_id) == ("waiting", 2, "load")
    with pytest.raises(TransitionRefused, match="'check' is committed and never runs again"):
        migrate(engine, kept)


def planned(run: Run, version: int | None = None) -> guard.Plan:
    with connection.cursor() as cursor:
        return guard.plan(cursor, "migrate", run.pk, version=version)


def test_guard_says_that_a_migrated_call_is_reused_and_one_that_is_left_behind_goes_out_anew(engine, company, waiting):
    company.new(policy="reviewed")
    [kept] = planned(waiting).lines
    assert (kept.category, kept.tool, kept.samples) == ("reused", "send", ("load",))
    company.new(policy="reviewed", answer=lambda old: company.answer(old, effects={"load/send": None}))
    left = planned(waiting)
    assert [(line.category, line.tool) for line in left.lines] == [("anew", "send")]
    assert not left.is_harmless
    with pytest.raises(PlanWanted, match="not harmless"):
        migrate(engine, waiting, plan_hash=guard.UNSEEN)
    migrate(engine, waiting, plan_hash=left.hash)
    approve(engine, waiting)
    engine.drain()
    assert [resource for resource, _ in company.sent] == ["prepare", "load", "load"]


def test_migration_is_refused_when_its_plan_is_not_what_was_shown(engine, company, waiting):
    company.new(policy="reviewed")
    shown = planned(waiting).hash
    make_effect(waiting, state="succeeded", tool="send", step_id="load", result="1")
    with pytest.raises(PlanChanged, match="has changed since it was shown") as refused:
        migrate(engine, waiting, plan_hash=shown)
    waiting.refresh_from_db()
    assert (waiting.plan.version, waiting.lineage) == (1, 1)
    fresh = refused.value.plan
    assert isinstance(fresh, dict)
    assert [line["calls"] for line in fresh["calls"]] == [2]
    migrate(engine, waiting, plan_hash=fresh["plan_hash"])


def migrate(engine: Any, run: Run, **more: Any) -> None:
    reviewing.migrate(run.pk, tenant=engine.tenant, actor="rita", reason="looked", **more)


def captured(engine: Any, runs: list[Run]) -> Bulk:
    chosen = Selection(words="these", ids=[run.pk for run in runs])
    arguments = {"workflow": "import", "version": 2}
    return capture.preview(
        bulk_verb("migrate"), chosen, tenant=engine.tenant, actor="rita", arguments=arguments
    )  # fmt: skip


def test_bulk_migration_tells_what_all_its_runs_send_again_and_which_cannot_be_migrated(engine, company, waiting):
    other, broken = engine.run("import", {"source": "x"}), engine.run("import", {"source": "bad"})

    def picky(old: dict[str, Any]) -> Any:
        state = {"sources": 7 if old["source"] == "bad" else ["x"]}
        return company.answer(old, state=state, effects={"load/send": None})

    company.new(policy="reviewed", answer=picky)
    bulk = captured(engine, [waiting, other, broken])
    assert [(line["category"], line["calls"], line["runs"]) for line in bulk.plan["calls"]] == [("anew", 2, 2)]
    [(why, number)] = bulk.plan["cannot"].items()
    assert ("/sources" in why, number) == (True, 1)
    control.start(bulk.pk, tenant=engine.tenant, **WHY)
    make_effect(other, state="succeeded", tool="send", step_id="load", result="1")
    company.new(policy="reviewed", answer=lambda old: company.answer(old, effects={"load/send": None}))
    while executing.execute_batch():
        pass
    outcomes = dict(BulkItem.objects.filter(bulk=bulk).values_list("run_id", "state"))
    assert outcomes == {waiting.pk: "done", other.pk: "refused", broken.pk: "refused"}, "as they were shown, or not"


def test_bulk_migration_that_dies_half_way_goes_on_and_migrates_no_run_twice(engine, company, waiting):
    runs = [waiting, *(engine.run("import", {"source": "x"}) for _ in range(3))]
    company.new(policy="reviewed")
    bulk = captured(engine, runs)
    control.start(bulk.pk, tenant=engine.tenant, **WHY)
    failpoints.arm("before_bulk_item_commits=raise@2")
    try:
        with pytest.raises(FailpointReached):
            executing.execute_batch()
    finally:
        failpoints.arm("")
    assert Lineage.objects.filter(kind="migrate").count() == 1, "what was in hand when it died was not done"
    assert sum(hand.result() for hand in [Background(executing.execute_batch) for _ in range(2)]) == 3
    assert set(BulkItem.objects.filter(bulk=bulk).values_list("state", flat=True)) == {"done"}
    assert sorted(Lineage.objects.values_list("run_id", flat=True)) == sorted(run.pk for run in runs)


def test_runs_are_migrated_from_the_command_line_once_their_plan_was_looked_at(engine, company, waiting, capsys):
    company.new(policy="reviewed", answer=lambda old: company.answer(old, effects={"load/send": None}))
    who = ("--tenant", engine.tenant.slug, "--actor", "rita", "--reason", "looked")
    with pytest.raises(CommandError, match="sent again under another key") as unseen:
        call_command("migrate_runs", "import", *who)
    assert set(Bulk.objects.values_list("state", flat=True)) == {"preview"}
    begin = re.search(r"operate (bulk-start .*) --reason", str(unseen.value))
    assert begin is not None
    call_command("operate", *begin[1].split(), "--reason", "looked")
    company.new(policy="reviewed")
    call_command("migrate_runs", "import", *who)
    assert "upkeep executes it" in capsys.readouterr().out
    assert set(Bulk.objects.values_list("state", flat=True)) == {"running"}
