"""Decisions about approvals over the API, bound to the facts that were shown."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from durableops.access import VERBS
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import ApprovalRequest, RefusalRequest, VerbDone
from durableops.api.verbs import done
from durableops.engine import commands
from durableops.errors import RunNotFound

LARGEST_ID = 2**63 - 1

router = Router(tags=["approvals"])


def _verb[V: Callable[..., Status[VerbDone]]](name: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:wait_id}}/{name}",
        response={200: VerbDone, **REFUSALS},
        operation_id=f"{name}_approval",
        summary=summary,
        **asks(VERBS[name]),
    )
    return decorate


@_verb("approve", "Approve what a run asks")
def approve(request: HttpRequest, wait_id: int, body: ApprovalRequest) -> Status[VerbDone]:
    """Approve what a run asks, once. Refused (409) if it was answered, has expired, or shows other facts by now."""
    client = client_of(request)
    return done(
        commands.approve(
            _known(wait_id), tenant=client.tenant, actor=client.actor, reason=body.reason, facts_hash=body.facts_hash
        )
    )


@_verb("refuse", "Refuse what a run asks")
def refuse(request: HttpRequest, wait_id: int, body: RefusalRequest) -> Status[VerbDone]:
    """Refuse what a run asks, once, with a reason."""
    client = client_of(request)
    return done(
        commands.refuse(
            _known(wait_id), tenant=client.tenant, actor=client.actor, reason=body.reason, facts_hash=body.facts_hash
        )
    )


def _known(wait_id: int) -> int:
    if wait_id > LARGEST_ID:
        raise RunNotFound(f"there is no approval {str(wait_id)[:20]}… here.")
    return wait_id
