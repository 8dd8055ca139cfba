"""Raw prompts: kept with the run's next commit, masked and encrypted, and read by few, each time with an entry."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from durableops import sealing
from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.engine.hand import Hand
from durableops.masking import mask, mask_text
from runs.models import AuditEntry, Prompt, Tenant


def row(name: str, content: Any, *, key: str) -> dict[str, Any]:
    """A prompt as the commit writes it. Raises PayloadRefused for what is no JSON or too large."""
    codec.check_key(name, what="name of a prompt")
    if key:
        codec.check_key(key, what="key of a prompt")
    limit = get_conf().payload_max_bytes
    # Checked before it is masked: a value that is no JSON is the author's mistake, not ours to smooth over.
    text = codec.dumps(content, what=f"prompt {name!r}", max_bytes=limit)
    masked = mask_text(content) if isinstance(content, str) else json.dumps(mask(json.loads(text)), ensure_ascii=False)
    raw = masked.encode()
    return {
        "name": name,
        "author_key": key,
        "content_hash": salted_hmac("durableops.prompt", raw, algorithm="sha256").hexdigest(),
        "size_bytes": len(raw),
        "sealed": sealing.seal(raw).decode(),
        "sealed_with": sealing.key_id(),
    }


def keep(hand: Hand, name: str, content: Any, *, key: str) -> None:
    """Keep a prompt with the run's next commit."""
    hand.prompt(row(name, content, key=key))


def read(prompt: Prompt, *, tenant: Tenant, actor: str, reason: str) -> str:
    """The text of a prompt, with the audit entry that says who read it and why. Whether they may was asked before."""
    with transaction.atomic():
        AuditEntry.objects.create(
            tenant=tenant,
            actor=actor,
            verb="read_prompt",
            target_kind="run",
            target_id=str(prompt.run_id),
            reason=mask_text(reason)[:2000],
            after={"prompt": prompt.pk, "name": prompt.name, "step": prompt.step_id},
        )
        return sealing.unseal(prompt.sealed.encode()).decode()
