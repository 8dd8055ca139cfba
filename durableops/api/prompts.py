"""Raw prompts over the API: that there are some is for whoever reads runs, what they say for a scope of its own."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from ninja import Router

from durableops.access import Permission
from durableops.api.auth import client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import Prompt as PromptOut
from durableops.api.schemas import PromptList, PromptText, VerbRequest
from durableops.engine import prompts
from durableops.errors import PromptNotFound
from runs.models import Prompt

SHOWN = 1000
LARGEST_ID = 2**63 - 1

router = Router(tags=["prompts"])


@router.get(
    "/{uuid:run_id}/prompts",
    response={200: PromptList, **REFUSALS},
    operation_id="list_prompts",
    summary="List the raw prompts of a run",
    **asks(Permission.VIEW),
)
def list_prompts(request: HttpRequest, run_id: UUID) -> PromptList:
    """Which prompts a run kept, newest first, at most a thousand; not what they say."""
    client = client_of(request)
    if not client.runs().filter(pk=run_id).exists():
        raise no_such_run(run_id)
    rows = Prompt.objects.filter(run_id=run_id).defer("sealed").order_by("-id")[: SHOWN + 1]
    shown = [
        PromptOut(id=row.pk, name=row.name, key=row.author_key, step=row.step_id, bytes=row.size_bytes, at=row.at)
        for row in rows[:SHOWN]
    ]
    return PromptList(prompts=shown, more=len(rows) > SHOWN)


@router.post(
    "/{uuid:run_id}/prompts/{int:prompt_id}/read",
    response={200: PromptText, **REFUSALS},
    operation_id="read_prompt",
    summary="Read a raw prompt",
    **asks(Permission.PROMPTS),
)
def read(request: HttpRequest, run_id: UUID, prompt_id: int, body: VerbRequest) -> PromptText:
    """What a prompt says. Each reading is an audit entry with its reason."""
    client = client_of(request)
    of_run = Prompt.objects.filter(run_id=run_id, run__tenant=client.tenant)
    found = of_run.filter(pk=prompt_id).first() if prompt_id <= LARGEST_ID else None
    if found is None:
        raise PromptNotFound(f"run {run_id} has no prompt {str(prompt_id)[:20]} here.")
    text = prompts.read(found, tenant=client.tenant, actor=client.actor, reason=body.reason)
    return PromptText(id=found.pk, text=text)
