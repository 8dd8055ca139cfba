"""What the demo reads from the engine's record, and the few things it asks of the engine. Needs Django to be set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from durableops.checkpoints import codec
from durableops.engine import commands
from durableops.engine.files import TOOL as FILES
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from examples.demo.account import Effect, Records, Repeat
from runs.models import Checkpoint, IdempotencyRecord, Membership, Receipt, Run, RunEvent, Tenant, Wait
from runs.states import TERMINAL, State

TENANT = "demo"
ACTOR = "demo"
LABELS = {"started-by": "demo"}


@dataclass(frozen=True, kw_only=True)
class View:
    """A run at one moment."""

    state: str
    step: str
    done: int
    total: int
    note: str
    worker_pid: int | None
    error: str
    is_over: bool
    approval: int | None
    """The open approval that waits for a person."""
    question: str


def tenant() -> Tenant:
    """The tenant of all demos."""
    return get_or_make_tenant(TENANT)


def sign_in(name: str, password: str) -> None:
    """A person who may see and approve everything of the demo's tenant, with this password from now on."""
    user, _ = get_user_model().objects.get_or_create(username=name)
    user.set_password(password)
    user.save()
    Membership.objects.update_or_create(user=user, tenant=tenant(), defaults={"role": "admin", "sees_payloads": True})


def start_import(given: dict[str, Any]) -> UUID:
    """Start the import."""
    return start("batch-import", given, tenant=tenant(), actor=ACTOR, labels=LABELS).run_id


def cancel_leftovers() -> list[UUID]:
    """Cancel what an earlier demo left unfinished: its desk is gone, and its calls must not go to this one."""
    left = Run.objects.filter(labels__contains=LABELS).exclude(state__in=[*TERMINAL, State.WAITING])
    found = [run.pk for run in left]
    for run_id in found:
        commands.cancel(run_id, tenant=tenant(), actor=ACTOR, reason="a new demo begins")
    return found


def look(run_id: UUID) -> View:
    """The run as it is now."""
    run = Run.objects.select_related("worker").get(pk=run_id)
    wait = Wait.objects.filter(run=run, kind="approval", state="open").first() if run.state == State.WAITING else None
    return View(
        state=run.state,
        step=run.step_id,
        done=run.progress_done or 0,
        total=run.progress_total or 0,
        note=run.progress_note,
        worker_pid=run.worker.pid if run.worker else None,
        error=run.error_message,
        is_over=run.is_terminal,
        approval=wait.pk if wait else None,
        question=wait.question if wait else "",
    )


def approve(wait_id: int, *, actor: str, reason: str) -> None:
    """Give an approval."""
    commands.approve(wait_id, tenant=tenant(), actor=actor, reason=reason)


def open_approvals() -> list[tuple[int, str]]:
    """Number and question of every approval that a demo's run waits for."""
    waits = Wait.objects.filter(tenant=tenant(), kind="approval", state="open", run__state=State.WAITING)
    return list(waits.order_by("id").values_list("id", "question"))


def effect_state(run_id: UUID, key: str) -> tuple[str, bool] | None:
    """State of the effect with this downstream key, and whether a result is recorded."""
    effect = IdempotencyRecord.objects.filter(run_id=run_id, key=key).only("state", "result").first()
    return (effect.state, effect.result is not None) if effect else None


def was_interrupted(run_id: UUID) -> bool:
    """Whether a worker of it was lost already."""
    return Receipt.objects.filter(run_id=run_id, cause="worker_lost").exists()


def receipts(run_id: UUID) -> Sequence[Receipt]:
    """Every resume, oldest first."""
    return list(Receipt.objects.filter(run_id=run_id).order_by("number"))


def totals(run_id: UUID) -> tuple[dict[str, Any], int, int]:
    """The state as committed last, the number of resumes, and the calls answered from the record."""
    run = Run.objects.get(pk=run_id)
    text = Checkpoint.objects.values_list("state", flat=True).get(run_id=run_id, seq=run.state_seq)
    state: dict[str, Any] = codec.loads(text or "{}")
    return state, run.resumes, run.effects_avoided


def records_of(run_id: UUID) -> Records:
    """Our side of the account. Files that the run keeps are effects too, and none of the desk's."""
    sent = IdempotencyRecord.objects.filter(run_id=run_id).exclude(tool=FILES)
    effects = sent.values_list("key", "state", "resource")
    repeats = (
        RunEvent.objects.filter(run_id=run_id, event="effects_repeated").order_by("id").values_list("data", flat=True)
    )
    timeouts = RunEvent.objects.filter(run_id=run_id, event="call_timeout").values_list("data", flat=True)
    return Records(
        effects=[Effect(key=key, state=state, resource=resource) for key, state, resource in effects.iterator()],
        repeats=[Repeat(key=key, cause=data["cause"]) for data in repeats for key in data["keys"]],
        timed_out_keys={data["key"] for data in timeouts},
        crashes=set(
            Receipt.objects.filter(run_id=run_id, lost_at__isnull=False).values_list("cause", flat=True).distinct()
        ),
    )


def keys_of_other_runs(run_id: UUID, keys: Sequence[str]) -> set[str]:
    """Which of these keys belong to other runs on record."""
    return set(IdempotencyRecord.objects.filter(key__in=keys).exclude(run_id=run_id).values_list("key", flat=True))
