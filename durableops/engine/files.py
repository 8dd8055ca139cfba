"""The logic of a run's files: written before a commit names them, found again by name and content."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import IO, Any

from durableops import failpoints
from durableops.artifacts import loose, storage
from durableops.artifacts.storage import Given, Stored
from durableops.checkpoints import codec
from durableops.engine.checks import check_may_go_on, flush_if_stale
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Aside, Ask, Logic
from durableops.engine.records import ensure_loaded
from durableops.errors import ArtifactNotFound, Fatal

TOOL = "run.artifact"
"""Under which the effects of writing files are recorded; no author's tool begins with `run.`."""
PRIVATE = frozenset({"raw_prompt", "temp_file"})
"""Kept apart: sealed, and readable only with a right of their own."""
CLASSES = ("deliverable", "input", *sorted(PRIVATE))
READERS = ("payloads", "members")
MAX_CONTENT_TYPE_BYTES = 100

_NEWEST = """
SELECT path, content_hash, sealed_with <> '' FROM runs_artifact
WHERE run_id = %s AND name = %s AND (%s = '' OR content_hash = %s) ORDER BY id DESC LIMIT 1"""


def artifact(
    hand: Hand, name: str, data: Given, *, data_class: str, content_type: str, readers: str
) -> Logic[str]:  # fmt: skip
    """Keep a file with the run and return its content hash. The same bytes under the same name are kept once."""
    check_may_go_on(hand)
    yield from flush_if_stale(hand)
    codec.check_key(name, what="name of an artifact")
    if data_class not in CLASSES:
        raise Fatal(f"data_class is {data_class!r}; give one of {', '.join(CLASSES)}.")
    if readers not in READERS:
        raise Fatal(f"readers is {readers!r}; give one of {', '.join(READERS)}.")
    codec.check_key(content_type, what="content type of an artifact", max_bytes=MAX_CONTENT_TYPE_BYTES)
    yield from ensure_loaded(hand)
    if hand.resumed or name in hand.files:
        known = yield Aside(partial(storage.hash_of, data))
        if known is not None and _is_kept(hand, name, known):
            return str(known)
    stored = yield from store(hand, data, sealed=data_class in PRIVATE)
    keep(hand, name, stored, data_class=data_class, content_type=content_type,
         readers="prompts" if data_class in PRIVATE else readers)  # fmt: skip
    hand.record(_effect(hand, name, stored))
    return stored.content_hash


def open_artifact(hand: Hand, name: str, *, content_hash: str) -> Logic[IO[bytes]]:
    """Open a file of this run for reading: the one with this content, else the newest of this name."""
    check_may_go_on(hand)
    row = hand.files.get(name)
    if row is None or content_hash not in ("", row["content_hash"]):
        found = yield Ask(lambda database: database.read(_NEWEST, [hand.run_id, name, content_hash, content_hash]))
        if not found:
            raise ArtifactNotFound(f"run {hand.run_id} has no file {name!r}; it keeps one with run.artifact.")
        path, content_hash, sealed = found[0]
    else:
        path, content_hash, sealed = row["path"], row["content_hash"], bool(row["sealed_with"])
    return storage.as_file(storage.read(path, content_hash=content_hash, sealed=sealed))


def store(hand: Hand, data: Given, *, sealed: bool) -> Logic[Stored]:
    """Write a file that the next commit may name. Until then, only the record of loose files knows it."""
    path = storage.new_path(tenant=hand.claimed.tenant, run_id=hand.run_id)
    yield Ask(partial(_note, hand, path))
    failpoints.reach(failpoints.Point.BEFORE_FILE)
    stored: Stored = yield Aside(partial(storage.write, path, data, sealed=sealed))
    failpoints.reach(failpoints.Point.AFTER_FILE)
    return stored


def keep(hand: Hand, name: str, stored: Stored, *, data_class: str, content_type: str, readers: str) -> None:
    """Name a stored file with the next commit."""
    hand.keep(
        {
            "name": name,
            "data_class": data_class,
            "readable_by": readers,
            "content_type": content_type,
            "content_hash": stored.content_hash,
            "size_bytes": stored.size_bytes,
            "path": stored.path,
            "sealed_with": stored.sealed_with,
        }
    )


def _note(hand: Hand, path: str, database: Database) -> None:
    def insert(cursor: Any) -> None:
        loose.note(cursor, path, tenant_id=hand.claimed.tenant_id, run_id=hand.run_id, worker_id=hand.worker_id)

    database.retrying(insert)


def _is_kept(hand: Hand, name: str, content_hash: str) -> bool:
    if hand.files.get(name, {}).get("content_hash") == content_hash:
        return True
    effect = hand.effects.get(_slot(hand, name, content_hash))
    if effect is None:
        return False
    hand.reuse(effect.id)
    return True


def _slot(hand: Hand, name: str, content_hash: str) -> str:
    identity = ["run", str(hand.run_id), hand.step.id, TOOL, name, content_hash]
    return hashlib.sha256(json.dumps(identity, ensure_ascii=False).encode()).hexdigest()


def _effect(hand: Hand, name: str, stored: Stored) -> dict[str, Any]:
    """Writing a file is an effect, too: keyed by what is in it, so doing it twice does nothing more."""
    slot = _slot(hand, name, stored.content_hash)
    return {
        "slot": slot,
        "key": slot[:48],
        "request_hash": stored.content_hash,
        "request_summary": {"bytes": stored.size_bytes},
        "step_id": hand.step.id,
        "tool": TOOL,
        "resource": name,
        "author_key": stored.content_hash,
        "safety": "keyed",
        "scope": "run",
        "state": "succeeded",
        "result": json.dumps(stored.content_hash),
        "downstream_id": "",
        "error_class": "",
        "error_message": "",
        "attempts": 1,
    }
