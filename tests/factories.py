"""Rows for tests: each factory fills what the constraints demand. Surroundings are fixtures, and live elsewhere."""

from __future__ import annotations

import base64
import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import F

from durableops import sealing
from durableops.artifacts import storage
from durableops.engine import prompts
from runs.claiming import Taker
from runs.ids import uuid7
from runs.models import (
    Artifact,
    Checkpoint,
    Compensation,
    CompensationOrder,
    Doubt,
    IdempotencyRecord,
    Membership,
    OutboxBody,
    OutboxLane,
    OutboxMessage,
    Prompt,
    Review,
    Run,
    Tenant,
    Wait,
    WebhookEndpoint,
    Worker,
    WorkflowPlan,
)
from runs.models.effect import UNSETTLED
from runs.states import TERMINAL, State

_numbers = itertools.count(1_000_000)

CAST = {
    "viewer": ("viewer", "acme"),
    "operator": ("operator", "acme"),
    "reviewer": ("reviewer", "acme"),
    "admin": ("admin", "acme"),
    "stranger": ("admin", "other"),
}
"""The fixed cast: name to role and tenant. The stranger may do everything, in another tenant."""


def now() -> datetime:
    return datetime.now(UTC)


def make_tenant(slug: str = "acme") -> Tenant:
    """The tenant with this slug, made on first use."""
    return Tenant.objects.get_or_create(slug=slug, defaults={"name": slug.title()})[0]


def make_person(name: str) -> User:
    """A member of the fixed cast, with the membership the cast gives them."""
    role, slug = CAST[name]
    person, _ = User.objects.get_or_create(username=name)
    Membership.objects.get_or_create(user=person, tenant=make_tenant(slug), defaults={"role": role})
    return person


def make_plan(workflow: str = "made", **over: Any) -> WorkflowPlan:
    """A stored plan that no code in this process has to know."""
    values: dict[str, Any] = {
        "version": 1,
        "schema_version": 1,
        "schema_hash": "s" * 64,
        "plan_hash": "p" * 64,
        "plan": {"steps": [{"id": "first", "version": 1, "tools": []}, {"id": "second", "version": 1, "tools": []}]},
        "source_fingerprint": "f" * 64,
    }
    return WorkflowPlan.objects.get_or_create(workflow=workflow, **(values | over))[0]


def make_worker(*, ended: str = "", **over: Any) -> Worker:
    """A worker's lease; `ended` says why it ended, if it did."""
    values: dict[str, Any] = {
        "id": uuid7(),
        "number": next(_numbers),
        "host": "here",
        "pid": 1,
        "lease_seconds": 10.0,
        "heartbeat_seconds": 0.25,
        "ended_at": now() if ended else None,
        "ended_why": ended,
    }
    return Worker.objects.create(**(values | over))


def make_taker(worker: Worker | UUID, **over: Any) -> Taker:
    """What claims for a worker that can run every plan there is."""
    plans = tuple(WorkflowPlan.objects.values_list("pk", flat=True))
    values: dict[str, Any] = {"worker_id": worker.pk if isinstance(worker, Worker) else worker, "plans": plans}
    return Taker(**(values | over))


def make_run(*, state: str = State.QUEUED, tenant: Tenant | None = None, **over: Any) -> Run:
    """A run in `state`, with its first checkpoint and everything that state demands."""
    state = State(state)
    plan = over.pop("plan", None) or make_plan(over.get("workflow", "made"))
    state_json = over.pop("state_json", "{}")
    values: dict[str, Any] = {
        "tenant": tenant or make_tenant(),
        "workflow": plan.workflow,
        "plan": plan,
        "state": state,
        "created_by": "tests",
        "input_hash": "i" * 64,
        "step_id": "first",
        "step_entries": 1,
    }
    if state is State.QUEUED:
        values["due_at"] = now() - timedelta(seconds=1)
    if state is State.RUNNING:
        values |= {"worker": over.get("worker") or make_worker(), "fence": 1, "started_at": now()}
    if state in TERMINAL:
        values["finished_at"] = now()
    run = Run.objects.create(**(values | over))
    Checkpoint.objects.create(
        run=run,
        seq=0,
        lineage=1,
        kind="start",
        step_id="",
        next_step=run.step_id,
        plan=plan,
        state=state_json,
        state_seq=0,
        fence=0,
    )
    if run.head_seq:
        make_checkpoint(run, seq=run.head_seq, state_seq=run.state_seq)
    return run


def make_checkpoint(run: Run, *, seq: int, **over: Any) -> Checkpoint:
    """A committed step of a run."""
    values: dict[str, Any] = {
        "lineage": run.lineage,
        "kind": "step",
        "step_id": run.step_id,
        "next_step": run.step_id,
        "plan": run.plan,
        "state": None,
        "state_seq": 0,
        "fence": run.fence,
    }
    return Checkpoint.objects.create(run=run, seq=seq, **(values | over))


def make_wait(run: Run, **over: Any) -> Wait:
    """An open wait of a run, for an event called `go` unless told otherwise."""
    values: dict[str, Any] = {
        "tenant": run.tenant,
        "step_id": run.step_id,
        "kind": "event",
        "name": "go",
        "since": run.created_at,
    }
    return Wait.objects.create(run=run, **(values | over))


def make_effect(run: Run, *, state: str = "intended", **over: Any) -> IdempotencyRecord:
    """An effect of a run."""
    number = next(_numbers)
    values: dict[str, Any] = {
        "tenant": run.tenant,
        "slot": number.to_bytes(32, "big"),
        "key": f"{number:048d}",
        "request_hash": "r" * 64,
        "step_id": run.step_id,
        "tool": "send",
        "resource": f"thing-{number}",
        "safety": "keyed",
        "state": state,
        "fence": run.fence,
        "completed_at": None if state in UNSETTLED else now(),
    }
    if over.get("safety") == "legacy":
        values |= {"system": over.get("tool", "send"), "queue_order": number, "holds_system": state == "intended"}
    return IdempotencyRecord.objects.create(run=run, **(values | over))


def make_doubt(effect: IdempotencyRecord, **over: Any) -> Doubt:
    """An open doubt about an effect that is in doubt, as the engine opens it."""
    values: dict[str, Any] = {
        "tenant": effect.tenant,
        "run": effect.run,
        "cause": "call_timeout",
        "why": "no answer came in time",
    }
    return Doubt.objects.create(effect=effect, **(values | over))


def make_lane(run: Run, **over: Any) -> OutboxLane:
    """A lane of the outbox, empty unless told otherwise."""
    values: dict[str, Any] = {"tenant": run.tenant, "destination": "mail", "depth": 0, "due_at": now()}
    return OutboxLane.objects.create(run=run, **(values | over))


def make_message(run: Run, *, state: str = "pending", body: str = "{}", **over: Any) -> OutboxMessage:
    """A message of its own effect, at the end of its lane."""
    lane = over.pop("lane", None) or OutboxLane.objects.filter(run=run).first() or make_lane(run)
    is_open = state in ("pending", "poisoned")
    effect = over.pop("effect", None) or make_effect(
        run, safety="outbox", state="queued" if is_open else "succeeded", tool="mail", attempts=0
    )
    OutboxBody.objects.get_or_create(
        effect=effect,
        defaults={
            "body": body,
            "open_messages": int(is_open),
            "delivered_messages": int(state == "delivered"),
        },
    )
    values: dict[str, Any] = {
        "tenant": run.tenant,
        "state": state,
        "on_poison": "hold",
        "finished_at": None if state == "pending" else now(),
    }
    message = OutboxMessage.objects.create(lane=lane, effect=effect, **(values | over))
    if state == "pending":
        OutboxLane.objects.filter(pk=lane.pk).update(depth=F("depth") + 1)
    if state == "poisoned" and message.on_poison == "hold":
        OutboxLane.objects.filter(pk=lane.pk).update(depth=F("depth") + 1, held_by=message.pk)
    return message


def make_endpoint(tenant: Tenant | None = None, **over: Any) -> WebhookEndpoint:
    """A webhook endpoint that wants everything."""
    values: dict[str, Any] = {
        "url": "https://hooks.example/in",
        "secret": sealing.seal(b"whsec_" + base64.b64encode(b"k" * 32)).decode(),
        "sealed_with": sealing.key_id(),
        "created_by": "tests",
    }
    return WebhookEndpoint.objects.create(tenant=tenant or make_tenant(), **(values | over))


def make_compensation(effect: IdempotencyRecord, **over: Any) -> Compensation:
    """What is owed for an effect, by hand, unless told otherwise."""
    values: dict[str, Any] = {
        "effect": effect,
        "run": effect.run,
        "tenant": effect.tenant,
        "how": "person",
        "instructions": "call them",
    }
    return Compensation.objects.create(**(values | over))


def make_review(run: Run, **over: Any) -> Review:
    """An open review of a run."""
    values: dict[str, Any] = {
        "tenant": run.tenant, "workflow": run.workflow, "plan": run.plan, "code": "plan", "fingerprint": "f" * 32,
        "reason": "the plan is another", "seq": run.head_seq,
    }  # fmt: skip
    return Review.objects.create(run=run, **(values | over))


def make_order(run: Run, **over: Any) -> CompensationOrder:
    """An order to undo what a run did, not applied yet."""
    values: dict[str, Any] = {"run": run, "tenant": run.tenant, "choice": "later", "actor": "ann"}
    return CompensationOrder.objects.create(**(values | over))


def make_artifact(run: Run, *, content: bytes = b"content", **over: Any) -> Artifact:
    """A file of a run, in the storage too; wants the fixture `media`."""
    data_class = over.get("data_class", "deliverable")
    private = data_class in ("temp_file", "raw_prompt")
    stored = storage.write(storage.new_path(tenant=run.tenant.slug, run_id=run.pk), content, sealed=private)
    values: dict[str, Any] = {
        "step_id": run.step_id,
        "name": f"file-{next(_numbers)}",
        "data_class": data_class,
        "readable_by": "prompts" if private else "payloads",
        "content_type": "text/plain",
        "content_hash": stored.content_hash,
        "size_bytes": stored.size_bytes,
        "path": stored.path,
        "sealed_with": stored.sealed_with,
        "fence": run.fence,
    }
    return Artifact.objects.create(run=run, **(values | over))


def make_prompt(run: Run, *, text: str = "What is this?", **over: Any) -> Prompt:
    """A raw prompt of a run, encrypted as the engine does it."""
    values = prompts.row(over.pop("name", "kind"), text, key=over.pop("author_key", ""))
    return Prompt.objects.create(run=run, **(values | {"step_id": run.step_id, "fence": run.fence} | over))


def make_due(run: Run | UUID) -> None:
    """Let the time of a run come: its delay, the ends of its sleeps and polls, the clocks of its waits."""
    run_id = run.pk if isinstance(run, Run) else run
    past = now() - timedelta(seconds=1)
    Run.objects.filter(pk=run_id, state=State.QUEUED).update(due_at=past, deferred=False)
    Wait.objects.filter(run_id=run_id, state="open", due_at__isnull=False).update(due_at=past)
    Wait.objects.filter(run_id=run_id, state="open", expires_at__isnull=False).update(expires_at=past)


def events_of(run: Run | UUID) -> list[str]:
    """The names of what happened to a run, in order."""
    from runs.models import RunEvent

    run_id = run.pk if isinstance(run, Run) else run
    return list(RunEvent.objects.filter(run_id=run_id).order_by("id").values_list("event", flat=True))


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
