"""Each named constraint, provoked; each trigger, as the backstop behind conditions that somebody left out."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models

from runs.models import (
    Artifact,
    AuditEntry,
    Checkpoint,
    ClassSize,
    Cleanup,
    Decision,
    Doubt,
    IdempotencyRecord,
    InboundEvent,
    LegalHold,
    LooseFile,
    Membership,
    OutboxLane,
    PauseSwitch,
    PlanSource,
    QuotaPolicy,
    Receipt,
    RetentionRule,
    Run,
    RunEvent,
    Slot,
    System,
    Wait,
    WorkflowPlan,
)
from tests.factories import (
    make_checkpoint,
    make_doubt,
    make_effect,
    make_lane,
    make_person,
    make_plan,
    make_prompt,
    make_run,
    make_tenant,
    make_wait,
    make_worker,
    now,
)
from tests.runs import (
    approval_violations,
    bulk_violations,
    clock_violations,
    compensation_violations,
    outbox_violations,
    version_violations,
)

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def refused_by(error: BaseException) -> str:
    return error.__cause__.diag.constraint_name or ""  # type: ignore[union-attr]


def one_run(**over: Any):
    return lambda: make_run(**over)


def twice(make):
    def work():
        make()
        make()

    return work


def child_without_wait():
    make_run(parent=make_run())


def same_child_twice():
    parent = make_run()
    wait = make_wait(parent, kind="children", name="kids")
    for _ in range(2):
        make_run(parent=parent, parent_wait=wait, child_index=0)


def same_slot_twice():
    run = make_run()
    for _ in range(2):
        make_effect(run, slot=b"s" * 32)


def same_wait_twice():
    run = make_run()
    for _ in range(2):
        make_wait(run)


def two_calls_on_the_wire_to_one_system():
    for _ in range(2):
        make_effect(make_run(), safety="legacy", tool="post")


def dispatched_while_a_doubt_holds_the_queue():
    make_effect(make_run(), safety="legacy", tool="post", state="in_doubt", holds_system=True)
    make_effect(make_run(), safety="legacy", tool="post")


def two_open_doubts_of_one_effect():
    effect = make_effect(make_run(), state="in_doubt")
    for _ in range(2):
        make_doubt(effect)


def doubted(**over: Any) -> Doubt:
    return make_doubt(make_effect(make_run(), state="in_doubt"), **over)


def one_event_for_two_waits():
    run = make_run()
    event = make_event()
    for key in ("a", "b"):
        make_wait(run, author_key=key, inbound_event=event)


def make_event(**over: Any) -> InboundEvent:
    values = {"tenant": make_tenant(), "name": "go", "payload_hash": "p" * 64, "sent_by": "tests"} | over
    return InboundEvent.objects.create(**values)


def decided(run: Run) -> Decision:
    return Decision.objects.create(run=run, step_id="first", name="d", input_hash="i" * 64, result="1", fence=1)


def kept(run: Run, **over: Any) -> Artifact:
    values = {
        "step_id": "first", "name": "a", "data_class": "deliverable", "content_type": "text/plain",
        "content_hash": "c" * 64, "size_bytes": 1, "path": "p", "fence": 1,
    } | over  # fmt: skip
    return Artifact.objects.create(run=run, **values)


def with_run(work):
    def on_one_run():
        run = make_run()
        work(run)
        work(run)

    return on_one_run


def membership(**over: Any):
    return Membership.objects.create(user=make_person("viewer"), tenant=make_tenant(), **over)


def a_policy() -> QuotaPolicy:
    return QuotaPolicy.objects.get_or_create(resource="scan")[0]


def a_rule(**over: Any) -> RetentionRule:
    values = {"subject": "input", "keeps": "seconds", "seconds": 1, "actor": "a", "reason": "r"} | over
    return RetentionRule.objects.create(**values)


def a_cleanup(**over: Any) -> Cleanup:
    values = {"data_class": "input", "kind": "x", "rule": 0, "cutoff": now(), "reason": "policy", "runs": 1, "rows": 1,
              "bytes": 1, "cleaner": "t"} | over  # fmt: skip
    return Cleanup.objects.create(**values)


VIOLATIONS = {
    "run_due_at_iff_queued": one_run(due_at=None),
    "run_worker_iff_running": lambda: break_run("worker_id = gen_random_uuid()"),
    "run_finished_at_iff_terminal": one_run(state="succeeded", finished_at=None),
    "run_child_names_its_wait": child_without_wait,
    "run_positions_sane": one_run(head_seq=1, state_seq=2),
    "run_start_key_unique": twice(one_run(start_key="k")),
    "run_child_unique": same_child_twice,
    "checkpoint_kind_known": lambda: make_checkpoint(make_run(), seq=1, kind="nap"),
    "checkpoint_seq_sane": lambda: make_checkpoint(make_run(), seq=-1, state="{}", state_seq=-1),
    "checkpoint_state_is_somewhere": lambda: make_checkpoint(make_run(), seq=1, state=None, state_seq=1),
    "effect_slot_unique": same_slot_twice,
    "effect_state_known": lambda: make_effect(make_run(), state="maybe"),
    "effect_safety_known": lambda: make_effect(make_run(), safety="brave"),
    "effect_completed_at_iff_known": lambda: make_effect(make_run(), state="succeeded", completed_at=None),
    "effect_resource_named": lambda: make_effect(make_run(), resource=""),
    "effect_legacy_has_its_place": lambda: make_effect(make_run(), safety="legacy", state="queued", system=""),
    "effect_queued_has_a_queue": lambda: make_effect(make_run(), state="queued"),
    "effect_holds_its_system_while_unknown": lambda: make_effect(make_run(), safety="legacy", holds_system=False),
    "effect_one_dispatched_per_system": two_calls_on_the_wire_to_one_system,
    "doubt_one_open_per_effect": two_open_doubts_of_one_effect,
    "doubt_settled_at_iff_settled": lambda: doubted(settled_at=now()),
    "doubt_claimed_at_iff_claimed": lambda: doubted(claimed_by="ann"),
    "system_paused_by_somebody": lambda: System.objects.create(name="ledger", paused=True),
    "decision_inputs_unique": with_run(decided),
    "artifact_content_unique": with_run(kept),
    "artifact_data_class_known": lambda: kept(make_run(), data_class="junk"),
    "artifact_readers_known": lambda: kept(make_run(), readable_by="anyone"),
    "artifact_private_is_sealed": lambda: kept(make_run(), data_class="temp_file", readable_by="prompts"),
    "loose_file_has_an_end": lambda: LooseFile.objects.create(tenant=make_tenant(), path="p"),
    "prompt_content_unique": with_run(lambda run: make_prompt(run, content_hash="h" * 64)),
    "prompt_is_sealed": lambda: make_prompt(make_run(), sealed=""),
    "run_retain_at_only_when_finished": one_run(retain_at=now()),
    "retention_rule_subject_known": lambda: a_rule(subject="mood"),
    "retention_rule_keeps_known": lambda: a_rule(keeps="maybe", seconds=None),
    "retention_rule_seconds_iff_meant": lambda: a_rule(seconds=-1),
    "legal_hold_scope_complete": lambda: LegalHold.objects.create(
        scope="run", tenant=make_tenant(), placed_by="a", reason="r"
    ),
    "legal_hold_lifted_by_iff_lifted": lambda: LegalHold.objects.create(
        scope="tenant", tenant=make_tenant(), placed_by="a", reason="r", lifted_at=now()
    ),
    "cleanup_data_class_known": lambda: a_cleanup(data_class="junk"),
    "cleanup_reason_known": lambda: a_cleanup(reason="erasure"),
    "class_size_class_known": lambda: ClassSize.objects.create(data_class="junk", rows=1, bytes=1),
    "receipt_number_unique": with_run(
        lambda run: Receipt.objects.create(run=run, number=1, cause="x", step_id="first", fence=1)
    ),
    "wait_name_unique": same_wait_twice,
    "wait_kind_known": lambda: make_wait(make_run(), kind="mood"),
    "wait_state_known": lambda: make_wait(make_run(), state="bored"),
    "wait_on_timeout_known": lambda: make_wait(make_run(), on_timeout="cry"),
    "wait_event_once_per_run": one_event_for_two_waits,
    "inbound_event_key_unique": twice(lambda: make_event(event_key="k")),
    "plan_meaning_unique": lambda: WorkflowPlan.objects.bulk_create([unsaved_plan(), unsaved_plan()]),
    "plan_source_unique": twice(lambda: PlanSource.objects.create(plan=make_plan(), fingerprint="f" * 64)),
    "pause_switch_scope_complete": lambda: PauseSwitch.objects.create(scope="tenant", actor="a", reason="r"),
    "pause_switch_unique": twice(lambda: PauseSwitch.objects.create(scope="all", actor="a", reason="r")),
    "quota_policy_has_one_owner": lambda: QuotaPolicy.objects.create(tenant=make_tenant(), resource="scan"),
    "quota_policy_resource_unique": twice(lambda: QuotaPolicy.objects.create(resource="scan")),
    "quota_policy_cap_sane": lambda: QuotaPolicy.objects.create(resource="scan", running_cap=-1),
    "quota_policy_starts_sane": lambda: QuotaPolicy.objects.create(resource="scan", starts_per_minute=-1),
    "quota_policy_weight_sane": lambda: QuotaPolicy.objects.create(resource="scan", weight=0),
    "quota_policy_priorities_sane": lambda: QuotaPolicy.objects.create(resource="scan", priority_min=2, priority_max=1),
    "slot_number_unique": lambda: Slot.objects.bulk_create([Slot(policy=a_policy(), number=1)] * 2),
    "slot_number_sane": lambda: Slot.objects.create(policy=a_policy(), number=0),
    "run_deferred_only_while_queued": one_run(state="waiting", deferred=True),
    "run_slots_only_while_running": one_run(slot=1),
    "run_slot_unique": twice(one_run(state="running", slot=1)),
    "run_resource_slot_unique": twice(one_run(state="running", resource="scan", resource_slot=1)),
    "membership_user_tenant_unique": lambda: membership(role="viewer"),
    "membership_role_known": lambda: Membership.objects.filter(pk=make_person("viewer").memberships.get().pk).update(
        role="king"
    ),
}
VIOLATIONS |= (
    approval_violations.VIOLATIONS
    | bulk_violations.VIOLATIONS
    | compensation_violations.VIOLATIONS
    | outbox_violations.VIOLATIONS
    | version_violations.VIOLATIONS
    | clock_violations.VIOLATIONS
)


def unsaved_plan() -> WorkflowPlan:
    found = make_plan("other")
    return WorkflowPlan(
        **{f.name: getattr(found, f.name) for f in WorkflowPlan._meta.fields if f.name not in ("id", "first_seen_at")}
    )


def break_run(assignment: str) -> None:
    run = make_run()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_run SET {assignment} WHERE id = %s", [run.pk])


@pytest.mark.parametrize("name", VIOLATIONS)
def test_constraint_refuses(name):
    with pytest.raises(IntegrityError) as refused:
        VIOLATIONS[name]()
    assert refused_by(refused.value) == name


def test_every_named_constraint_of_the_record_is_provoked_here():
    declared = {
        constraint.name
        for model in apps.get_app_config("runs").get_models()
        for constraint in model._meta.constraints
        # Tokens of the API are proved with the API.
        if isinstance(constraint, models.CheckConstraint | models.UniqueConstraint)
        and "api_token" not in constraint.name
    }
    assert declared - set(VIOLATIONS) == {"run_state_known"}


def test_unknown_state_is_refused():
    # It is neither open nor terminal, so the constraint about the finish, first by name, says it first.
    with pytest.raises(IntegrityError) as refused:
        break_run("state = 'resting', due_at = NULL")
    assert refused_by(refused.value) in ("run_finished_at_iff_terminal", "run_state_known")


def test_start_keys_of_two_tenants_do_not_meet():
    make_run(start_key="k")
    make_run(start_key="k", tenant=make_tenant("other"))
    assert Run.objects.filter(start_key="k").count() == 2


MOVES_THAT_TRIGGERS_REFUSE = {
    "run_terminal_is_final": ("succeeded", "state = 'queued', due_at = now(), finished_at = NULL"),
    "run_fence_never_falls": ("running", "fence = fence - 1"),
    "run_claim_raises_fence": ("queued", "state = 'running', due_at = NULL, worker_id = gen_random_uuid()"),
    "run_head_never_falls": ("queued", "head_seq = head_seq - 1"),
    "run_cursor_never_falls": ("running", "head_seq = head_seq + 1, cursor = '4'"),
}


@pytest.mark.parametrize("name", MOVES_THAT_TRIGGERS_REFUSE)
def test_trigger_holds_whoever_writes(name):
    state, assignment = MOVES_THAT_TRIGGERS_REFUSE[name]
    run = make_run(state=state, head_seq=2, state_seq=0, cursor=5)
    with pytest.raises(IntegrityError) as refused, connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_run SET {assignment} WHERE id = %s", [run.pk])
    assert refused_by(refused.value) == name


@pytest.mark.parametrize("state", ["cancelled", "succeeded"])
@pytest.mark.parametrize("target", ["queued", "running", "failed"])
def test_finished_run_stays_finished_whoever_writes(state, target):  # C007
    run = make_run(state=state)
    with pytest.raises(IntegrityError) as refused, connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET state = %s WHERE id = %s", [target, run.pk])
    # Triggers fire in the order of their names; an unclaimed start is refused for that.
    assert refused_by(refused.value) in ("run_terminal_is_final", "run_claim_raises_fence")


def test_cursor_may_start_again_in_another_lineage_or_another_step():
    run = make_run(state="running", head_seq=2, state_seq=0, cursor=5)
    Run.objects.filter(pk=run.pk).update(lineage=2, head_seq=3, cursor=1)
    Run.objects.filter(pk=run.pk).update(step_id="second", head_seq=4, cursor=0)
    run.refresh_from_db()
    assert run.cursor == 0


def history_rows() -> dict[str, Any]:
    run = make_run()
    return {
        "runs_checkpoint": Checkpoint.objects.get(run=run, seq=0),
        "runs_event": RunEvent.objects.create(run=run, event="start"),
        "runs_audit_entry": AuditEntry.objects.create(actor="a", verb="v", target_kind="run", target_id=str(run.pk)),
    }


@pytest.mark.parametrize("table", ["runs_checkpoint", "runs_event", "runs_audit_entry"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = now()", "DELETE FROM {}"])
def test_history_is_never_rewritten_even_by_the_owner(table, statement):
    row = history_rows()[table]
    with pytest.raises(IntegrityError) as refused, connection.cursor() as cursor:
        cursor.execute(statement.format(table))
    assert refused_by(refused.value) == f"{table}_immutable"
    assert type(row).objects.filter(pk=row.pk).exists()


def test_retention_may_delete_history_but_never_change_it():
    history_rows()
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("BEGIN; SET LOCAL durableops.retention = 'on'; UPDATE runs_event SET reason = 'x'; COMMIT")
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN; SET LOCAL durableops.retention = 'on'; DELETE FROM runs_event; COMMIT")
    assert not RunEvent.objects.exists()


def test_doubt_holds_its_system_until_it_is_released():
    with pytest.raises(IntegrityError) as refused:
        dispatched_while_a_doubt_holds_the_queue()
    assert refused_by(refused.value) == "effect_one_dispatched_per_system"
    IdempotencyRecord.objects.update(holds_system=False)
    make_effect(make_run(), safety="legacy", tool="post")
    assert IdempotencyRecord.objects.filter(holds_system=True).count() == 1


def test_settlement_of_a_doubt_is_final():
    doubt = doubted(settled_at=now(), settled_as="happened", settled_by="ann")
    with pytest.raises(IntegrityError) as refused:
        Doubt.objects.filter(pk=doubt.pk).update(settled_as="did_not", settled_by="bob")
    assert refused_by(refused.value) == "doubt_settlement_is_final"


@pytest.mark.parametrize("state", ["succeeded", "refused", "given_up"])
@pytest.mark.parametrize("other", ["intended", "in_doubt", "withdrawn"])
def test_known_outcome_of_an_effect_is_final(state, other):
    effect = make_effect(make_run(), state=state)
    with pytest.raises(IntegrityError) as refused:
        IdempotencyRecord.objects.filter(pk=effect.pk).update(state=other, completed_at=None)
    assert refused_by(refused.value) == "effect_outcome_is_final"


@pytest.mark.parametrize("column", ["slot", "key", "request_hash"])
def test_identity_of_an_effect_is_final(column):
    effect = make_effect(make_run())
    value = b"x" * 32 if column == "slot" else "x"
    with pytest.raises(IntegrityError) as refused:
        IdempotencyRecord.objects.filter(pk=effect.pk).update(**{column: value})
    assert refused_by(refused.value) == "effect_outcome_is_final"


def test_claim_of_a_lane_never_falls():
    lane = make_lane(make_run(), claim=3)
    with pytest.raises(IntegrityError) as refused:
        OutboxLane.objects.filter(pk=lane.pk).update(claim=2)
    assert refused_by(refused.value) == "outbox_lane_claim_never_falls"


def test_worker_numbers_are_never_used_twice():
    worker = make_worker()
    with pytest.raises(IntegrityError):
        make_worker(number=worker.number)


def test_wait_may_be_open_again_under_another_key():
    run = make_run()
    make_wait(run, author_key="1")
    make_wait(run, author_key="2", answered_at=now())
    assert Wait.objects.filter(run=run).count() == 2
