"""Scope x tenant x address: what each token may and may not, over every address there is (case C142)."""

from __future__ import annotations

import functools
import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from durableops import access, tokens
from durableops.access import GRANTS, SCOPES, VERBS, Permission
from durableops.api.app import openapi_document
from durableops.engine.bulk import capture
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from runs.models import (
    ApiToken,
    AuditEntry,
    Bulk,
    Compensation,
    Erasure,
    LegalHold,
    Membership,
    OutboxMessage,
    RetentionPreview,
    Run,
    System,
    Wait,
)
from runs.states import State
from tests import factories
from tests.api.clients import Caller, read

pytestmark = pytest.mark.usefixtures("media")

FACTS = "f" * 64
REASON = {"reason": "because"}
NOTHING_DUE = {"runs": 0, "complete": True, "rows": 0, "bytes": 0, "goes": [], "stays": []}
REASON_OF_BULK = {"verb": "pause", "filter": {}}
DECISION = {"reason": "because", "facts_hash": FACTS}

# Operation to its scope, the state its run must have, its body, and the status of success.
CASES: dict[str, tuple[str, str, Any, int]] = {
    "start_run": ("runs:start", "", {"workflow": "order", "input": {"customer": "ann"}}, 201),
    "list_runs": ("runs:read", "", None, 200),
    "get_run": ("runs:read", "queued", None, 200),
    "get_timeline": ("runs:read", "queued", None, 200),
    "get_run_retention": ("runs:read", "succeeded", None, 200),
    "list_effects_of_run": ("runs:read", "queued", None, 200),
    "cancel_run": ("runs:operate", "queued", REASON, 200),
    "pause_run": ("runs:operate", "queued", REASON, 200),
    "resume_run": ("runs:operate", "paused", REASON, 200),
    "retry_run": ("runs:operate", "failed", REASON, 200),
    "migrate_run": ("reviews:decide", "failed", REASON, 409),
    "list_reviews": ("runs:read", "", None, 200),
    "list_reviews_alike": ("runs:read", "reviewed", None, 200),
    "get_review": ("runs:read", "reviewed", None, 200),
    "revert_run": ("reviews:decide", "reviewed", REASON, 409),
    "pin_run": ("reviews:decide", "reviewed", REASON, 200),
    "unpin_run": ("reviews:decide", "reviewed", REASON, 409),
    "reject_run": ("reviews:decide", "reviewed", REASON, 200),
    "ask_second_run": ("reviews:decide", "reviewed", REASON, 200),
    "edit_run": ("reviews:decide", "reviewed", REASON | {"step": "b"}, 409),
    "move_run": ("reviews:decide", "reviewed", REASON | {"step": "b"}, 409),
    "preview_edit": ("reviews:decide", "reviewed", {"step": "b"}, 409),
    "list_checkpoints": ("runs:read", "queued", None, 200),
    "get_checkpoint": ("runs:read", "queued", None, 200),
    "retry_run_from": ("runs:operate", "failed", REASON | {"checkpoint": 0}, 200),
    "fork_run": ("runs:operate", "failed", REASON | {"checkpoint": 0}, 409),
    "compensate_run": ("runs:operate", "failed", REASON, 409),
    "get_plan": ("runs:read", "failed", None, 200),
    "list_files": ("runs:read", "queued", None, 200),
    "read_file": ("runs:read", "queued", None, 200),
    "link_file": ("runs:read", "queued", None, 201),
    "bring_file": ("events:send", "awaiting", b"a file", 200),
    "link_upload": ("events:send", "awaiting", None, 201),
    "list_prompts": ("runs:read", "queued", None, 200),
    "read_prompt": ("prompts:read", "queued", REASON, 200),
    "send_event": ("events:send", "", {"name": "paid"}, 201),
    "approve_approval": ("approvals:decide", "waiting", DECISION, 200),
    "refuse_approval": ("approvals:decide", "waiting", DECISION, 200),
    "add_budget_run": ("runs:operate", "queued", REASON | {"budget": {"tokens": 5}}, 409),
    "get_quota": ("runs:read", "", None, 200),
    "get_quota_history": ("runs:read", "", None, 200),
    "preview_quota": ("quotas:manage", "", {"changes": {"running_cap": 5}}, 200),
    "set_quota": ("quotas:manage", "", REASON | {"changes": {"running_cap": 5}}, 200),
    "add_tenant_budget": ("quotas:manage", "", REASON | {"period": "day", "budget": {"tokens": 5}}, 400),
    "list_clocks": ("runs:read", "", None, 200),
    "extend_run": ("runs:operate", "queued", REASON | {"deadline_at": "2036-01-01T00:00:00Z"}, 200),
    "extend_wait": ("runs:operate", "waiting", REASON | {"expires_at": "2036-01-01T00:00:00Z"}, 200),
    "list_approvals": ("runs:read", "", None, 200),
    "get_approval": ("runs:read", "waiting", None, 200),
    "delegate_approval": ("approvals:decide", "waiting", REASON | {"to": "nobody-here"}, 400),
    "escalate_approval": ("approvals:decide", "waiting", REASON, 200),
    "comment_approval": ("approvals:decide", "waiting", REASON, 200),
    "list_doubts": ("runs:read", "", None, 200),
    "get_doubt": ("runs:read", "in_doubt", None, 200),
    "settle_doubt": ("effects:settle", "in_doubt", REASON | {"how": "happened"}, 200),
    "release_system_of_doubt": ("effects:settle", "in_doubt", REASON, 200),
    "claim_doubt": ("effects:settle", "in_doubt", {}, 200),
    "unclaim_doubt": ("effects:settle", "in_doubt", {}, 409),
    "probe_doubt": ("effects:settle", "in_doubt", {}, 409),
    "list_systems": ("runs:read", "", None, 200),
    "get_system": ("runs:read", "in_doubt", None, 200),
    "move_call": ("runs:operate", "in_doubt", REASON | {"to": "first"}, 200),
    "list_compensations": ("runs:read", "", None, 200),
    "get_compensation": ("runs:read", "owing", None, 200),
    "approve_compensation": ("effects:settle", "owing", {}, 409),
    "send_back_compensation": ("effects:settle", "owing", REASON, 409),
    "finish_compensation": ("effects:settle", "owing", {"evidence": "receipt 7"}, 200),
    "retry_compensation": ("effects:settle", "owing", REASON, 409),
    "waive_compensation": ("effects:settle", "owing", REASON, 200),
    "claim_compensation": ("effects:settle", "owing", {}, 200),
    "unclaim_compensation": ("effects:settle", "owing", {}, 409),
    "list_messages": ("runs:read", "", None, 200),
    "get_message": ("runs:read", "messaged", None, 200),
    "retry_message": ("effects:settle", "messaged", REASON, 200),
    "skip_message": ("effects:settle", "messaged", REASON, 200),
    "redeliver_message": ("effects:settle", "messaged", REASON, 409),
    "preview_bulk": ("runs:operate", "", REASON_OF_BULK, 201),
    "list_bulks": ("runs:read", "", None, 200),
    "get_bulk": ("runs:read", "bulk", None, 200),
    "list_bulk_results": ("runs:read", "bulk", None, 200),
    "start_bulk": ("runs:operate", "bulk", REASON, 200),
    "pause_bulk": ("runs:operate", "bulk", REASON, 409),
    "resume_bulk": ("runs:operate", "bulk", REASON, 409),
    "abort_bulk": ("runs:operate", "bulk", REASON, 409),
    "list_rules": ("runs:read", "", None, 200),
    "set_rule": ("retention:manage", "", REASON | {"subject": "event", "keeps": "for_ever"}, 201),
    "rehearse_rule": ("retention:manage", "", {"subject": "event", "keeps": "for_ever"}, 200),
    "preview_retention": ("retention:manage", "", {"most": 10}, 201),
    "get_preview": ("runs:read", "retained", None, 200),
    "list_holds": ("runs:read", "", None, 200),
    "place_hold": ("retention:manage", "", REASON | {"everything": True}, 201),
    "lift_hold": ("retention:manage", "retained", REASON, 200),
    "list_erasures": ("runs:read", "", None, 200),
    "request_erasure": ("retention:manage", "", REASON | {"everything": True}, 201),
    "get_erasure": ("runs:read", "retained", None, 200),
}
NAMED = {"compensation_id": Compensation, "message_id": OutboxMessage, "bulk_id": Bulk, "preview_id": RetentionPreview,
         "hold_id": LegalHold, "erasure_id": Erasure}  # fmt: skip
"""What an address names besides runs, and the only row there is of it."""
TARGETS = {"": State.QUEUED, "paused": State.QUEUED, "owing": State.CANCELLED, "messaged": State.QUEUED,
           "bulk": State.QUEUED, "retained": State.QUEUED, "reviewed": State.IN_REVIEW,
           "awaiting": State.WAITING}  # fmt: skip
"""States of runs that stand for more than their name."""


@functools.cache
def operations() -> dict[str, tuple[str, str, str]]:
    """Operation to method, path and the scope the description tells."""
    return {
        operation["operationId"]: (method.upper(), path.removeprefix("/api/v1"), operation["security"][0]["token"][0])
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
    }


def call(caller: Caller, operation: str, run: Run, wait: Wait):
    method, path, _scope = operations()[operation]
    file_id = run.artifacts.values_list("pk", flat=True).first()
    path = path.replace("{run_id}", str(run.pk)).replace("{wait_id}", str(wait.pk)).replace("{file_id}", str(file_id))
    path = path.replace("{prompt_id}", str(run.prompts.values_list("pk", flat=True).first()))
    queued = run.effects.filter(state="queued").values_list("pk", flat=True).first()
    path = path.replace("{doubt_id}", str(run.doubts.values_list("pk", flat=True).first() or 1))
    path = path.replace("{seq}", "0")
    for name, rows in NAMED.items():
        path = path.replace(f"{{{name}}}", str(rows._default_manager.values_list("pk", flat=True).first() or 1))
    path = (
        path.replace("{fingerprint}", "f" * 32)
        .replace("{verb}", "retry")
        .replace("{effect_id}", str(queued or 1))
        .replace("{name}", "ledger")
    )
    path += "?name=c.csv" if operation == "bring_file" else ""
    return caller.send(method, path, CASES[operation][2])


def make_target(tenant, state: str) -> tuple[Run, Wait]:
    paused = state == "paused"
    run = factories.make_run(
        state=make_state(state),
        tenant=tenant,
        paused=paused,
        paused_by="oli" if paused else "",
    )
    factories.make_artifact(run, readable_by="members")
    factories.make_prompt(run)
    if run.state == State.IN_DOUBT:
        legacy = {"safety": "legacy", "tool": "post", "system": "ledger"}
        factories.make_doubt(factories.make_effect(run, state="in_doubt", holds_system=True, **legacy))
        factories.make_effect(run, state="queued", **legacy)
        System.objects.get_or_create(name="ledger")
    if state == "owing":
        factories.make_compensation(factories.make_effect(run, state="succeeded"))
    if state == "messaged":
        factories.make_message(run, state="poisoned")
    if state == "retained":
        RetentionPreview.objects.create(
            made_by="oli", as_of=factories.now(), tenant=tenant, rule=0, figures=NOTHING_DUE
        )
        LegalHold.objects.create(scope="tenant", tenant=tenant, placed_by="oli", reason="court")
        Erasure.objects.create(tenant=tenant, label="customer", value="ann", requested_by="oli", reason="asked")
    if state == "reviewed":
        factories.make_review(run, fingerprint="f" * 32)
    if state == "bulk":
        capture.preview(verb("pause"), Selection(words="one", ids=[run.pk]), tenant=tenant, actor="oli")
    if state == "awaiting":
        return run, factories.make_wait(run, kind="file", name="contract", facts="{}")
    return run, factories.make_wait(run, kind="approval", name="delivery", facts="{}", facts_hash=FACTS,
                                    expires_at=factories.now() + timedelta(days=1))  # fmt: skip


def test_every_address_is_in_the_matrix_with_its_scope():
    assert {name: scope for name, (_m, _p, scope) in operations().items()} == {
        name: case[0] for name, case in CASES.items()
    }


@pytest.mark.parametrize(("operation", "scope"), list(itertools.product(CASES, [scope.value for scope in SCOPES])))
def test_a_token_with_one_scope_may_do_what_needs_it_and_nothing_else(acme, order, operation, scope):
    needed, state, _body, success = CASES[operation]
    run, wait = make_target(acme, state)
    before = Run.objects.count()
    response = call(Caller(acme, [scope]), operation, run, wait)
    if scope == needed:
        assert response.status_code == success
        return
    assert response.status_code == 403
    assert read(response)["needs"] == needed
    run.refresh_from_db()
    assert (run.state, run.paused, Run.objects.count()) == (make_state(state), state == "paused", before)
    assert not AuditEntry.objects.filter(target_kind="run").exists()


def make_state(state: str) -> str:
    return TARGETS.get(state, state)


@pytest.mark.parametrize("operation", [name for name in CASES if CASES[name][1]])
def test_a_token_of_another_tenant_finds_nothing_and_changes_nothing(acme, stranger, operation):
    run, wait = make_target(acme, CASES[operation][1])
    response = call(stranger, operation, run, wait)
    assert response.status_code == 404
    run.refresh_from_db()
    wait.refresh_from_db()
    assert (run.state, wait.state) == (make_state(CASES[operation][1]), "open")
    assert not AuditEntry.objects.filter(target_kind="run").exists()


def test_start_key_correlation_and_filters_reach_no_other_tenant(caller, stranger, acme):
    mine = read(caller.start(key="K", labels={"of": "acme"}))
    waiting = factories.make_run(state=State.WAITING, tenant=acme)
    factories.make_wait(waiting, name="paid", correlation="C")
    assert read(stranger.start(key="K"))["id"] != mine["id"]
    assert read(stranger.post("/events", {"name": "paid", "correlation": "C"}))["answered"] == 0
    assert read(stranger.get("/runs?label=of:acme"))["runs"] == []
    waiting.refresh_from_db()
    assert waiting.state == State.WAITING


@pytest.mark.parametrize("change", ["revoked", "expired", "other secret"])
def test_token_that_has_ended_is_turned_away_at_every_address(acme, order, change):
    caller = Caller(acme)
    run, wait = make_target(acme, "queued")
    if change == "revoked":
        tokens.revoke(caller.issued.token.prefix, tenant=acme, actor="ada", reason="lost")
    elif change == "expired":
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    else:
        caller.issued = tokens.Issued(token=caller.issued.token, secret=caller.issued.secret[:-1] + "!")
    for operation in CASES:
        response = call(caller, operation, run, wait)
        assert response.status_code == 401, operation
    assert Run.objects.count() == 1


def test_session_of_a_signed_in_person_is_no_way_in(client, acme):
    client.force_login(factories.make_person("admin"))
    assert client.get("/api/v1/runs").status_code == 401
    assert client.post("/api/v1/events", b"{}", content_type="application/json").status_code == 401


def test_roles_and_scopes_read_one_table():
    # What is decided for others, or for everybody, is for people, who can be asked.
    assert set(VERBS.values()) - {Permission.ADMINISTER, Permission.REVIEW} <= set(SCOPES)
    assert Permission.ADMINISTER not in SCOPES
    assert set(GRANTS) == {role for role, _label in Membership._meta.get_field("role").flatchoices}
    assert all(not granted & {Permission.PAYLOADS, Permission.PROMPTS} for granted in GRANTS.values())
    assert access.GRANTS["viewer"] == {Permission.VIEW}
