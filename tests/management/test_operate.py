"""`manage.py operate`: the operators' verbs from a shell. What each verb does is tested with the verbs."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from runs.models import AuditEntry, PauseSwitch, Tenant
from runs.states import State
from tests.factories import make_run, make_tenant, make_wait

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
