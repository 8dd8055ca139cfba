"""`manage.py operate`: the operators' verbs from a shell. What each verb does is tested with the verbs."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from runs.models import AuditEntry, Doubt, IdempotencyRecord, PauseSwitch, QuotaPolicy, Run, System, Tenant
from runs.states import State
from tests.factories import make_doubt, make_effect, make_run, make_tenant, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def operate(*arguments: str) -> None:
    call_command("operate", *arguments, "--reason", "because")


def test_verb_says_what_it_came_to_as_one_json_object_and_is_audited(tenant, clean_queue, capsys):
    run = make_run(state=State.QUEUED)
    operate("cancel", str(run.pk), "--tenant", tenant.slug, "--actor", "ann", "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["verb"], told["run"], told["state"]) == ("cancel", str(run.pk), "cancelled")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.reason) == ("cancel", "ann", "because")


def test_everything_is_paused_and_goes_on(tenant, clean_queue, capsys):
    operate("pause-all", "--json")
    assert json.loads(capsys.readouterr().out)["verb"] == "pause-all"
    assert PauseSwitch.objects.filter(scope="all").exists()
    operate("resume-all")
    assert capsys.readouterr().out == "everything goes on.\n"
    with pytest.raises(CommandError, match="nothing is paused as a whole"):
        operate("resume-all")


def test_deadline_and_the_end_of_a_wait_are_moved(tenant, clean_queue):
    run = make_run(state=State.WAITING, deadline_at=now())
    wait = make_wait(run, expires_at=now() + timedelta(hours=1))
    operate("extend", str(run.pk), "--tenant", tenant.slug, "--until", "2036-01-01T00:00:00Z")
    operate("extend", str(run.pk), "--tenant", tenant.slug, "--until", "2035-01-01T00:00:00Z", "--wait", "go")
    run.refresh_from_db()
    wait.refresh_from_db()
    assert (run.deadline_at and run.deadline_at.year, wait.expires_at and wait.expires_at.year) == (2036, 2035)
    for wrong, why in (("soon", "an instant with its time zone"), ("2036-01-01T00:00:00", "its time zone")):
        with pytest.raises(CommandError, match=why):
            operate("extend", str(run.pk), "--tenant", tenant.slug, "--until", wrong)
    with pytest.raises(CommandError, match="no open wait named 'nothing'"):
        operate("extend", str(run.pk), "--tenant", tenant.slug, "--until", "2036-01-01T00:00:00Z", "--wait", "nothing")


def test_quota_of_a_tenant_and_of_a_resource_are_set(tenant, clean_queue, capsys):
    of_tenant = ("set-quota", "--tenant", tenant.slug, "--set")
    operate(*of_tenant, "running_cap=5", "--set", 'call_rates={"tool:a": 6}', "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["of"], told["running_cap"], told["call_rates"]) == (tenant.slug, 5, {"tool:a": 6})
    operate("set-quota", "--resource", "db-scan", "--set", "running_cap=2")
    operate(*of_tenant, "running_cap=none")
    found = {policy.resource: policy.running_cap for policy in QuotaPolicy.objects.all()}
    assert found == {"": None, "db-scan": 2}
    with pytest.raises(CommandError, match="is no limit"):
        operate(*of_tenant, "running_cap=many")


def test_budgets_of_a_tenant_are_set_and_raised_for_the_present_period(tenant, clean_queue, capsys):
    of_tenant = ("--tenant", tenant.slug, "--json")
    budgets = '{"day": {"money": 0.10}, "month": {"tokens": 500}}'
    operate("set-quota", *of_tenant, "--set", f"budgets={budgets}", "--set", "time_zone=Europe/Lisbon")
    told = json.loads(capsys.readouterr().out)
    assert (told["budgets"], told["time_zone"]) == (
        {"day": {"money": "0.1"}, "month": {"tokens": "500"}}, "Europe/Lisbon",
    )  # fmt: skip
    operate("add-tenant-budget", *of_tenant, "--budget", "day.money=0.05")
    assert json.loads(capsys.readouterr().out)["limits"] == {"money": "0.15"}
    for wrong, why in (("day.money", "no amount"), ("day.calls=1", "nothing limits it"), ("money=1", "period is")):
        with pytest.raises(CommandError, match=why):
            operate("add-tenant-budget", *of_tenant, "--budget", wrong)


def in_doubt() -> Doubt:
    System.objects.create(name="ledger")
    effect = make_effect(
        make_run(state=State.IN_DOUBT),
        state="in_doubt",
        safety="legacy",
        tool="post",
        system="ledger",
        holds_system=True,
    )
    return make_doubt(effect)


def test_doubt_is_settled_with_its_id_result_and_evidence(tenant, clean_queue, capsys):
    doubt = in_doubt()
    operate("settle", str(doubt.pk), "--tenant", tenant.slug, "--as", "happened", "--downstream-id", "L-7",
            "--result", '{"id": "L-7"}', "--evidence", "statement 3", "--json")  # fmt: skip
    told = json.loads(capsys.readouterr().out)
    assert (told["doubt"], told["run"], told["state"]) == (doubt.pk, str(doubt.run_id), "queued")
    doubt.refresh_from_db()
    assert (doubt.settled_as, doubt.downstream_id, doubt.evidence) == ("happened", "L-7", "statement 3")
    with pytest.raises(CommandError, match="was settled as happened"):
        operate("settle", str(doubt.pk), "--tenant", tenant.slug, "--as", "give_up")


def test_queue_of_a_system_is_released_paused_and_resumed(tenant, clean_queue, capsys):
    doubt = in_doubt()
    operate("release", str(doubt.pk), "--tenant", tenant.slug)
    assert "the queue of ledger goes on" in capsys.readouterr().out
    operate("pause-system", "ledger", "--tenant", tenant.slug)
    assert System.objects.get().paused
    with pytest.raises(CommandError, match="paused by command line"):
        operate("pause-system", "ledger", "--tenant", tenant.slug)
    operate("resume-system", "ledger", "--tenant", tenant.slug, "--json")
    assert not System.objects.get().paused
    assert [entry.verb for entry in AuditEntry.objects.filter(target_kind="system").order_by("id")] == [
        "pause_system", "resume_system",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["settle", "x", "--as", "happened"], "needs the number of a doubt"),
        (["settle", "1", "--as", "happened"], "there is no doubt 1"),
        (["settle", "1"], "settles nothing"),
        (["settle", "1", "--as", "happened", "--result", "{"], "--result"),
        (["pause-system"], "needs the name of a system"),
        (["pause-system", "nothing"], "has ever been queued for a system 'nothing'"),
    ],
)
def test_what_is_not_there_changes_nothing(tenant, arguments, why):
    with pytest.raises(CommandError, match=why):
        operate(*arguments, "--tenant", tenant.slug)
    assert not AuditEntry.objects.exists()


def test_one_of_several_approvals_has_to_be_named(tenant, clean_queue, capsys):
    run = make_run(state=State.WAITING)
    for name in ("price", "delivery"):
        make_wait(run, kind="approval", name=name)
    with pytest.raises(CommandError, match="asks for price, delivery: name one with --approval"):
        operate("approve", str(run.pk), "--tenant", tenant.slug)
    with pytest.raises(CommandError, match="has no open approval named 'colour'"):
        operate("approve", str(run.pk), "--tenant", tenant.slug, "--approval", "colour")
    operate("approve", str(run.pk), "--tenant", tenant.slug, "--approval", "price")
    assert "price was approved" in capsys.readouterr().out


def test_approvals_of_another_tenant_are_not_even_counted(tenant, clean_queue):
    run = make_run(state=State.WAITING, tenant=make_tenant("other"))
    make_wait(run, kind="approval", name="price")
    with pytest.raises(CommandError, match="has no open approval"):
        operate("approve", str(run.pk), "--tenant", tenant.slug)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pause"], "needs the id of a run"),
        (["pause", "seven"], "'seven' is not the id of a run"),
        (["pause", str(uuid4()), "--tenant", "mistyped"], "there is no tenant 'mistyped'"),
        (["pause-all", str(uuid4())], "is about everything"),
        (["pause-all", "--reason", "  "], "--reason is empty"),
        (["pause-all", "--actor", ""], "--actor is empty"),
        (["pause-all", "--actor", "a" * 1000], "--actor is no name"),
        (["pause-all", "--actor", "half\udce9"], "--actor is no name"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence_and_changes_nothing(tenant, clean_queue, arguments, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("operate", *([*arguments] if "--reason" in arguments else [*arguments, "--reason", "because"]))
    assert not AuditEntry.objects.exists()
    assert not PauseSwitch.objects.exists()
    assert not Tenant.objects.filter(slug="mistyped").exists()


def with_a_call_to_send_again(**more) -> Run:
    run = make_run(state=State.FAILED, step_id="take", **more)
    make_effect(run, state="intended", safety="keyed", tool="book", resource="hotel", step_id="take")
    return run


def test_plan_is_shown_and_nothing_is_done(tenant, clean_queue, capsys):
    run = with_a_call_to_send_again()
    call_command("operate", "retry", str(run.pk), "--plan", "--tenant", tenant.slug)
    shown = capsys.readouterr().out
    assert "1 call of book [keyed] (hotel): sent again with the old key" in shown
    assert "plan hash " in shown
    run.refresh_from_db()
    assert (run.state, AuditEntry.objects.count()) == ("failed", 0)


def test_verb_that_would_send_again_wants_its_plan_or_whatever_it_is(tenant, clean_queue, capsys):
    run, other = with_a_call_to_send_again(), with_a_call_to_send_again()
    with pytest.raises(CommandError, match=r"is not harmless and was not looked at(?s:.*)sent again with the old key"):
        operate("retry", str(run.pk), "--tenant", tenant.slug)
    with pytest.raises(CommandError, match="has changed since it was shown"):
        operate("retry", str(run.pk), "--tenant", tenant.slug, "--plan-hash", "0" * 64)
    call_command("operate", "retry", str(run.pk), "--plan", "--json", "--tenant", tenant.slug)
    found = json.loads(capsys.readouterr().out)
    assert (found["harmless"], found["calls"][0]["category"]) == (False, "again")
    operate("retry", str(run.pk), "--tenant", tenant.slug, "--plan-hash", found["plan_hash"])
    operate("retry", str(other.pk), "--tenant", tenant.slug, "--yes")
    assert set(Run.objects.values_list("state", flat=True)) == {"queued"}


def test_settling_as_not_happened_wants_its_plan_and_other_answers_do_not(tenant, clean_queue, capsys):
    doubt = in_doubt()
    IdempotencyRecord.objects.update(quiet_after=now() - timedelta(hours=1))
    call_command("operate", "settle", str(doubt.pk), "--plan", "--tenant", tenant.slug)
    assert "did_not: It is sent again, once" in capsys.readouterr().out
    with pytest.raises(CommandError, match="is not harmless"):
        operate("settle", str(doubt.pk), "--as", "did_not", "--tenant", tenant.slug)
    call_command("operate", "settle", str(doubt.pk), "--plan", "--json", "--tenant", tenant.slug)
    shown = json.loads(capsys.readouterr().out)["plan_hash"]
    operate("settle", str(doubt.pk), "--as", "did_not", "--plan-hash", shown, "--tenant", tenant.slug)
    doubt.refresh_from_db()
    assert doubt.settled_as == "did_not"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["pause", str(uuid4()), "--plan"], "has no plan"),
        (["retry", str(uuid4()), "--plan"], "there is no run"),
        (["settle", "1", "--plan"], "there is no doubt 1"),
        (["retry", str(uuid4()), "--yes", "--plan-hash", "0" * 64], "give one of them"),
    ],
)
def test_plan_of_what_is_not_there_is_refused(tenant, arguments, why):
    with pytest.raises(CommandError, match=why):
        operate(*arguments, "--tenant", tenant.slug)
