"""`manage.py operate` on queues of people: what is owed, messages nobody took, many runs at once, going back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from durableops.authoring.decorators import step, workflow
from durableops.authoring.state import State as AuthorState
from durableops.engine.bulk import executing
from durableops.engine.start import start
from runs.models import AuditEntry, Bulk, Checkpoint, Compensation, OutboxMessage, Run
from runs.states import State
from tests.factories import make_compensation, make_effect, make_message, make_run, make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def operate(*arguments: str) -> None:
    call_command("operate", *arguments, "--reason", "because", "--tenant", "acme")


def told(capsys, *arguments: str) -> Any:
    """What a call prints for scripts."""
    operate(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def owe(**over: Any) -> Compensation:
    effect = make_effect(make_run(state=State.CANCELLED), state="succeeded", tool="post", resource="order 7")
    return make_compensation(effect, **over)


def test_what_is_owed_is_listed_and_done_by_hand_with_its_proof(tenant, clean_queue, capsys):
    one = owe()
    call_command("operate", "owed", "--tenant", "acme")
    assert f"{one.pk}  owed  post order 7 of run {one.run_id}  by hand: call them" in capsys.readouterr().out
    with pytest.raises(CommandError, match="say what proves it"):
        operate("undone", str(one.pk))
    done = told(capsys, "undone", str(one.pk), "--evidence", "receipt 7", "--downstream-id", "R-7")
    assert (done["compensation"], done["state"]) == (one.pk, "done")
    assert told(capsys, "owed")["compensations"] == []


def test_four_eyes_are_two_actors(tenant, clean_queue, capsys):
    one = owe(four_eyes=True)
    operate("undone", str(one.pk), "--evidence", "receipt 7", "--actor", "ann")
    with pytest.raises(CommandError, match="another person than ann"):
        operate("approve-undo", str(one.pk), "--actor", "ann")
    operate("approve-undo", str(one.pk), "--actor", "ben")
    assert Compensation.objects.get().state == "done"


def test_waived_is_final_and_says_why(tenant, clean_queue, capsys):
    one = owe()
    operate("waive", str(one.pk))
    with pytest.raises(CommandError, match="is waived"):
        operate("retry-undo", str(one.pk))
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == [
        "waive_compensation", "retry_compensation (refused)",
    ]  # fmt: skip


def test_messages_are_listed_tried_again_and_skipped(tenant, clean_queue, capsys):
    poisoned = [make_message(make_run(), state="poisoned", error_message="no such box") for _ in range(2)]
    waits = make_message(make_run())
    shown = told(capsys, "messages", "--limit", "1")
    assert ([one["id"] for one in shown["messages"]], shown["more"]) == ([poisoned[0].pk], True)
    assert [one["id"] for one in told(capsys, "messages", "--state", "pending")["messages"]] == [waits.pk]
    operate("retry-message", str(poisoned[0].pk))
    operate("skip-message", str(poisoned[1].pk))
    assert "is skipped" in capsys.readouterr().out
    states = OutboxMessage.objects.filter(pk__in=[one.pk for one in poisoned]).order_by("pk")
    assert list(states.values_list("state", flat=True)) == ["pending", "skipped"]


def test_many_runs_are_previewed_started_and_each_has_its_outcome(tenant, clean_queue, capsys):
    runs = [make_run(state=State.FAILED, workflow="order") for _ in range(2)]
    make_effect(runs[0], state="intended", safety="keyed", tool="book")
    make_run(state=State.FAILED, workflow="other")
    made = told(capsys, "bulk-preview", "retry", "--filter", "state:failed workflow:order")
    assert (made["runs"], made["fits"], made["plan"]["harmless"]) == (2, 2, False)
    bulk = str(made["bulk"])
    with pytest.raises(CommandError, match=r"not harmless(?s:.*)sent again with the old key"):
        operate("bulk-start", bulk)
    assert told(capsys, "bulk-start", bulk, "--plan")["plan_hash"] == made["plan"]["plan_hash"]
    operate("bulk-start", bulk, "--plan-hash", made["plan"]["plan_hash"])
    operate("bulk-pause", bulk)
    operate("bulk-resume", bulk)
    executing.execute_batch()
    capsys.readouterr()
    assert told(capsys, "bulk-show", bulk)["outcomes"] == {"pending": 0, "done": 2, "refused": 0, "failed": 0}
    first = told(capsys, "bulk-results", bulk, "--limit", "1")
    assert [first["next"], len(told(capsys, "bulk-results", bulk, "--after", "1")["results"])] == [1, 1]
    with pytest.raises(CommandError, match="is done"):
        operate("bulk-abort", bulk)


def test_run_goes_back_and_is_forked_with_an_edited_state(tenant, own_registry, clean_queue, capsys, tmp_path):
    class Order(AuthorState):
        customer: str

    @workflow(name="order", version=1, state=Order)
    class OrderWorkflow:
        @step
        def take(run: Any) -> None:
            return None

    run = Run.objects.get(pk=start("order", {"customer": "ann"}, tenant=tenant, actor="tests").run_id)
    edited = tmp_path / "state.json"
    edited.write_text('{"customer": "bob"}')
    arguments = ["fork", str(run.pk), "--checkpoint", "0", "--state-file", str(edited), "--key", "k"]
    made = told(capsys, *arguments)
    assert made["forked_from"] == str(run.pk)
    assert told(capsys, *arguments)["run"] == made["run"], "called again with its key it is the same fork"
    assert Checkpoint.objects.get(run=made["run"], seq=0).state == '{"customer":"bob"}'
    operate("retry-from", str(run.pk), "--checkpoint", "0")
    run.refresh_from_db()
    assert run.lineage == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["undone", "x", "--evidence", "y"], "needs the number of a compensation"),
        (["undone", "1", "--evidence", "y"], "there is no compensation 1"),
        (["owed", "7"], "is about everything"),
        (["owed", "--limit", "0"], "--limit is 1 to"),
        (["skip-message", "1"], "there is no message 1"),
        (["bulk-show", "1"], "there is no bulk action 1"),
        (["bulk-preview", "migrate", "--filter", ""], "begins elsewhere"),
        (["bulk-preview", "pause"], "one of them"),
        (["bulk-preview", "pause", "--filter", "colour:red"], "--filter: colour:red"),
        (["bulk-preview", "pause", "--runs", "seven"], "'seven' is not the id of a run"),
        (["fork", "01990000-0000-7000-8000-000000000000"], "needs --checkpoint"),
    ],
)
def test_what_makes_no_sense_changes_nothing(tenant, arguments, why):
    with pytest.raises(CommandError, match=why):
        operate(*arguments)
    assert not AuditEntry.objects.exists()
    assert not Bulk.objects.exists()


def test_queues_of_another_tenant_are_not_seen(tenant, clean_queue, capsys):  # C143
    theirs = make_tenant("other")
    run = make_run(state=State.CANCELLED, tenant=theirs)
    one = make_compensation(make_effect(run, state="succeeded"))
    message = make_message(run, state="poisoned")
    assert told(capsys, "owed")["compensations"] == told(capsys, "messages")["messages"] == []
    for verb, number in (("waive", one.pk), ("skip-message", message.pk)):
        with pytest.raises(CommandError, match="there is no"):
            operate(verb, str(number))
