"""Effects on our own database: the author's change and its effect record commit together, under the run's fence."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

from django.db import connection, transaction

from durableops import failpoints
from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared
from durableops.engine import results
from durableops.engine.calling import LiveCall
from durableops.engine.checks import check_may_go_on
from durableops.engine.hand import Hand
from durableops.errors import EffectConflict, Fatal, FenceLost

_LOCK = (
    "SELECT cancel_requested, paused FROM runs_run WHERE id = %s AND fence = %s AND state = 'running' FOR NO KEY UPDATE"
)
_FIND = "SELECT id, request_hash, result FROM runs_effect WHERE slot = %s"
_INSERT = """
INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
    author_key,
    safety, scope, state, attempts, reused, fence, intended_at, completed_at, result, downstream_id, error_class,
    error_message)
VALUES (%(run)s, %(tenant)s, %(slot_bytes)s, %(key)s, %(request_hash)s, %(summary)s::jsonb, %(step_id)s, %(tool)s,
    %(resource)s, %(author_key)s, %(safety)s, %(scope)s, 'succeeded', 1, 0, %(fence)s, now(), now(), %(result)s, '',
    '', '')
RETURNING id
"""


def perform(hand: Hand, prepared: Prepared, call: LiveCall, identity: dict[str, Any]) -> tuple[int, Any, bool]:
    """Make the change with its record, or find that it was made. Returns (effect id, result, whether it was found).

    Runs on Django's own connection, which is the one the author's code uses. Raises FenceLost when the run is no longer
    ours, EffectConflict when the slot holds another request, PayloadRefused (with the change undone) when the result
    cannot be kept, Fatal inside a transaction of the step's own.
    """
    if connection.in_atomic_block:
        # Its rollback would take back what we have recorded, and its lock on the run would block our own commits.
        raise Fatal(
            f"{prepared.tool.name} is `local` and was called inside a transaction; it commits on its own. "
            "Call it outside, or make the whole change in the tool."
        )
    slot = bytes.fromhex(prepared.slot)
    failpoints.reach(failpoints.Point.BEFORE_INTENT, hand.step.id, prepared.resource)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK, [hand.run_id, hand.fence])
        run = cursor.fetchone()
        if run is None:
            raise FenceLost(f"run {hand.run_id} was taken by a newer claim; the local change was not made.")
        hand.cancel_requested, hand.pause_requested = run[0], run[1] or hand.pause_requested
        check_may_go_on(hand)
        cursor.execute(_FIND, [slot])
        found = cursor.fetchone()
        if found is not None:
            if found[1] != prepared.request_hash:
                raise EffectConflict(
                    f"{prepared.tool.name} for {prepared.resource!r} was asked with another request before "
                    f"(effect {found[0]}). Nothing was changed.",
                    effect=found[0],
                )
            return found[0], results.read(prepared.tool, found[2]), True
        call.begin()
        value = prepared.tool.function(call, **prepared.request)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        text = codec.dumps(value, what=f"result of {prepared.tool.name}", max_bytes=get_conf().payload_max_bytes)
        facts = {**identity, "slot_bytes": slot, "summary": json.dumps(identity["request_summary"])}
        facts |= {
            "run": hand.run_id,
            "tenant": hand.claimed.tenant_id,
            "fence": hand.fence,
            "result": results.stored(prepared.tool, text),
        }
        cursor.execute(_INSERT, facts)
        failpoints.reach(failpoints.Point.AFTER_ANSWER, hand.step.id, prepared.resource)
        return cursor.fetchone()[0], codec.loads(text), False


async def _awaited(value: Any) -> Any:
    return await value
