"""Files that people bring for a run that waits for them: taken in pieces, kept with the run, and the wait answered.

The bytes are written first, under a note that they may be given up. One transaction then names them, answers the wait
and wakes the run; of two who bring a file at once, one is told that it was there already and their bytes are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from django.core import signing
from django.db import connection, transaction

from durableops.artifacts import loose, storage
from durableops.artifacts.storage import Stored
from durableops.checkpoints import codec
from durableops.clock import db_now
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused, write
from durableops.engine.files import PRIVATE
from durableops.engine.waking import Closing, close_wait
from durableops.errors import ArtifactGone, ArtifactNotFound, InputRefused, InputTooLarge, RunNotFound
from runs.models import Artifact, AuditEntry, Run, Tenant, Wait

LINK_LASTS = timedelta(days=7)
"""How long a link for somebody outside works, if the wait does not end before."""
SECONDS_TO_BRING = 3600.0
LONGEST_NAME = 200
LONGEST_TYPE = 100
_SALT = "durableops.upload"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a wait says about its file."""

    accept: tuple[str, ...]
    """Endings such as `.csv` and types such as `image/*`; none takes any file."""
    max_bytes: int
    data_class: str
    readers: str

    @property
    def words(self) -> str:
        kinds = ", ".join(self.accept) or "any file"
        return f"{kinds}, at most {self.max_bytes:,} bytes"


@dataclass(frozen=True, kw_only=True)
class Brought:
    """A file as somebody gives it."""

    name: str
    """As it is called where it comes from."""
    content_type: str
    size: int
    pieces: Iterable[bytes]


@dataclass(frozen=True, kw_only=True)
class UploadLink:
    """What stands in an address for somebody outside, and until when it works."""

    token: str
    expires_at: datetime


def wanted(wait: Wait) -> Wanted:
    """What a wait says about its file."""
    told: Mapping[str, Any] = codec.loads(wait.facts or "{}")
    return Wanted(
        accept=tuple(told.get("accept", ())), max_bytes=told.get("max_bytes") or get_conf().large_result_max_bytes,
        data_class=told.get("data_class", "input"), readers=told.get("readers", "payloads"),
    )  # fmt: skip


@audited_refusals
def receive(wait_id: int, *, tenant: Tenant, actor: str, file: Brought, reason: str = "") -> Done:
    """Take the file that a run waits for, once. Whether `actor` may bring it was asked before.

    Raises TransitionRefused when it was brought already or the wait has ended, InputRefused or InputTooLarge for a
    file that it does not take; then nothing is kept.
    """
    wait, run = _open(wait_id, tenant)
    asked = wanted(wait)
    _check(asked, file)
    path = storage.new_path(tenant=tenant.slug, run_id=run.pk)
    with connection.cursor() as cursor:
        loose.note(cursor, path, tenant_id=tenant.pk, run_id=run.pk, abandon_seconds=SECONDS_TO_BRING)
    try:
        stored = storage.write(path, _measured(file.pieces, asked.max_bytes), sealed=asked.data_class in PRIVATE)
        return _name(wait_id, tenant, actor, reason, file, stored, asked)
    except BaseException:
        with connection.cursor() as cursor:
            loose.doom(cursor, [(path, tenant.pk, run.pk)])
        raise


def make_link(wait_id: int, *, tenant: Tenant, actor: str) -> UploadLink:
    """Let whoever holds the link bring the file, once. Whether `actor` may bring it themselves was asked before."""
    with transaction.atomic():
        wait, run = _open(wait_id, tenant, lock=True)
        expires_at = min(filter(None, (db_now() + LINK_LASTS, wait.expires_at, run.deadline_at)))
        AuditEntry.objects.create(
            tenant=tenant, actor=actor, verb="link_upload", target_kind="run", target_id=str(run.pk),
            after={"wait": wait.pk, "name": wait.name, "expires_at": expires_at.isoformat(timespec="seconds")},
        )  # fmt: skip
    payload = {"wait": wait.pk, "by": actor, "until": int(expires_at.timestamp())}
    return UploadLink(token=signing.Signer(salt=_SALT).sign_object(payload, compress=True), expires_at=expires_at)


def follow_link(token: str) -> tuple[Wait, str]:
    """The open wait of a link, and who made it.

    Raises ArtifactNotFound for what is no link of ours, ArtifactGone when its time is over or the file was brought.
    """
    try:
        payload: dict[str, Any] = signing.Signer(salt=_SALT).unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise ArtifactNotFound("this is no link of ours for a file; ask whoever gave it for a new one.") from None
    wait = Wait.objects.select_related("run__tenant").filter(pk=payload["wait"], kind="file").first()
    until = datetime.fromtimestamp(payload["until"], UTC)
    if wait is not None and wait.state == "answered":
        raise ArtifactGone("the file was brought already; this link works once.")
    if wait is None or wait.state != "open" or until <= db_now():
        raise ArtifactGone(f"this link ended at {until:%Y-%m-%d %H:%M} UTC; ask whoever gave it for a new one.")
    return wait, payload["by"]


def _open(wait_id: int, tenant: Tenant, *, lock: bool = False) -> tuple[Wait, Run]:
    wait = Wait.objects.filter(pk=wait_id, tenant=tenant, kind="file").first()
    if wait is None:
        raise RunNotFound(f"there is no wait for a file {wait_id} here.")
    run = locked(tenant, wait.run_id) if lock else Run.objects.get(pk=wait.run_id)
    wait.refresh_from_db()
    if wait.state != "open" or (wait.expires_at is not None and wait.expires_at <= db_now()):
        by = f" by {wait.answered_by}" if wait.answered_by else ""
        raise refused(run, "bring_file", f"an open wait; {wait.name!r} is {wait.state}{by}, or has expired")
    return wait, run


def _check(asked: Wanted, file: Brought) -> None:
    if not file.name.strip() or not file.name.isprintable() or len(file.name) > LONGEST_NAME:
        raise InputRefused(f"the file's name is no name of at most {LONGEST_NAME} characters.", path="/file")
    if file.size > asked.max_bytes:
        raise InputTooLarge(f"{file.name} has {file.size:,} bytes; wanted is {asked.words}.", path="/file")
    ending = PurePosixPath(file.name.lower()).suffix
    fits = any(ending == one if one.startswith(".") else fnmatch(file.content_type, one) for one in asked.accept)
    if asked.accept and not fits:
        raise InputRefused(f"{file.name} is {file.content_type or 'of no known type'}; wanted is {asked.words}.",
                           path="/file")  # fmt: skip


def _measured(pieces: Iterable[bytes], most: int) -> Iterable[bytes]:
    """The pieces, as long as they are no more than was wanted, whatever was announced."""
    left = most
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise InputTooLarge(f"the file has more than the {most:,} bytes that are wanted.", path="/file")
        yield piece


def _name(wait_id: int, tenant: Tenant, actor: str, reason: str, file: Brought, stored: Stored, asked: Wanted) -> Done:
    """Name the file, answer its wait and wake the run, in one transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run = _open(wait_id, tenant, lock=True)
        known = Artifact.objects.filter(run=run, name=wait.name, content_hash=stored.content_hash).exists()
        if known:  # the very bytes are there: an earlier round brought them
            loose.doom(cursor, [(stored.path, tenant.pk, run.pk)])
        elif loose.claim(cursor, stored.path):
            Artifact.objects.create(
                run=run, step_id=wait.step_id, name=wait.name, data_class=asked.data_class,
                readable_by="prompts" if asked.data_class in PRIVATE else asked.readers,
                content_type=file.content_type or "application/octet-stream", content_hash=stored.content_hash,
                size_bytes=stored.size_bytes, path=stored.path, sealed_with=stored.sealed_with, fence=run.fence,
            )  # fmt: skip
        else:
            raise refused(run, "bring_file", f"a file that comes within {SECONDS_TO_BRING / 60:.0f} minutes")
        told = {
            "name": wait.name, "file_name": file.name, "content_type": file.content_type,
            "content_hash": stored.content_hash, "size_bytes": stored.size_bytes,
        }  # fmt: skip
        closing = Closing(
            state="answered", cause="file", detail=f"{actor} brought the file {wait.name!r}",
            answer=codec.dumps(told, what="file"), by=actor[:200],
        )  # fmt: skip
        close_wait(cursor, run_id=run.pk, wait_id=wait.pk, closing=closing)
        write(
            cursor, run, "bring_file", actor=actor[:200], reason=kept_reason(reason),
            before={"wait": wait.pk, "name": wait.name, "state": "open"},
            after={"sha256": stored.content_hash, "bytes": stored.size_bytes},
        )  # fmt: skip
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state="queued", settled=True, message=f"the file {wait.name!r} is there.")
