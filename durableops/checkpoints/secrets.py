"""Declared secrets inside stored documents: encrypted field by field, so that the rest stays readable for people.

Which fields those are is declared (`Secret` in a State, `secret=` of a tool), never guessed from what is stored: a
document from outside that looks sealed is not opened unless its field was declared, and then only with our keys.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from durableops import sealing
from durableops.authoring.state import SecretMark, State
from durableops.checkpoints import codec
from durableops.errors import CompatibilityError, SealBroken
from durableops.masking import SEALED


@lru_cache(maxsize=256)
def secret_fields(cls: type[State]) -> frozenset[str]:
    """The fields of a state that are declared `Secret`."""
    return frozenset(
        name for name, field in cls.model_fields.items() if any(isinstance(mark, SecretMark) for mark in field.metadata)
    )


def seal_fields(text: str, names: Collection[str]) -> str:
    """JSON text of an object with the values of these fields encrypted; empty ones stay as they are."""
    if not names:
        return text
    document = codec.loads(text)
    if not isinstance(document, dict):
        return text
    for name in names:
        if document.get(name) not in (None, ""):
            token = sealing.seal(codec.dumps(document[name], what=name).encode())
            document[name] = {SEALED: token.decode()}
    return codec.dumps(document, what="sealed document", max_bytes=2 * codec.MAX_BYTES + len(text) * 2)


def open_fields(text: str, names: Collection[str], *, what: str = "recorded value") -> str:
    """What `seal_fields` was given. Raises CompatibilityError when a field cannot be opened."""
    if not names:
        return text
    document = codec.loads(text, what=what)
    if not isinstance(document, dict):
        return text
    for name in names:
        value: Any = document.get(name)
        if isinstance(value, dict) and value.keys() == {SEALED}:
            try:
                document[name] = codec.loads(sealing.unseal(str(value[SEALED]).encode()).decode(), what=what)
            except SealBroken as broken:
                raise CompatibilityError(f"{what} at /{name} is encrypted: {broken}", path=f"/{name}") from None
    return codec.dumps(document, what=what, max_bytes=len(text) * 2)
