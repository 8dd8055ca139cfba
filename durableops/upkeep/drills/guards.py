"""The database's own refusals, tried: each attempt is made inside a transaction that is rolled back.

What no ordinary course of events reaches can still be missing. A guard that lets an attempt through fails its check.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db import DatabaseError, connection, transaction

from durableops.upkeep.drills.checks import Checks
from runs.models import IdempotencyRecord, Run

_SLOT = b"a drill tries the guard of slots".ljust(32, b".")[:32]


class _LetThrough(Exception):
    """The attempt was accepted; raised so that its transaction is rolled back."""


def check_guards(checks: Checks, run_id: UUID) -> None:
    """Try, on a run that exists, what the database must refuse whoever asks."""
    for name, attempt in GUARDS.items():
        passed, told = _try(attempt, run_id)
        checks.add(name, passed, told)


def _try(attempt: Callable[[UUID], str], run_id: UUID) -> tuple[bool, str]:
    told = ""
    try:
        with transaction.atomic():
            told = attempt(run_id)
            raise _LetThrough
    except _LetThrough:
        return False, f"{told} was accepted; the database has lost its guard"
    except DatabaseError as refused:
        return True, str(refused).splitlines()[0]


def _second_record_of_a_slot(run_id: UUID) -> str:
    run = Run.objects.get(pk=run_id)
    for n in range(2):
        IdempotencyRecord.objects.create(
            run=run, tenant_id=run.tenant_id, slot=_SLOT, key=f"drill-{n}", request_hash="", step_id=run.step_id,
            tool="drill", resource="drill", safety="keyed", fence=run.fence,
        )  # fmt: skip
    return "a second effect with the slot of another"


def _statement(what: str, text: str) -> Callable[[UUID], str]:
    def attempt(run_id: UUID) -> str:
        with connection.cursor() as cursor:
            cursor.execute(text, [run_id])
            if not cursor.rowcount:
                raise AssertionError(f"{what} found no row to try it on")
        return what

    return attempt


GUARDS: dict[str, Callable[[UUID], str]] = {
    "slot_is_unique": _second_record_of_a_slot,
    "checkpoints_are_immutable": _statement(
        "a change of a committed checkpoint", "UPDATE runs_checkpoint SET state = '{}' WHERE run_id = %s AND seq = 0"
    ),
    "history_is_immutable": _statement(
        "a change of a history row", "UPDATE runs_event SET reason = 'nothing happened' WHERE run_id = %s"
    ),
    "fence_never_falls": _statement("a lower fence", "UPDATE runs_run SET fence = fence - 1 WHERE id = %s"),
    "checkpoint_numbers_never_fall": _statement(
        "a lower checkpoint number", "UPDATE runs_run SET head_seq = head_seq - 1, state_seq = 0 WHERE id = %s"
    ),
}
