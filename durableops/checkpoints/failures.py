"""An exception written down as class, message and code; its traceback is kept apart, for people.

What a later step or a replay reads is `StoredError` alone: it holds no path, no line number and
no address, so it is the same wherever and whenever the error is read.
"""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any

from durableops.checkpoints.codec import canonical, hash_hex
from durableops.errors import CompatibilityError, ControlSignal, DurableOpsError
from durableops.masking import mask_text

MAX_MESSAGE_CHARACTERS = 4_000
MAX_TRACE_CHARACTERS = 32_000


@dataclass(frozen=True, kw_only=True)
class StoredError:
    """What is remembered of an exception; never turned back into one."""

    type: str
    """Qualified name of the class, such as `builtins.ValueError`."""

    message: str
    """The exception's text, safe to store."""

    code: str = ""
    """Stable code, for the errors of `durableops.errors`; otherwise empty."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> StoredError:
        """Read what `as_json` gave. Raises CompatibilityError for anything else."""
        texts = isinstance(document, dict) and all(isinstance(value, str) for value in document.values())
        if not texts or document.keys() != {"type", "message", "code"}:
            raise CompatibilityError("a recorded error must have the texts type, message and code.")
        return cls(**document)

    @property
    def fingerprint(self) -> str:
        """Hash that is equal for equal errors, wherever they were raised."""
        return hash_hex(canonical(self.as_json(), what="error"))

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def describe_error(error: BaseException) -> StoredError:
    """Write an exception down. Never raises, whatever the exception's own methods do."""
    kind = type(error)
    code = kind.code if issubclass(kind, DurableOpsError | ControlSignal) else ""
    return StoredError(
        type=safe_text(f"{kind.__module__}.{kind.__qualname__}"),
        message=safe_text(mask_text(_text_of(error)), limit=MAX_MESSAGE_CHARACTERS),
        code=code,
    )


def describe_traceback(error: BaseException) -> str:
    """The traceback, safe to store; for people only. The end is what is kept of a long one."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - formatting runs the author's __str__ and __repr__
        text = f"{type(error).__qualname__} (its traceback cannot be formatted)"
    escaped = safe_text(mask_text(text))
    if len(escaped) <= MAX_TRACE_CHARACTERS:
        return escaped
    return f"[... {len(escaped) - MAX_TRACE_CHARACTERS} characters left out]\n{escaped[-MAX_TRACE_CHARACTERS:]}"


def safe_text(text: str, *, limit: int | None = None) -> str:
    r"""A text that PostgreSQL stores: NUL becomes `\x00`, a lone surrogate `\udXXX`, visibly.

    For texts that must not be refused, such as messages of errors: refusing one would turn a
    known failure into an unknown one. Cut to `limit` characters if given, with a mark.
    """
    escaped = text.replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode()
    if limit is None or len(escaped) <= limit:
        return escaped
    return f"{escaped[:limit]} [... {len(escaped) - limit} characters left out]"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - an author's __str__ may do anything
        return f"(its text cannot be read: {type(broken).__qualname__})"
