"""What an attempt to deliver means: delivered, to be tried again, or poisoned. Pure functions; nothing is sent here."""

from __future__ import annotations

import random
from typing import Any

from durableops.authoring.definitions import ToolDefinition
from durableops.authoring.policies import Retry
from durableops.checkpoints import codec
from durableops.checkpoints.failures import safe_text
from durableops.conf import get_conf
from durableops.engine import results
from durableops.engine.ops import Attempt
from durableops.errors import Fatal, NotSent, PayloadRefused, Refused, RetryLater
from durableops.masking import mask_addresses, mask_text
from runs.delivering import Settled
from runs.relaying import Taken

MESSAGE_CHARACTERS = 1000
MOST_LOSSES = 5
"""So often, beyond its retries, a message may lose its relay before it is taken for what kills them."""


def judge(taken: Taken, attempt: Attempt, *, tool: ToolDefinition, rng: random.Random) -> Settled:
    """What becomes of a message after an attempt. Only an answer that says so makes it delivered."""
    error = attempt.error
    if error is None:
        return _delivered(taken, attempt.value, tool)
    retry = tool.retry
    unsent = isinstance(error, NotSent)
    final = isinstance(error, Refused) or retry.gives_up_on(error)
    if final or taken.tries >= retry.max_attempts:
        return poisoned(taken, error, unsent=unsent, blames=not final)
    pause, rest = retry.delay(taken.tries, rng), 0.0
    if isinstance(error, RetryLater):
        rest = max(0.0, min(error.after_seconds, get_conf().call_retry_after_cap_seconds))
        pause = max(pause, rest)
    return failed(taken, error, pause=pause, unsent=unsent, blames=True, rest=rest)


def cannot_be_sent(taken: Taken, *, retry: Retry) -> Settled | None:
    """What becomes of a message that must not be sent at all; None for one that may be."""
    if taken.message_id is None:
        return released(taken)
    if taken.seconds_left is not None and taken.seconds_left <= 0:
        late = NotSent("its time to be delivered has passed; it was not sent any more.")
        return poisoned(taken, late, unsent=True, blames=False)
    if taken.tries > retry.max_attempts + MOST_LOSSES:
        lost = Fatal(f"it lost its relay too often: it was taken up {taken.tries - 1} times without an outcome.")
        return poisoned(taken, lost, unsent=True, blames=False)
    return None


def released(taken: Taken, *, pause: float = 0.0, why: str = "") -> Settled:
    """A lane that is given back with nothing tried."""
    return _settled(taken, "released", unsent=True, pause=pause, error_message=why)


def failed(
    taken: Taken, error: BaseException, *, pause: float, unsent: bool, blames: bool = False, rest: float = 0.0
) -> Settled:
    """To be tried again after `pause` seconds."""
    return _settled(taken, "failed", unsent=unsent, pause=pause, blames=blames, rest=rest, **_told(error))


def poisoned(taken: Taken, error: BaseException, *, unsent: bool, blames: bool) -> Settled:
    """Not to be tried again, unless a person says so."""
    return _settled(taken, "poisoned", unsent=unsent, blames=blames, **_told(error))


def skipped(taken: Taken, why: str) -> Settled:
    """Not to be delivered any more, and nobody needs to decide."""
    return _settled(taken, "skipped", unsent=True, error_message=why)


def _settled(taken: Taken, outcome: str, **more: Any) -> Settled:
    return Settled(
        lane=taken.lane_id, claim=taken.claim, message=taken.message_id, run=str(taken.run_id),
        resource=taken.resource, outcome=outcome, **more,
    )  # fmt: skip


def _told(error: BaseException) -> dict[str, str]:
    return {"error_class": type(error).__name__[:200], "error_message": shown(error)}


def shown(error: BaseException) -> str:
    """An error as people read it: no credentials, and of addresses the host alone."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - an author's __str__ may do anything
        text = f"(its text cannot be read: {type(broken).__qualname__})"
    return safe_text(mask_addresses(mask_text(text)), limit=MESSAGE_CHARACTERS) or type(error).__name__


def _delivered(taken: Taken, value: Any, tool: ToolDefinition) -> Settled:
    found = value.get(tool.resource_id) if tool.resource_id and isinstance(value, dict) else None
    try:
        text = codec.dumps(value, what=f"result of {tool.name}", max_bytes=get_conf().payload_max_bytes)
        result = results.stored(tool, text)
    except PayloadRefused:
        # It arrived, and nobody reads what the handler returned: not a reason to send it again.
        result = "null"
    downstream = "" if found is None else safe_text(str(found))[:255]
    return _settled(taken, "delivered", result=result, downstream_id=downstream)
