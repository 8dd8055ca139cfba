"""Results over the payload limit, where their tool allows it: kept as a file beside the effect, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from durableops.artifacts import storage
from durableops.authoring.definitions import ToolDefinition
from durableops.engine import files, results
from durableops.engine.hand import Hand
from durableops.engine.ops import Aside, Ask, Logic
from durableops.errors import ResultGone

NAME = "result/{key}"

_OF_SLOT = """
SELECT a.path, a.content_hash, a.sealed_with <> '' FROM runs_effect e
JOIN runs_artifact a ON a.run_id = e.run_id AND a.name = 'result/' || e.key AND a.data_class = 'effect_body'
WHERE e.slot = %s ORDER BY a.id DESC LIMIT 1"""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Stands for a recorded result that is not in the effect's row."""

    slot: str
    tool: ToolDefinition
    resource: str


def keep(hand: Hand, key: str, text: str) -> Logic[None]:
    """Store a result's text; the commit that records the outcome names it."""
    stored = yield from files.store(hand, text, sealed=False)
    files.keep(hand, NAME.format(key=key), stored, data_class="effect_body", content_type="application/json",
               readers="payloads")  # fmt: skip


def read_all(hand: Hand, found: list[Any]) -> Logic[None]:
    """Put the results that are kept as files, or the error that they are gone, into their places."""
    for n, apart in enumerate(found):
        if isinstance(apart, Apart):
            found[n] = yield from _read(apart)


def _read(apart: Apart) -> Logic[Any]:
    rows = yield Ask(lambda database: database.read(_OF_SLOT, [bytes.fromhex(apart.slot)]))
    if not rows:
        return ResultGone(
            f"{apart.tool.name} for {apart.resource!r} has happened, and its recorded result was removed by retention. "
            "It is not called again; give the call a key of its own if it shall happen a second time."
        )
    path, content_hash, sealed = rows[0]
    text: str = yield Aside(partial(_text, path, content_hash, sealed))
    return results.read(apart.tool, text)


def _text(path: str, content_hash: str, sealed: bool) -> str:
    return b"".join(storage.read(path, content_hash=content_hash, sealed=sealed)).decode()
