"""Compensation: newest first, by tool or by a person, one undo for one effect, stopped half-way and continued."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from durableops import DoneEffect, Fatal, Refused, Retry, State, failpoints, step, tool, workflow
from durableops.authoring import registry
from durableops.engine import commands, compensating
from durableops.engine.compensation import owing, undoing
from durableops.errors import CompensationNotFound, InputRefused, TransitionRefused
from runs.models import AuditEntry, Compensation, CompensationOrder, IdempotencyRecord, Run, RunEvent
from runs.models.compensation import MOVES
from tests.factories import events_of, make_due, make_effect, make_run, make_tenant
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ONCE = Retry(max_attempts=1)
THRICE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
WHY: dict[str, Any] = {"actor": "ann", "reason": "wrong customer"}


class Facts(State):
    n: int = 0


class Bank:
    """The other side: what was done and undone, each once for its key, and what the next undo answers instead."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunds: dict[str, str] = {}
        self.order: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.script: dict[str, list[BaseException]] = {}

    def refund(self, call: Any, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if errors := self.script.get(call.resource):
            raise errors.pop(0)
        if call.key not in self.refunds:
            self.refunds[call.key] = call.resource
            self.order.append(call.resource)
        return {"id": f"refund-{call.resource}"}


@pytest.fixture
def bank(engine) -> Bank:
    """A workflow that charges what its input says and then asks, with a tool that refunds."""
    undoing.install()
    made = Bank()

    @tool(safety="keyed", name="refund", resource_id="id", retry=THRICE)
    def refund(call, *, downstream_id: str):
        return made.refund(call, downstream_id=downstream_id)

    @tool(safety="keyed", name="charge", resource_id="id", compensate=refund)
    def charge(call, *, amount: int = 1):
        made.charged.append(call.resource)
        return {"id": f"charge-{call.resource}"}

    @tool(safety="keyed", name="post", resource_id="id", instructions="Reverse it in the ledger.")
    def post(call):
        return {"id": f"post-{call.resource}"}

    @tool(safety="keyed", name="big", compensate=refund, resource_id="id", four_eyes=True)
    def big(call):
        return {"id": f"big-{call.resource}"}

    @tool(safety="keyed", name="careful", instructions="Reverse it, and let somebody look.", four_eyes=True)
    def careful(call):
        return {"id": 1}

    @tool(safety="keyed", name="mail")
    def mail(call):
        return {}

    tools = {"charge": charge, "post": post, "big": big, "careful": careful, "mail": mail}

    class Script(State):
        do: list[str] = []
        ask: bool = True

    @workflow(name="shop", version=1, state=Script)
    class Shop:
        @step
        def act(run: Any):
            for word in run.state.do:
                name, _, resource = word.partition(":")
                run.call(tools[name], resource=resource)
            if run.state.ask:
                run.approval("go on")
            raise Fatal("it ends badly")

    return made


def run_of(engine: Any, *words: str, ask: bool = True) -> Run:
    return engine.run("shop", {"do": list(words), "ask": ask})


def undone(run: Run) -> list[Compensation]:
    """Newest first, as they are worked through."""
    return list(Compensation.objects.filter(run=run).order_by("-effect_id"))


def states(run: Run) -> list[str]:
    return [one.state for one in undone(run)]


def linked(run: Run) -> Run:
    order = CompensationOrder.objects.filter(run=run).order_by("-id").first()
    assert order is not None
    assert order.linked_run is not None
    return order.linked_run


def cancelled(engine: Any, *words: str, done: str = "compensate") -> Run:
    run = run_of(engine, *words)
    commands.cancel(run.pk, tenant=engine.tenant, done=done, **WHY)
    engine.drain()
    run.refresh_from_db()
    return run


# Owing.


def test_cancelled_run_lists_what_it_did_as_owed_and_nothing_is_undone_by_itself(engine, bank):
    run = cancelled(engine, "charge:a", "mail:b", "post:c", done="later")
    assert (run.state, states(run)) == ("cancelled", ["owed", "owed"])
    assert [(one.effect.tool, one.how, one.tool) for one in undone(run)] == [
        ("post", "person", ""), ("charge", "tool", "refund")
    ]  # fmt: skip
    assert bank.refunds == {}
    assert Run.objects.filter(workflow=owing.WORKFLOW).count() == 0
    event = RunEvent.objects.get(run=run, event="compensation_owed")
    assert (event.data["owed"], event.actor, event.reason) == (2, "ann", "wrong customer")


def test_what_was_done_can_be_kept(engine, bank):
    run = cancelled(engine, "charge:a", done="keep")
    assert (run.state, states(run)) == ("cancelled", [])
    assert AuditEntry.objects.get(verb="cancel").after["done"] == "keep"


def test_cancel_refuses_what_it_does_not_know(engine, bank):
    run = run_of(engine, "charge:a")
    with pytest.raises(InputRefused, match="later, compensate, keep"):
        commands.cancel(run.pk, tenant=engine.tenant, done="maybe", **WHY)
    run.refresh_from_db()
    assert run.state == "waiting"


def test_running_run_is_undone_once_it_has_stopped_with_what_it_did_until_then(engine, bank):
    charge = registry.tool("charge")

    @workflow(name="busy", version=1, state=Facts)
    class Busy:
        @step
        def act(run: Any):
            run.call(charge, resource="a")
            commands.cancel(UUID(run.id), tenant=engine.tenant, done="compensate", **WHY)
            run.call(charge, resource="never")

    run = engine.run("busy")
    assert run.state == "cancelled"
    assert bank.charged == ["a"]
    engine.rounds()
    engine.drain()
    assert (states(run), bank.order) == (["done"], ["a"])


def test_order_given_by_a_process_that_died_is_applied_by_upkeep(engine, bank, database):
    run = cancelled(engine, "charge:a", done="keep")
    with database.transaction() as cursor:
        owing.order(cursor, run.pk, choice="compensate", actor="ann", reason="because")
    engine.rounds()
    engine.drain()
    assert states(run) == ["done"]
    assert owing.apply_ready(database) == 0


def test_effects_of_child_runs_are_undone_with_their_parents(engine, bank):
    charge = registry.tool("charge")

    @workflow(name="kid", version=1, state=Facts)
    class Kid:
        @step
        def act(run: Any):
            run.call(charge, resource=f"kid-{run.state.n}")

    @workflow(name="parent", version=1, state=Facts)
    class Parent:
        @step
        def act(run: Any):
            run.call(charge, resource="parent")
            run.children("kid", [{"n": 1}, {"n": 2}])
            run.approval("go on")

    run = engine.go_on(engine.run("parent"))
    assert sorted(bank.charged) == ["kid-1", "kid-2", "parent"]
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert sorted(bank.order) == ["kid-1", "kid-2", "parent"]
    assert bank.order[-1] == "parent"
    assert set(Compensation.objects.values_list("state", flat=True)) == {"done"}


def test_doubt_settled_with_compensate_is_owed_once_and_outlives_its_run(engine, bank, database):
    run = make_run(state="failed", tenant=engine.tenant)
    effect = make_effect(run, tool="charge", state="in_doubt")
    with database.transaction() as cursor:
        made = owing.owe(cursor, effect.pk, actor="bob", because="nobody knows")
        assert owing.owe(cursor, effect.pk, actor="bob", because="again") is None
    one = Compensation.objects.get()
    assert one.pk == made
    assert (one.state, one.how, one.tool, one.because) == ("owed", "tool", "refund", "bob: nobody knows")


def test_effect_of_a_tool_that_says_nothing_is_owed_as_a_persons_task(engine, bank, database):
    effect = make_effect(make_run(state="failed", tenant=engine.tenant), tool="unknown", state="in_doubt")
    with database.transaction() as cursor:
        owing.owe(cursor, effect.pk, actor="bob", because="nobody knows")
    one = Compensation.objects.get()
    assert one.how == "person"
    assert "Nothing says how unknown is undone" in one.instructions


def test_effect_that_turns_out_to_have_happened_after_the_order_is_owed_too(engine, bank, database):
    run = cancelled(engine, "charge:a", done="later")
    late = make_effect(run, tool="charge", state="in_doubt")
    unordered = make_effect(make_run(state="failed", tenant=engine.tenant), tool="charge", state="in_doubt")
    with database.transaction() as cursor:
        assert owing.owe_if_ordered(cursor, late.pk) is not None
        assert owing.owe_if_ordered(cursor, unordered.pk) is None
    assert states(run) == ["owed", "owed"]


# Undoing.


def test_linked_run_undoes_newest_first_with_the_facts_of_each_effect(engine, bank):
    run = cancelled(engine, "charge:a", "mail:x", "charge:b", "charge:c")
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])
    assert bank.asked == [{"downstream_id": f"charge-{name}"} for name in "cba"]
    work = linked(run)
    assert (work.state, work.workflow, work.created_by, work.labels) == (
        "succeeded", owing.WORKFLOW, "ann", {"undoes": str(run.pk)},
    )  # fmt: skip
    one = undone(run)[0]
    assert one.undo_effect is not None
    assert (one.settled_by, one.downstream_id, one.undo_effect.run_id) == (f"run {work.pk}", "refund-c", work.pk)
    assert (one.approved_by, one.evidence) == ("ann", "")
    told = [name for name in events_of(run) if name.startswith("compensation")]
    assert told == ["compensation_begun", *["compensation_running", "compensation_done"] * 3]
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_finished_run_is_compensated_on_request_once(engine, bank):
    run = run_of(engine, "charge:a", "charge:b", ask=False)
    assert run.state == "failed"
    done = compensating.compensate(run.pk, tenant=engine.tenant, **WHY)
    assert "2 of its effects are being undone" in done.message
    with pytest.raises(TransitionRefused, match="nothing is, or all of it is being undone"):
        compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="me too")
    engine.drain()
    assert bank.order == ["b", "a"]
    with pytest.raises(TransitionRefused):
        compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="again")
    assert [e.verb for e in AuditEntry.objects.order_by("id")] == ["compensate", *["compensate (refused)"] * 2]


def test_open_run_is_not_compensated(engine, bank):
    run = run_of(engine, "charge:a")
    with pytest.raises(TransitionRefused, match="needs a finished run"):
        compensating.compensate(run.pk, tenant=engine.tenant, **WHY)


def test_run_of_which_undoing_has_begun_is_not_reopened(engine, bank):
    run = run_of(engine, "post:a", ask=False)
    compensating.compensate(run.pk, tenant=engine.tenant, **WHY)
    with pytest.raises(TransitionRefused, match="of which nothing is being undone"):
        commands.retry(run.pk, tenant=engine.tenant, **WHY)


def test_undo_that_fails_holds_those_after_it_until_a_person_lets_it_try_again(engine, bank):  # C043
    bank.script["b"] = [RuntimeError("away")] * 3
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    assert (states(run), bank.order) == (["done", "failed", "approved"], ["c"])
    failed = undone(run)[1]
    assert "gave up after 3 attempts: away" in failed.error
    assert linked(run).state == "waiting"
    engine.rounds()
    engine.drain()
    assert states(run) == ["done", "failed", "approved"]
    compensating.try_again(failed.pk, tenant=engine.tenant, actor="bob", reason="the bank is back")
    engine.drain()
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])
    assert len(bank.refunds) == 3
    assert undone(run)[1].error == ""
    assert linked(run).state == "succeeded"


def test_failed_undo_is_tried_again_and_again(engine, bank):  # C043
    bank.script["a"] = [RuntimeError("away")] * 4  # each entry after the first makes one attempt
    run = cancelled(engine, "charge:a")
    for _ in range(2):
        failed = undone(run)[0]
        assert failed.state == "failed"
        compensating.try_again(failed.pk, tenant=engine.tenant, actor="bob", reason="now")
        engine.drain()
    assert (states(run), bank.order) == (["done"], ["a"])
    assert IdempotencyRecord.objects.filter(tool="refund").count() == 1


def test_refused_undo_is_tried_again_as_a_call_of_its_own(engine, bank):
    bank.script["a"] = [Refused("no money left")]
    run = cancelled(engine, "charge:a")
    one = undone(run)[0]
    assert (one.state, one.error, one.spent_slots) == ("failed", "no money left", 1)
    compensating.try_again(one.pk, tenant=engine.tenant, actor="bob", reason="there is some")
    engine.drain()
    assert states(run) == ["done"]
    assert list(IdempotencyRecord.objects.filter(tool="refund").order_by("id").values_list("state", flat=True)) == [
        "refused", "succeeded"
    ]  # fmt: skip


def test_failed_undo_is_waived_or_done_by_hand_and_the_next_one_follows(engine, bank):  # C043
    bank.script["b"], bank.script["c"] = [Refused("no")], [Refused("no")]
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    first, second, _ = undone(run)
    assert states(run) == ["failed", "approved", "approved"]
    with pytest.raises(InputRefused, match="say why"):
        compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason=" ")
    compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason="too old")
    engine.drain()
    assert states(run) == ["waived", "failed", "approved"]
    compensating.report_done(second.pk, tenant=engine.tenant, actor="bob", evidence="receipt 7", downstream_id="R7")
    engine.drain()
    assert (states(run), bank.order) == (["waived", "done", "done"], ["a"])
    second.refresh_from_db()
    assert (second.settled_by, second.evidence, second.downstream_id) == ("bob", "receipt 7", "R7")
    assert linked(run).state == "succeeded"


@pytest.mark.parametrize("point", ["before_intent", "after_intent", "after_answer"])
def test_undo_interrupted_anywhere_is_done_once(engine, bank, point):  # C044
    run = run_of(engine, "charge:a", "charge:b")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    failpoints.arm(f"{point}=raise")
    try:
        engine.drain()
    finally:
        failpoints.arm("")
    work = linked(run)
    assert (work.state, work.error_class) == ("queued", "durableops.failpoints.FailpointReached")
    engine.go_on(work)
    assert (states(run), bank.order) == (["done", "done"], ["b", "a"])
    assert len(bank.refunds) == 2


def test_undo_whose_linked_run_was_cancelled_after_the_refund_is_found_by_the_next_one(
    engine, bank, monkeypatch
):  # C044
    run = run_of(engine, "charge:a", "charge:b")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    real = undoing._mark
    monkeypatch.setattr(
        undoing, "_mark", lambda run, one, *given, **more: _cancel_then(engine, run, real, one, given, more)
    )
    engine.drain()
    monkeypatch.setattr(undoing, "_mark", real)
    assert (linked(run).state, bank.order) == ("cancelled", ["b"])
    engine.rounds()
    assert states(run) == ["owed", "owed"]
    compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="go on")
    engine.drain()
    assert (states(run), bank.order, len(bank.refunds)) == (["done", "done"], ["b", "a"], 2)


def _cancel_then(engine: Any, run: Any, real: Any, one: Compensation, given: Any, more: Any) -> None:
    """The linked run is cancelled just when the refund is on record and the compensation does not say so yet."""
    if more["event"] == "compensation_done":
        commands.cancel(run.hand.run_id, tenant=engine.tenant, done="keep", **WHY)
        return
    real(run, one, *given, **more)


def test_late_worker_cannot_move_a_compensation_on(engine, bank):
    run = run_of(engine, "charge:a")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    late: list[Any] = []

    def slow(call, **request):
        late.append(call.key)
        if len(late) == 1:
            engine.lose_worker()
            engine.drain()
        return {"id": "r"}

    bank.refund = slow
    engine.drain()
    assert states(run) == ["done"]
    assert len(set(late)) == 1
    assert [name for name in events_of(run) if name == "compensation_done"] == ["compensation_done"]


def test_linked_run_that_ended_leaves_what_is_left_as_owed_and_another_goes_on(engine, bank):  # C043
    bank.script["b"] = [Refused("no")]
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    commands.cancel(linked(run).pk, tenant=engine.tenant, actor="bob", reason="stop")
    engine.rounds()
    assert states(run) == ["done", "owed", "owed"]
    assert "compensation_owed" in events_of(run)
    compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="go on")
    engine.drain()
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])


def test_request_of_the_undo_is_made_by_the_author(engine, bank):
    seen: list[DoneEffect] = []

    @tool(safety="keyed", name="unbook")
    def unbook(call, *, seat: int, note: str):
        return {"gone": seat}

    def request(effect: DoneEffect) -> dict[str, Any]:
        seen.append(effect)
        return {"seat": effect.result["seat"], "note": f"of {effect.author_key}"}

    @tool(safety="keyed", name="book", compensate=unbook, undo_request=request)
    def book(call, *, name: str):
        return {"seat": 12}

    @workflow(name="trip", version=1, state=Facts)
    class Trip:
        @step
        def act(run: Any):
            run.call(book, resource="flight", key="k", name="Ann")
            run.approval("go on")

    run = engine.run("trip")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert states(run) == ["done"]
    assert (seen[0].tool, seen[0].resource, seen[0].author_key, seen[0].request) == (
        "book", "flight", "k", {"name": "Ann"}
    )  # fmt: skip
    assert IdempotencyRecord.objects.get(tool="unbook").request_summary == {"seat": 12, "note": "of k"}


def test_undo_request_that_raises_is_a_failed_compensation_and_not_a_failed_run(engine, bank):
    refund = registry.tool("refund")

    @tool(
        safety="keyed", name="odd", compensate=refund, undo_request=lambda effect: {"downstream_id": effect.result["x"]}
    )
    def odd(call):
        return {}

    @workflow(name="odd", version=1, state=Facts)
    class Odd:
        @step
        def act(run: Any):
            run.call(odd, resource="a")
            run.approval("go on")

    run = engine.run("odd")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert states(run) == ["failed"]
    assert "undo_request of odd failed: builtins.KeyError" in undone(run)[0].error
    assert linked(run).state == "waiting"


def test_tool_that_is_gone_is_a_failed_compensation(engine, bank):
    run = run_of(engine, "charge:a")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    Compensation.objects.update(tool="forgotten")
    engine.drain()
    assert "tool 'forgotten' is not known to this worker" in undone(run)[0].error


# People.


def test_persons_task_waits_for_evidence(engine, bank):
    run = cancelled(engine, "charge:a", "post:b")
    task, _ = undone(run)
    assert (states(run), task.instructions) == (["running", "approved"], "Reverse it in the ledger.")
    with pytest.raises(InputRefused, match="say what proves it"):
        compensating.report_done(task.pk, tenant=engine.tenant, actor="bob", evidence="  ")
    compensating.report_done(task.pk, tenant=engine.tenant, actor="bob", evidence="journal 12")
    engine.drain()
    assert (states(run), bank.order) == (["done", "done"], ["a"])


def test_tool_with_four_eyes_is_called_only_once_a_second_person_agrees(engine, bank):
    run = cancelled(engine, "charge:a", "big:b")
    one = undone(run)[0]
    assert (states(run), one.proposed_by, bank.order) == (["proposed", "approved"], "ann", [])
    with pytest.raises(TransitionRefused, match="another person than ann"):
        compensating.approve(one.pk, tenant=engine.tenant, actor="ann")
    assert states(run)[0] == "proposed"
    compensating.approve(one.pk, tenant=engine.tenant, actor="bob")
    engine.drain()
    assert (states(run), bank.order) == (["done", "done"], ["b", "a"])
    one.refresh_from_db()
    assert (one.proposed_by, one.approved_by) == ("ann", "bob")


def test_task_with_four_eyes_counts_only_once_a_second_person_agrees(engine, bank):
    run = cancelled(engine, "careful:a")
    one = undone(run)[0]
    compensating.report_done(one.pk, tenant=engine.tenant, actor="bob", evidence="journal 12")
    assert states(run) == ["proposed"]
    with pytest.raises(TransitionRefused, match="another person than bob"):
        compensating.approve(one.pk, tenant=engine.tenant, actor="bob")
    compensating.send_back(one.pk, tenant=engine.tenant, actor="cid", reason="not in the journal")
    assert (states(run), undone(run)[0].evidence) == (["running"], "")
    compensating.report_done(one.pk, tenant=engine.tenant, actor="bob", evidence="journal 13")
    compensating.approve(one.pk, tenant=engine.tenant, actor="cid")
    engine.drain()
    one.refresh_from_db()
    assert (one.state, one.settled_by, one.proposed_by, one.approved_by) == ("done", "bob", "bob", "cid")
    assert linked(run).state == "succeeded"


def test_owed_compensation_is_waived_or_done_without_a_linked_run(engine, bank):
    run = cancelled(engine, "charge:a", "charge:b", done="later")
    first, second = undone(run)
    compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason="small")
    compensating.report_done(second.pk, tenant=engine.tenant, actor="bob", evidence="R1")
    assert states(run) == ["waived", "done"]
    assert [e.verb for e in AuditEntry.objects.filter(actor="bob").order_by("id")] == [
        "waive_compensation", "compensation_done_by_hand"
    ]  # fmt: skip
    assert events_of(run)[-2:] == ["waive_compensation", "compensation_done_by_hand"]


WAYS_THERE = {"running": ["approved", "running"], "failed": ["approved", "running", "failed"]}


def put(state: str, work: Run) -> None:
    """Bring the only compensation from owed to a state, along legal moves."""
    for one in WAYS_THERE.get(state, [state]):
        final = one in ("done", "waived")
        Compensation.objects.update(
            state=one, proposed_by="ann" if one == "proposed" else "", reason="r", evidence="e",
            linked_run=None if one == "owed" else work, settled_by="x" if final else "",
            settled_at=work.created_at if final else None,
        )  # fmt: skip


@pytest.mark.parametrize("state", MOVES)
@pytest.mark.parametrize("verb", ["approve", "send_back", "report_done", "try_again", "waive", "claim"])
def test_verb_fits_the_state_or_changes_nothing_and_is_audited_either_way(engine, bank, verb, state):
    run = cancelled(engine, "charge:a", done="later")
    work = make_run(tenant=engine.tenant)
    put(state, work)
    legal = {
        "approve": {"proposed"}, "send_back": {"proposed"}, "report_done": {"owed", "approved", "failed"},
        "try_again": {"failed"}, "waive": {"owed", "proposed", "approved", "failed"},
        "claim": set(MOVES) - {"done", "waived"},
    }[verb]  # fmt: skip
    one = undone(run)[0]
    before = Compensation.objects.filter(pk=one.pk).values().get()
    given: dict[str, Any] = {"actor": "bob", "reason": "because"}
    if verb == "report_done":
        given["evidence"] = "R"
    if state in legal:
        getattr(compensating, verb)(one.pk, tenant=engine.tenant, **given)
        assert AuditEntry.objects.filter(actor="bob").count() == 1
        return
    with pytest.raises(TransitionRefused, match="Nothing was changed"):
        getattr(compensating, verb)(one.pk, tenant=engine.tenant, **given)
    assert Compensation.objects.filter(pk=one.pk).values().get() == before
    assert AuditEntry.objects.get(actor="bob").verb.endswith("(refused)")


def test_compensation_of_another_tenant_is_not_found(engine, bank):  # C143
    run = cancelled(engine, "charge:a", done="later")
    one = undone(run)[0]
    for verb in (compensating.waive, compensating.claim, compensating.approve, compensating.try_again):
        with pytest.raises(CompensationNotFound):
            verb(one.pk, tenant=make_tenant("other"), **WHY)
    assert states(run) == ["owed"]


def test_of_two_who_decide_at_once_one_wins_and_the_other_hears_who(engine, bank):  # C046
    run = cancelled(engine, "charge:a", done="later")
    one = undone(run)[0]
    people = [
        Background(lambda: compensating.waive(one.pk, tenant=engine.tenant, actor="bob", reason="small")),
        Background(lambda: compensating.report_done(one.pk, tenant=engine.tenant, actor="cid", evidence="R1")),
    ]
    ended: list[Any] = []
    for person in people:
        try:
            ended.append(person.result())
        except TransitionRefused as refused:
            ended.append(refused)
    lost = [error for error in ended if isinstance(error, TransitionRefused)]
    assert len(lost) == 1
    one.refresh_from_db()
    assert f"is {one.state} ({one.settled_by}, " in str(lost[0])
    assert AuditEntry.objects.filter(verb__in=["waive_compensation", "compensation_done_by_hand"]).count() == 1


def test_two_who_begin_at_once_begin_once(engine, bank):  # C046
    run = run_of(engine, "charge:a", ask=False)
    said: dict[str, Any] = {"tenant": engine.tenant, "reason": "r"}
    people = [Background(partial(compensating.compensate, run.pk, actor=who, **said)) for who in ("bob", "cid")]
    outcomes = []
    for person in people:
        try:
            outcomes.append(person.result().message)
        except TransitionRefused as refused:
            outcomes.append(str(refused))
    assert sum("being undone by run" in text for text in outcomes) == 1
    engine.drain()
    assert (states(run), bank.order, Run.objects.filter(workflow=owing.WORKFLOW).count()) == (["done"], ["a"], 1)


def test_task_somebody_is_on_says_who_and_is_free_again(engine, bank):
    run = cancelled(engine, "post:a", done="later")
    one = undone(run)[0]
    compensating.claim(one.pk, tenant=engine.tenant, actor="bob")
    with pytest.raises(TransitionRefused, match="bob"):
        compensating.claim(one.pk, tenant=engine.tenant, actor="cid")
    compensating.unclaim(one.pk, tenant=engine.tenant, actor="cid")
    compensating.claim(one.pk, tenant=engine.tenant, actor="cid")
    one.refresh_from_db()
    assert one.claimed_by == "cid"


def test_built_in_workflow_is_started_by_nobody(engine, bank):
    with pytest.raises(InputRefused, match="is built in"):
        engine.start(owing.WORKFLOW, {"undoes": "x"})


def test_linked_run_in_doubt_about_an_undo_waits_to_be_settled(engine, bank):
    from datetime import timedelta

    @tool(safety="keyed", name="forgetful", key_window=timedelta(hours=1), retry=ONCE)
    def forgetful(call, *, downstream_id: str):
        raise RuntimeError("no answer")

    @tool(safety="keyed", name="pay", compensate=forgetful)
    def pay(call):
        return {}

    @workflow(name="payer", version=1, state=Facts)
    class Payer:
        @step
        def act(run: Any):
            run.call(pay, resource="a")
            run.approval("go on")

    run = engine.run("payer")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    one = undone(run)[0]
    assert one.state == "failed"
    IdempotencyRecord.objects.filter(tool="forgetful").update(window_ends_at=run.created_at)
    compensating.try_again(one.pk, tenant=engine.tenant, actor="bob", reason="now")
    engine.drain()
    assert (linked(run).state, states(run)) == ("in_doubt", ["running"])


def test_queued_message_is_undone_only_after_it_was_delivered(engine, bank):
    run = run_of(engine, ask=True)
    effect = make_effect(run, tool="charge", state="queued", safety="outbox", downstream_id="")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert (states(run), bank.order, linked(run).state) == (["approved"], [], "waiting")
    IdempotencyRecord.objects.filter(pk=effect.pk).update(state="succeeded", completed_at=run.created_at, result="{}")
    make_due(linked(run))
    engine.rounds()
    engine.drain()
    assert (states(run), len(bank.order)) == (["done"], 1)
