"""Legacy systems over the API: their queues, as far as they are the token's tenant's. Pausing one is for people."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.doubt_schemas import QueuedCall, System, SystemList, SystemQueue
from durableops.api.paging import LARGEST_ID
from durableops.api.schemas import MoveRequest, VerbDone
from durableops.api.verbs import done
from durableops.engine import guard, system_view, systems
from durableops.errors import SystemNotFound

router = Router(tags=["systems"])


@router.get(
    "", response={200: SystemList, **REFUSALS}, operation_id="list_systems", summary="List legacy systems",
    **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest) -> SystemList:
    """The systems that this tenant has ever had a call queued for."""
    client = client_of(request)
    return SystemList(systems=[_system(one) for one in system_view.systems([client.tenant.pk])])


@router.get(
    "/{name}", response={200: SystemQueue, **REFUSALS}, operation_id="get_system", summary="Read a system's queue",
    **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, name: str) -> SystemQueue:
    """One system, and the calls of this tenant that wait for their turn, in order."""
    client = client_of(request)
    found = next((one for one in system_view.systems([client.tenant.pk]) if one.name == name), None)
    if found is None:
        raise SystemNotFound(f"no call has ever been queued for a system {name[:100]!r}.")
    queue = system_view.queue(name, [client.tenant.pk])
    own = [one.effect_id for one in queue]
    calls = [
        QueuedCall(
            effect=one.effect_id, run=one.run_id, tool=one.tool, resource=one.resource, ahead=one.ahead,
            queued_at=one.queued_at, run_state=one.run_state, run_paused=one.run_paused,
            plan_hash=systems.place_hash(one.effect_id, own),
        )
        for one in queue
    ]  # fmt: skip
    return SystemQueue(**_system(found).model_dump(), calls=calls)


@router.post(
    "/calls/{int:effect_id}/move", response={200: VerbDone, **REFUSALS}, operation_id="move_call",
    summary="Move a queued call", **asks(VERBS["move_call"]),
)  # fmt: skip
def move(request: HttpRequest, effect_id: int, body: MoveRequest) -> Status[VerbDone]:
    """Move a call within the places that this tenant's calls have. Refused (409) once it is not waiting any more, and
    with a `plan_hash` also when it has another place than was shown: a request that is sent twice moves it once."""
    client = client_of(request)
    if effect_id > LARGEST_ID:
        raise SystemNotFound(f"there is no call {str(effect_id)[:20]}… in a queue here.")
    return done(
        systems.move(
            effect_id, tenant=client.tenant, actor=client.actor, reason=body.reason, to=body.to,
            plan_hash=body.plan_hash or guard.UNSEEN,
        )
    )  # fmt: skip


def _system(one: system_view.Seen) -> System:
    return System(
        name=one.name, paused=one.paused, paused_by=one.paused_by, paused_reason=one.paused_reason,
        paused_at=one.paused_at, queued=one.queued, queued_here=one.queued_here, oldest_at=one.oldest_at,
        on_the_wire=one.on_the_wire, in_doubt=one.in_doubt,
    )  # fmt: skip
