"""The built-in workflow that undoes: the linked run of an order works through what is owed, newest effect first.

What a tool undoes is an ordinary call: intent first, the same key on every repeat, in doubt when nobody knows. Its slot
is made of the effect it undoes and not of this run, so that another run that undoes the same effect finds it. What a
person undoes is a task in the Inbox, and this run waits for them. One that failed holds those after it until a person
has decided; none is skipped and none overtakes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from django.db import connection, transaction

from durableops import failpoints
from durableops.authoring import registry
from durableops.authoring.context import Page
from durableops.authoring.decorators import step, workflow
from durableops.authoring.definitions import ToolDefinition, WorkflowDefinition
from durableops.authoring.policies import Retry
from durableops.authoring.state import State
from durableops.authoring.undoing import DoneEffect, request_to_undo
from durableops.checkpoints import codec
from durableops.checkpoints.failures import describe_error, safe_text
from durableops.engine.checks import check_may_go_on
from durableops.engine.compensation.owing import WORKFLOW
from durableops.engine.context import SyncRun
from durableops.engine.hand import Hand
from durableops.engine.ops import Commit, Logic
from durableops.errors import DurableOpsError, EffectInDoubt, FenceLost, RetryLater
from durableops.masking import mask_text
from runs.models import Compensation, IdempotencyRecord
from runs.models.compensation import COMPENSATION_FINAL
from runs.transitions import Cursor, record_event

EVENT = "durableops.compensation"
"""What wakes the linked run when a person has decided about one; its correlation is the compensation's id."""
ERROR_CHARACTERS = 2000
LOST_WORKERS = 20
DELIVERY_SECONDS = 5.0
"""A message that is not delivered yet is looked at so often."""
SPENT = ("refused", "given_up")

_LOCK = "SELECT 1 FROM runs_run WHERE id = %s AND fence = %s AND state = 'running' FOR NO KEY UPDATE"


class CompensationState(State):
    """What a linked run starts with."""

    undoes: str
    """The run whose effects it undoes."""


@workflow(name=WORKFLOW, version=1, state=CompensationState, max_recoveries=LOST_WORKERS)
class Undoing:
    """Works through one order."""

    # Attempts are for what nobody foresaw; a call that fails is a failed compensation, and this run waits for people.
    @step(timeout=None, retry=Retry(max_attempts=10, first_delay=1, factor=2, max_delay=300))
    def undo(run: SyncRun) -> int:
        """One compensation is one page: those before it are settled and committed."""
        settled = 0
        for [compensation_id] in run.pages(_next_of(run.hand.run_id)):
            _undo(run, compensation_id)
            settled += 1
        return settled


def install() -> None:
    """Make the workflow known to the present registry, as every process that starts or moves runs does."""
    registry.current().add_workflow(cast("WorkflowDefinition", Undoing))  # the name stands for the definition now


def _next_of(run_id: UUID) -> Any:
    """Reads one compensation at a time. The cursor is the effect's id below zero: it grows while ids fall."""

    def read_page(cursor: int | None) -> Page | None:
        rest = Compensation.objects.filter(linked_run_id=run_id)
        if cursor is not None:
            rest = rest.filter(effect_id__lt=-cursor)
        found = rest.order_by("-effect_id").values_list("pk", "effect_id").first()
        return None if found is None else Page(items=[found[0]], next_cursor=-found[1])

    return read_page


def _undo(run: SyncRun, compensation_id: int) -> None:
    """Bring one compensation to its end, or leave the step to wait for whoever has to decide."""
    called = False
    for turn in itertools.count():
        check_may_go_on(run.hand)
        one = Compensation.objects.select_related("effect").get(pk=compensation_id)
        if one.state in COMPENSATION_FINAL or one.linked_run_id != run.hand.run_id:
            return
        if one.effect.state == "queued":
            # Its message is not delivered yet: undone now, it would be overtaken by what it undoes.
            run.sleep(DELIVERY_SECONDS, key=f"{one.pk} {turn}")
        elif one.how == "tool" and one.state in ("approved", "running"):
            if called and one.state == "approved":
                raise RetryLater(0, "it was approved once more while this entry was at it")
            if _call(run, one, again=called) == "queued":
                run.sleep(DELIVERY_SECONDS, key=f"{one.pk} {turn}")
            called = True
        elif one.state == "approved":
            _mark(run, one, {"approved"}, event="compensation_task", state="running")
        else:
            run.wait_for(EVENT, correlation=str(one.pk), key=f"{one.pk} {turn}")


def _call(run: SyncRun, one: Compensation, *, again: bool) -> str:
    """Call the tool that undoes it, once in an entry, and note what came of it. Returns the state of that call.

    Whatever came of the call is committed before the compensation says so.
    """
    if one.state == "approved":
        _mark(run, one, {"approved"}, event="compensation_running", state="running")
    problem: DurableOpsError | None = None
    if not again:
        problem = _tried(run, one)
    run.perform(_commit(run.hand))
    failpoints.reach(failpoints.Point.AFTER_UNDO, run.hand.step.id, one.effect.resource)
    made = _record_of(one)
    if made is not None and made.state == "succeeded":
        _mark(
            run, one, {"running"}, event="compensation_done", state="done", error="", undo_effect=made,
            downstream_id=made.downstream_id, settled_by=f"run {run.id}",
        )  # fmt: skip
    elif problem is not None or made is None or made.state != "queued":
        told = safe_text(mask_text(str(problem or "its message could not be delivered")), limit=ERROR_CHARACTERS)
        spent = one.spent_slots + (made is not None and made.state in SPENT)
        _mark(run, one, {"running"}, event="compensation_failed", state="failed", error=told, spent_slots=spent)
    return "" if made is None else made.state


def _tried(run: SyncRun, one: Compensation) -> DurableOpsError | None:
    """Make the call. Returns why it brought no result, if so; a doubt leaves the step, to be settled first."""
    try:
        tool, request = _asked(one)
        run.call(tool, resource=one.effect.resource, key=key_of(one), **request)
    except (EffectInDoubt, RetryLater):
        raise
    except DurableOpsError as error:
        return error
    return None


def key_of(one: Compensation) -> str:
    """The author's key of the undoing call. One that was refused or given up is over; nothing else begins a new one."""
    return f"undo {one.effect_id}" + (f" again {one.spent_slots}" if one.spent_slots else "")


def _asked(one: Compensation) -> tuple[ToolDefinition, dict[str, Any]]:
    """The tool and its request. Raises DurableOpsError when today's code cannot make them."""
    done = registry.tool(one.effect.tool)
    undo = registry.tool(one.tool)
    if done is None or undo is None or done.compensate is None:
        missing = one.effect.tool if done is None else one.tool
        raise DurableOpsError(f"tool {missing!r} is not known to this worker, or no longer says how it is undone.")
    try:
        request = request_to_undo(done, _facts(one.effect))
    except Exception as error:  # an author's function may raise anything
        raise DurableOpsError(f"undo_request of {one.effect.tool} failed: {describe_error(error)}") from error
    # The slot without run and step: whichever run undoes this effect, it is the same call.
    return replace(undo, scope="tenant"), request


def _facts(effect: IdempotencyRecord) -> DoneEffect:
    return DoneEffect(
        tool=effect.tool, resource=effect.resource, author_key=effect.author_key, key=effect.key,
        downstream_id=effect.downstream_id, request=effect.request_summary,
        result=None if effect.result is None else codec.loads(effect.result, what=f"result of {effect.tool}"),
    )  # fmt: skip


def _record_of(one: Compensation) -> IdempotencyRecord | None:
    """The record of the undoing call, if it came so far."""
    return IdempotencyRecord.objects.filter(
        tenant_id=one.tenant_id, tool=one.tool, resource=one.effect.resource, author_key=key_of(one), scope="tenant"
    ).first()


def _commit(hand: Hand) -> Logic[None]:
    yield Commit(hand.write())


def _mark(run: SyncRun, one: Compensation, sources: set[str], *, event: str, state: str, **fields: Any) -> None:
    """Move a compensation on, under this run's fence, unless a person was quicker."""
    with _under_fence(run.hand) as cursor:
        moved = Compensation.objects.select_for_update(no_key=True).filter(
            pk=one.pk, state__in=sources, linked_run_id=run.hand.run_id
        )
        found = moved.first()
        if found is None:
            return
        now = _now(cursor)
        found.state, found.state_since = state, now
        for name, value in fields.items():
            setattr(found, name, value)
        if state in COMPENSATION_FINAL:
            found.settled_at = now
        found.save()
        told = {"compensation": one.pk, "effect": one.effect_id, "tool": one.effect.tool, "linked_run": run.id}
        record_event(cursor, one.run_id, event, actor="engine", reason=fields.get("error", ""),
                     step_id=one.effect.step_id, data=told)  # fmt: skip


@contextmanager
def _under_fence(hand: Hand) -> Iterator[Cursor]:
    """A transaction of Django's connection in which this run is certainly still ours."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK, [hand.run_id, hand.fence])
        if cursor.fetchone() is None:
            raise FenceLost(f"run {hand.run_id} was taken by a newer claim; the compensation was not moved.")
        yield cursor


def _now(cursor: Cursor) -> Any:
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]
