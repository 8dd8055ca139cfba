"""`manage.py retention` and `manage.py data`: previews, cleaning, rules, holds and erasures from a shell."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from durableops.engine.retention.lengths import parse, say
from durableops.errors import InputRefused
from runs.models import AuditEntry, Cleanup, Erasure, LegalHold, RetentionPreview, RetentionRule, Run
from tests.factories import make_doubt, make_effect, make_tenant
from tests.fixtures.engine import holding
from tests.upkeep.retention.conftest import full_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("media")]

OLD = timedelta(days=5000)


def told(capsys, *arguments, **options):
    call_command(*arguments, "--json", **options)
    return json.loads(capsys.readouterr().out)


def test_dry_run_says_what_would_go_and_what_stays_and_changes_nothing(capsys):
    gone, held = full_run(), full_run()
    make_doubt(make_effect(held, state="in_doubt"))
    found = told(capsys, "retention", "--dry-run")
    assert {one["data_class"] for one in found["goes"]} >= {"effect_key", "checkpoint"}
    assert {one["why"] for one in found["stays"] if not one["why"].startswith("class:")} == {"unsettled_effect"}
    assert (found["complete"], found["runs"], Cleanup.objects.count()) == (True, 2, 0)
    assert Run.objects.filter(pk=gone.pk).exists()


def test_what_a_dry_run_said_is_done_exactly_or_what_is_different_is_said(capsys):
    full_run()
    seen = told(capsys, "retention", "--dry-run")
    done = told(capsys, "retention", "--preview", str(seen["preview"]))
    assert (done["rows"], done["bytes"], done["different"], done["because"]) == (seen["rows"], seen["bytes"], [], [])
    with pytest.raises(CommandError, match="was carried out at"):
        call_command("retention", "--preview", str(seen["preview"]))
    with pytest.raises(CommandError, match="there is no preview 0"):
        call_command("retention", "--preview", "0")


def test_without_options_it_cleans_and_keeps_the_preview_it_made(capsys):
    full_run()
    done = told(capsys, "retention")
    assert (done["rows"] > 10, done["files"], done["different"], Run.objects.count()) == (True, 5, [], 0)
    assert RetentionPreview.objects.get().outcome is not None


def test_words_for_people_name_classes_reasons_and_runs(capsys):
    run, held = full_run(), full_run()
    make_doubt(make_effect(held, state="in_doubt"))
    call_command("retention", "--dry-run")
    text = capsys.readouterr().out
    assert "an effect is not settled" in text
    assert str(run.pk) in text
    call_command("retention")
    assert "checkpoint" in capsys.readouterr().out


def test_second_cleaner_goes_away_at_once_says_so_and_has_not_failed(capsys, second):  # C116
    full_run()
    call_command("retention")
    full_run()
    capsys.readouterr()
    with holding(second, "SELECT 1 FROM runs_retention_lane WHERE name = 'runs' FOR UPDATE"):
        call_command("retention")
    assert "another cleaner is at it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "keeps", "seconds"),
    [("7", "seconds", 7 * 86400), ("7 days", "seconds", 7 * 86400), ("36h", "seconds", 36 * 3600), ("0", "seconds", 0),
     ("1 year", "seconds", 365 * 86400), ("2 weeks", "seconds", 14 * 86400), ("5 min", "seconds", 300),
     ("for ever", "for_ever", None), ("KEEP", "for_ever", None), ("inherited", "inherited", None)],
)  # fmt: skip
def test_lengths_are_read_as_people_write_them(text, keeps, seconds):
    found = parse(text)
    assert (found.keeps, found.seconds) == (keeps, seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5 days", "7 fortnights", "9" * 13])
def test_what_is_no_length_is_refused_with_what_is(text):
    with pytest.raises(InputRefused, match="say such as 7 days"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "for ever"), (0, "0"), (86400, "1 day"), (7200, "2 hours"), (90, "90 seconds")]
)
def test_lengths_are_said_in_the_largest_unit_that_fits(seconds, words):
    assert say(seconds) == words


def test_rule_is_set_with_its_reason_and_audited(capsys):
    make_tenant("acme")
    found = told(
        capsys, "data", "rule", "raw_prompt", "3 days", "--tenant", "acme", "--reason", "privacy", "--actor", "ada"
    )
    assert found["seconds"] == 3 * 86400
    rule = RetentionRule.objects.get()
    assert (rule.tenant and rule.tenant.slug, rule.subject, rule.actor) == ("acme", "raw_prompt", "ada")
    assert AuditEntry.objects.get().before == {"seconds": 7 * 86400, "rule": 0}
    call_command("data", "windows", "--tenant", "acme")
    assert f"rule {rule.pk}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rule", "raw_prompt", "3 days"], "say why"),
        (["rule", "moods", "3 days", "--reason", "x"], "nothing that rules are about"),
        (["rule", "raw_prompt", "--reason", "x"], "wants what it is about and a length"),
        (["rule", "audit", "1", "--workflow", "w", "--reason", "x"], "leave the workflow out"),
        (["hold", "--reason", "x", "--tenant", "acme"], "say what is held"),
        (["hold", "--everything", "--reason", "x"], "say whose"),
        (["hold", "--run", "x", "--reason", "x", "--tenant", "acme"], "not the id of a run"),
        (["hold", "--label", "x", "--reason", "x", "--tenant", "acme"], "is not NAME=VALUE"),
        (["erase", "--reason", "x", "--tenant", "acme"], "say what is erased"),
        (["lift", "x", "--reason", "x", "--tenant", "acme"], "wants a number"),
        (["lift", "7", "--reason", "x", "--tenant", "acme"], "there is no legal hold 7"),
        (["status", "7"], "there is no erasure 7"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(arguments, message):
    make_tenant("acme")
    with pytest.raises(CommandError, match=message):
        call_command("data", *arguments)
    assert [model.objects.count() for model in (RetentionRule, LegalHold, Erasure)] == [0, 0, 0]


def test_what_of_a_run_is_kept_is_told_until_when_and_why(capsys):
    run = full_run(ago=timedelta(days=10))
    call_command("data", "kept", "--run", str(run.pk), "--tenant", run.tenant.slug, "--json")
    told = json.loads(capsys.readouterr().out)
    assert run.finished_at
    assert told["classes"]["checkpoint"]["goes_at"] == (run.finished_at + timedelta(days=30)).isoformat()
    assert (told["run"], told["classes"]["decision"]["rows"]) == (str(run.pk), 1)
    call_command("operate", "place_hold", str(run.pk), "--tenant", run.tenant.slug, "--reason", "court")
    assert "nothing of the run goes any more" in capsys.readouterr().out
    call_command("data", "kept", "--run", str(run.pk), "--tenant", run.tenant.slug)
    assert capsys.readouterr().out.count("stays: a legal hold") == len(told["classes"])
    call_command("operate", "lift_hold", str(run.pk), "--tenant", run.tenant.slug, "--reason", "over")
    assert not LegalHold.objects.filter(lifted_at=None).exists()
    for given in ("nonsense", str(UUID(int=1))):
        with pytest.raises(CommandError, match=r"is not the id of a run|there is no run"):
            call_command("data", "kept", "--run", given, "--tenant", run.tenant.slug)


def test_hold_is_placed_and_lifted(capsys):
    run = full_run()
    hold = told(capsys, "data", "hold", "--run", str(run.pk), "--tenant", "acme", "--reason", "court")["hold"]
    assert told(capsys, "retention")["rows"] == 0
    told(capsys, "data", "lift", str(hold), "--tenant", "acme", "--reason", "over")
    assert told(capsys, "retention")["rows"] > 0


def test_erasure_is_asked_for_and_told_of(capsys):
    full_run(ago=timedelta(days=1), labels={"customer": "7"})
    made = told(capsys, "data", "erase", "--label", "customer=7", "--tenant", "acme", "--reason", "asked")["erasure"]
    assert told(capsys, "retention")["rows"] > 0
    from durableops.engine.database import Database
    from durableops.upkeep.retention import erasures

    database = Database(name="tests")
    erasures.account(database)
    database.close()
    found = told(capsys, "data", "status", str(made))
    assert (found["finished_at"] is not None, found["stayed"]) == (True, {})
