"""Encrypting everything anew with the newest key, so that an older one can be taken away. May be interrupted.

Declared secrets inside checkpoints, results and messages are not: what was committed is never written again. They keep
the key they have until retention removes them, and are counted here, so that nobody takes that key away before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from durableops import sealing
from durableops.artifacts import loose, storage
from durableops.engine.database import Database
from durableops.masking import SEALED

BATCH = 100
ABANDON_SECONDS = 6 * 3600.0

_PROMPTS = "SELECT id, sealed FROM runs_prompt WHERE sealed_with <> %s AND id > %s ORDER BY id LIMIT %s"
# Compared with what was read: retention may have removed it meanwhile, another may have been quicker.
_PUT_PROMPT = "UPDATE runs_prompt SET sealed = %s, sealed_with = %s WHERE id = %s AND sealed = %s"
_ENDPOINTS = "SELECT id, secret, former_secret FROM runs_webhook_endpoint WHERE sealed_with <> %s LIMIT %s FOR UPDATE"
_PUT_ENDPOINT = "UPDATE runs_webhook_endpoint SET secret = %s, former_secret = %s, sealed_with = %s WHERE id = %s"
_FILES = """
SELECT a.id, a.path, a.content_hash, r.tenant_id, t.slug, a.run_id
FROM runs_artifact a JOIN runs_run r ON r.id = a.run_id JOIN runs_tenant t ON t.id = r.tenant_id
WHERE a.sealed_with NOT IN ('', %s) AND a.id > %s ORDER BY a.id LIMIT %s"""
_PUT_FILE = "UPDATE runs_artifact SET path = %s, sealed_with = %s WHERE id = %s AND path = %s RETURNING id"
_LEFT = """
SELECT (SELECT count(*) FROM runs_prompt WHERE sealed_with <> %s),
    (SELECT count(*) FROM runs_artifact WHERE sealed_with NOT IN ('', %s)),
    (SELECT count(*) FROM runs_webhook_endpoint WHERE sealed_with <> %s)"""
_HELD = re.compile(r'"' + re.escape(SEALED) + r'":\s*"([^"]+)"')
# Documents with declared secrets in them, by primary key from a place on: run, text, place.
_CHECKPOINTS = """
SELECT c.run_id, c.state, c.run_id, c.seq FROM runs_checkpoint c
WHERE c.state LIKE %(held)s AND (c.run_id, c.seq) > (%(first)s, %(second)s) ORDER BY c.run_id, c.seq LIMIT %(batch)s"""
_RESULTS = """
SELECT e.run_id, e.result, e.id FROM runs_effect e
WHERE e.result LIKE %(held)s AND e.id > %(first)s ORDER BY e.id LIMIT %(batch)s"""
_MESSAGES = """
SELECT e.run_id, b.body, b.effect_id FROM runs_outbox_body b JOIN runs_effect e ON e.id = b.effect_id
WHERE b.body LIKE %(held)s AND b.effect_id > %(first)s ORDER BY b.effect_id LIMIT %(batch)s"""
_DOCUMENTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (_CHECKPOINTS, (UUID(int=0), -1)),
    (_RESULTS, (0,)),
    (_MESSAGES, (0,)),
)
SAMPLES = 3


@dataclass(kw_only=True)
class Resealed:
    """What was done, and what is left under older keys."""

    prompts: int = 0
    files: int = 0
    endpoints: int = 0
    left: int = 0
    runs: int = 0
    """Runs with declared secrets that only an older key opens."""
    sample: list[str] = field(default_factory=list)
    """Some of these."""


def reseal(database: Database) -> Resealed:
    """Seal every prompt and file with the newest key. Raises SealBroken when one cannot be opened with any key."""
    done = Resealed(prompts=_prompts(database), files=_files(database), endpoints=_endpoints(database))
    key = sealing.key_id()
    done.left = sum(database.fetch(_LEFT, [key, key, key])[0])
    older = sorted({run for run, text in _documents(database) if not _all_newest(text)})
    done.runs, done.sample = len(older), [str(run) for run in older[:SAMPLES]]
    return done


def _documents(database: Database) -> Iterator[tuple[UUID, str]]:
    """Every document with declared secrets in it, and whose it is."""
    for query, place in _DOCUMENTS:
        while rows := database.fetch(query, {"held": f'%"{SEALED}"%', "batch": BATCH, **_named(place)}):
            yield from ((row[0], row[1]) for row in rows)
            place = tuple(rows[-1][2:])


def _named(place: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("first", "second"), place, strict=False))


def _all_newest(text: str) -> bool:
    return all(sealing.is_newest(found[1].encode()) for found in _HELD.finditer(text))


def _prompts(database: Database) -> int:
    key, last, done = sealing.key_id(), 0, 0
    while rows := database.fetch(_PROMPTS, [key, last, BATCH]):
        with database.transaction() as cursor:
            for id_, sealed in rows:
                anew = sealing.seal(sealing.unseal(sealed.encode())).decode()
                cursor.execute(_PUT_PROMPT, [anew, key, id_, sealed])
                done += cursor.rowcount
        last = rows[-1][0]
    return done


def _endpoints(database: Database) -> int:
    done = 0
    while True:
        with database.transaction() as cursor:
            cursor.execute(_ENDPOINTS, [sealing.key_id(), BATCH])
            rows = cursor.fetchall()
            for id_, *secrets in rows:
                anew = [sealing.seal(sealing.unseal(one.encode())).decode() if one else "" for one in secrets]
                cursor.execute(_PUT_ENDPOINT, [*anew, sealing.key_id(), id_])
        done += len(rows)
        if not rows:
            return done


def _files(database: Database) -> int:
    last, done = 0, 0
    while rows := database.fetch(_FILES, [sealing.key_id(), last, BATCH]):
        done += sum(_one_file(database, *row) for row in rows)
        last = rows[-1][0]
    return done


def _one_file(
    database: Database, id_: int, path: str, content_hash: str, tenant_id: int, tenant: str, run_id: UUID
) -> bool:
    """Write the file anew under another name, then let the row name that one. A crash leaves one of the two loose."""
    new = storage.new_path(tenant=tenant, run_id=run_id)
    with database.transaction() as cursor:
        loose.note(cursor, new, tenant_id=tenant_id, run_id=run_id, abandon_seconds=ABANDON_SECONDS)
    stored = storage.write(new, storage.read(path, content_hash=content_hash, sealed=True), sealed=True)
    with database.transaction() as cursor:
        # Both or neither: a row never names a file that was given up, and what it no longer names goes.
        kept = loose.claim(cursor, new)
        cursor.execute(_PUT_FILE, [new, stored.sealed_with, id_, path if kept else ""])
        done = cursor.fetchone() is not None
        loose.doom(cursor, [(path if done else new, tenant_id, run_id)])
    return done
