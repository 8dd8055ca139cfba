"""Retention over the API: rules, previews, legal holds and erasures of the token's tenant, each with its reason."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from durableops.engine.retention import holds, rules
from runs.models import AuditEntry, Cleanup, Erasure, LegalHold, RetentionRule, Run
from runs.retention.classes import CLASSES
from tests.api.clients import read
from tests.factories import make_artifact, make_checkpoint, make_run, now

WHY = {"reason": "the law"}


def finished(tenant, *, days: int = 40, **over) -> Run:
    at = now() - timedelta(days=days)
    run = make_run(state="succeeded", tenant=tenant, finished_at=at, created_at=at, **over)
    make_checkpoint(run, seq=1, kind="page", state='{"n":1}', state_seq=1)
    return run


def test_rule_is_set_for_the_tokens_tenant_and_read_again(caller, acme):
    answer = caller.post("/retention/rules", WHY | {"subject": "decision", "keeps": "seconds", "seconds": 0})
    assert answer.status_code == 201
    made = read(answer)
    assert (made["seconds"], made["workflow"], made["reason"]) == (0, "", "the law")
    assert RetentionRule.objects.get().tenant == acme
    told = read(caller.get("/retention/rules?workflow=order"))
    windows = {one["subject"]: (one["seconds"], one["rule"]) for one in told["windows"]}
    assert windows["decision"] == (0, made["id"])
    assert (windows["audit"], windows["raw_prompt"]) == ((None, 0), (7 * 86400, 0))
    assert told["policy"] == made["id"]
    assert AuditEntry.objects.get(verb="set_retention").reason == "the law"


@pytest.mark.parametrize(
    "body",
    [
        {"subject": "nothing", "keeps": "for_ever"},
        {"subject": "event", "keeps": "seconds"},
        {"subject": "event", "keeps": "for_ever", "seconds": 5},
        {"subject": "event", "keeps": "seconds", "seconds": -1},
        {"subject": "event", "keeps": "seconds", "seconds": 10**12},
        {"subject": "audit", "keeps": "for_ever", "workflow": "order"},
        {"subject": "event", "keeps": "for_ever", "reason": ""},
    ],
)
def test_rule_that_cannot_be_is_refused(caller, body):
    answer = caller.post("/retention/rules", WHY | body)
    assert (answer.status_code, read(answer)["code"]) == (400, "input.refused")
    assert not RetentionRule.objects.exists()


def test_rehearsal_says_what_would_change_and_sets_nothing(caller, acme, other):
    run = finished(acme, days=10)
    finished(other, days=10)
    seen = read(caller.post("/retention/rules/rehearse", {"subject": "checkpoint", "keeps": "seconds", "seconds": 60}))
    assert (seen["runs"], seen["complete"]) == (1, True)
    [change] = seen["changes"]
    assert (change["data_class"], change["rows"], change["sample"]) == ("checkpoint", 1, [str(run.pk)])
    assert not RetentionRule.objects.exists()


def test_preview_says_what_goes_and_what_stays_and_why(caller, stranger, acme, other):
    goes, held = finished(acme), finished(acme)
    finished(other)
    holds.place(tenant=acme, run_id=held.pk, actor="ada", reason="court")
    answer = caller.post("/retention/previews", {"most": 100})
    assert answer.status_code == 201
    made = read(answer)
    assert made["runs"] == 2
    assert {one["data_class"] for one in made["goes"]} == {"checkpoint"}
    assert made["goes"][0]["sample"] == [str(goes.pk)]
    assert {(one["why"], one["words"]) for one in made["stays"]} == {("legal_hold", "a legal hold")}
    assert read(caller.get(f"/retention/previews/{made['id']}")) == made
    assert stranger.get(f"/retention/previews/{made['id']}").status_code == 404
    assert not Cleanup.objects.exists()


def test_run_tells_what_of_it_is_kept_until_when_and_what_holds_it(caller, stranger, acme):
    run = finished(acme, days=10, state_bytes=7, labels={"customer": "ann"})
    make_artifact(run, data_class="deliverable")
    told = read(caller.get(f"/runs/{run.pk}/retention"))
    classes = {one["data_class"]: one for one in told["classes"]}
    assert [one["data_class"] for one in told["classes"]] == list(CLASSES)
    checkpoint = classes["checkpoint"]
    assert (checkpoint["rows"], checkpoint["seconds"], checkpoint["rule"]) == (1, 30 * 86400, 0)
    assert run.finished_at
    assert datetime.fromisoformat(checkpoint["goes_at"]) == run.finished_at + timedelta(days=30)
    assert checkpoint["due_at"] == checkpoint["goes_at"]
    assert (classes["deliverable"]["rows"], classes["deliverable"]["bytes"]) == (1, 7)
    assert classes["effect_key"]["held_by"][0] == {
        "why": "class:checkpoint", "words": "its data of class checkpoint is kept",
    }  # fmt: skip
    assert told["rows"] == sum(one["rows"] for one in told["classes"])
    assert (told["state_bytes"], told["legal_holds"]) == (7, [])

    rule = rules.set_rule("event", keeps="for_ever", tenant=acme, actor="ada", reason="law")
    on_label = holds.place(tenant=acme, label="customer", value="ann", actor="ada", reason="court")
    holds.place(tenant=acme, label="customer", value="bob", actor="ada", reason="another one")
    told = read(caller.get(f"/runs/{run.pk}/retention"))
    classes = {one["data_class"]: one for one in told["classes"]}
    assert (told["legal_holds"], told["policy"]) == ([on_label.pk], rule.pk)
    assert {"why": "legal_hold", "words": "a legal hold"} in classes["checkpoint"]["held_by"]
    assert (classes["checkpoint"]["goes_at"], classes["checkpoint"]["never"]) == (None, False)
    assert (classes["event"]["never"], classes["event"]["due_at"], classes["event"]["rule"]) == (True, None, rule.pk)
    assert stranger.get(f"/runs/{run.pk}/retention").status_code == 404
    assert caller.get(f"/runs/{run.pk}/retention?x=1").status_code == 400


def test_open_run_keeps_everything_because_it_is_open(caller, acme):
    told = read(caller.get(f"/runs/{make_run(tenant=acme).pk}/retention"))
    assert {one["held_by"][0]["why"] for one in told["classes"]} <= {"open", "class:checkpoint"}
    assert {one["due_at"] for one in told["classes"]} == {None}


def test_hold_is_placed_listed_and_lifted(caller, stranger, acme):
    run = finished(acme)
    placed = [
        read(caller.post("/retention/holds", WHY | body))
        for body in ({"run": str(run.pk)}, {"label": "customer", "value": "ann"}, {"everything": True})
    ]
    assert [one["scope"] for one in placed] == ["run", "label", "tenant"]
    first = read(caller.get("/retention/holds?limit=2"))
    rest = read(caller.get(f"/retention/holds?limit=2&before={first['next']}"))
    assert [one["id"] for one in first["holds"] + rest["holds"]] == [one["id"] for one in reversed(placed)]
    assert rest["next"] is None
    assert stranger.post(f"/retention/holds/{placed[0]['id']}/lift", WHY).status_code == 404
    lifted = read(caller.post(f"/retention/holds/{placed[0]['id']}/lift", WHY))
    assert lifted["lift_reason"] == "the law"
    assert caller.post(f"/retention/holds/{placed[0]['id']}/lift", WHY).status_code == 400
    assert [one["id"] for one in read(caller.get("/retention/holds?state=lifted"))["holds"]] == [placed[0]["id"]]
    assert read(stranger.get("/retention/holds"))["holds"] == []


@pytest.mark.parametrize(
    "body", [{}, {"run": str(UUID(int=1)), "everything": True}, {"label": "a", "everything": True}]
)
def test_hold_on_nothing_or_on_several_things_is_refused(caller, body):
    assert caller.post("/retention/holds", WHY | body).status_code == 400
    assert not LegalHold.objects.exists()


def test_hold_on_a_run_of_another_tenant_is_refused(stranger, acme):
    answer = stranger.post("/retention/holds", WHY | {"run": str(finished(acme).pk)})
    assert answer.status_code == 404
    assert not LegalHold.objects.exists()


def test_erasure_is_asked_for_and_tells_what_became_of_it(caller, stranger, acme):
    answer = caller.post("/retention/erasures", WHY | {"label": "customer", "value": "ann"})
    assert answer.status_code == 201
    made = read(answer)
    assert (made["everything"], made["finished_at"], made["erased"], made["stayed"]) == (False, None, {}, {})
    Erasure.objects.update(stayed={"key_window": 3}, erased={"input": {"rows": 7, "bytes": 70}})
    told = read(caller.get(f"/retention/erasures/{made['id']}"))
    assert (told["erased"], told["stayed"]) == ({"input": {"rows": 7, "bytes": 70}}, {"key_window": 3})
    assert [one["id"] for one in read(caller.get("/retention/erasures"))["erasures"]] == [made["id"]]
    assert stranger.get(f"/retention/erasures/{made['id']}").status_code == 404
    assert read(stranger.get("/retention/erasures"))["erasures"] == []


@pytest.mark.parametrize("body", [{}, {"label": "customer", "everything": True}, {"value": "ann"}])
def test_erasure_of_nothing_or_of_two_things_is_refused(caller, body):
    assert caller.post("/retention/erasures", WHY | body).status_code == 400
    assert not Erasure.objects.exists()


def test_number_beyond_all_is_not_found(caller, acme):
    for path in (f"previews/{2**70}", f"erasures/{2**70}"):
        assert caller.get(f"/retention/{path}").status_code == 404
    assert caller.post(f"/retention/holds/{2**70}/lift", WHY).status_code == 404
    assert rules.version() == 0
