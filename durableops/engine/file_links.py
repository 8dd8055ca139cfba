"""Links to files of runs, made by somebody who may read them and good for a while for whoever holds them.

A link carries its end and whose it is under a signature; nothing is stored for it. Whose rights somebody has is asked
before; what is private leaves an audit entry whenever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core import signing

from durableops.clock import db_now
from durableops.conf import get_conf
from durableops.errors import ArtifactGone, ArtifactNotFound
from runs.models import Artifact, AuditEntry

_SALT = "durableops.file"


@dataclass(frozen=True, kw_only=True)
class Link:
    """What stands in an address, and until when it works."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class Linked:
    """The file that a link leads to, and who made it."""

    artifact: Artifact
    by: str


def make(artifact: Artifact, *, actor: str) -> Link:
    """Make a link to a file, with its audit entry. Whether `actor` may read it was asked before."""
    expires_at = db_now() + timedelta(seconds=get_conf().link_seconds)
    _audit(artifact, "link_file", actor=actor, after={"expires_at": expires_at.isoformat(timespec="seconds")})
    payload = {"file": artifact.pk, "by": actor, "until": int(expires_at.timestamp())}
    return Link(token=signing.Signer(salt=_SALT).sign_object(payload, compress=True), expires_at=expires_at)


def follow(token: str) -> Linked:
    """Find the file of a link.

    Raises ArtifactNotFound for what is no link of ours, ArtifactGone when its time or the file is over.
    """
    try:
        payload: dict[str, Any] = signing.Signer(salt=_SALT).unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise ArtifactNotFound("this is no link to a file of ours; ask whoever gave it for a new one.") from None
    until = datetime.fromtimestamp(payload["until"], UTC)
    if until <= db_now():
        raise ArtifactGone(f"this link ended at {until:%Y-%m-%d %H:%M} UTC; ask whoever gave it for a new one.")
    artifact = Artifact.objects.select_related("run__tenant").filter(pk=payload["file"]).first()
    if artifact is None:
        raise ArtifactGone("the file that this link led to was removed by retention.")
    return Linked(artifact=artifact, by=payload["by"])


def note_reading(artifact: Artifact, *, actor: str) -> None:
    """Leave an audit entry when what is read is kept apart. Called before the first byte leaves."""
    if artifact.readable_by == "prompts":
        _audit(artifact, "read_private_file", actor=actor, after={})


def _audit(artifact: Artifact, verb: str, *, actor: str, after: dict[str, Any]) -> None:
    AuditEntry.objects.create(
        tenant_id=artifact.run.tenant_id,
        actor=actor,
        verb=verb,
        target_kind="run",
        target_id=str(artifact.run_id),
        after={"file": artifact.name, "data_class": artifact.data_class, "sha256": artifact.content_hash, **after},
    )
