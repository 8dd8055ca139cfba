"""Strict JSON: what is written can be read back anywhere, or is refused with path and reason.

Text in, text out; states and their types are `states`, explanations of refusals are `faults`.
`dumps` runs once per step, so it asks one tight question of the value and few of the text, and
looks for the place of a fault only when an answer is no.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from itertools import pairwise
from typing import Any

from durableops.checkpoints.faults import MAX_DEPTH, MAX_INT, Fault, find_fault, text_fault
from durableops.errors import CompatibilityError, InputRefused, InputTooLarge, PayloadRefused

MAX_BYTES = 2**20
MAX_KEY_BYTES = 255
_LINE_SEPARATORS = frozenset({"Cc", "Zl", "Zp"})

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode

# Strings are matched whole, an unterminated one to the end, so that brackets in them do not
# count and no text makes the scan start over: it is linear for hostile input too.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def dumps(value: Any, *, what: str, max_bytes: int = MAX_BYTES) -> str:
    """Compact JSON text of plain values; tuples become lists. `what` names it in refusals.

    Raises PayloadRefused for NaN and infinities, NUL and lone surrogates, whole numbers beyond
    2^53, more than 64 levels, keys that are not texts, any other type (subclasses included,
    for they would come back as something else), or more than `max_bytes` bytes of UTF-8.
    """
    if not is_plain(value, max_bytes=max_bytes):
        raise _refusal(value, what=what, max_bytes=max_bytes)
    return _checked(_encode(value), value, what=what, max_bytes=max_bytes)


def canonical(value: Any, *, what: str = "value", max_bytes: int = MAX_BYTES) -> str:
    """JSON text that is equal for equal documents: keys in order, 1.0 written as 1 as RFC 8785 does.

    Raises PayloadRefused as `dumps` does.
    """
    if not is_plain(value, max_bytes=max_bytes):
        raise _refusal(value, what=what, max_bytes=max_bytes)
    text = _encode_sorted(value)
    if ".0" in text:
        text = _encode_sorted(_with_whole_floats_as_int(value))
    return _checked(text, value, what=what, max_bytes=max_bytes)


def hash_hex(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def loads(text: str, *, what: str = "recorded value") -> Any:
    """Read what `dumps` wrote. Raises CompatibilityError if the text is not strict JSON."""
    try:
        value = _parse(text)
    except _NotStrict as problem:
        raise CompatibilityError(f"{what} cannot be read: {problem}.") from None
    if not is_plain(value, max_bytes=len(text)):
        fault = find_fault(value, max_values=len(text))
        assert fault is not None  # a parsed document has no more values than its text has letters
        raise CompatibilityError(_sentence(what, fault), path=fault.path)
    return value


def parse_input(raw: bytes | str, *, max_bytes: int = MAX_BYTES, what: str = "input") -> Any:
    """Read JSON that came from outside, under the rules of `dumps`.

    Raises InputRefused with the path and the reason, or InputTooLarge.
    """
    try:
        data = raw if isinstance(raw, bytes) else raw.encode()
        if len(data) > max_bytes:
            raise InputTooLarge(f"{what} has {len(data)} bytes; at most {max_bytes} are accepted.")
        value = _parse(data.decode())
    except UnicodeError:
        raise InputRefused(f"{what} is not UTF-8 text; encode it as UTF-8.") from None
    except _NotStrict as problem:
        raise InputRefused(f"{what} is not accepted: {problem}.") from None
    fault = find_fault(value, max_values=len(data))
    if fault is not None:
        raise InputRefused(_sentence(what, fault), path=fault.path)
    return value


def check_key(text: object, *, what: str, max_bytes: int = MAX_KEY_BYTES) -> str:
    """Return a key, correlation or label that came from outside, if it is fit to be one.

    Keys are compared byte by byte: `K` is not `k`, and the two ways to write é are two keys.
    Raises InputRefused unless it is a non-empty text of at most `max_bytes` bytes of UTF-8,
    without control characters, line ends, or spaces at either end.
    """
    if not isinstance(text, str):
        raise InputRefused(f"{what} is a {type(text).__name__}; give a text.")
    problem = _key_problem(text, max_bytes)
    if problem:
        raise InputRefused(f"{what} {problem}")
    return text


def _key_problem(text: str, max_bytes: int) -> str:
    if not text:
        return "is empty; give a text."
    fault = text_fault(text)
    if fault is not None:
        return f"{fault}; remove it."
    size = len(text.encode())
    if size > max_bytes:
        return f"has {size} bytes; at most {max_bytes} are accepted."
    if text != text.strip():
        return f"is {text!r}, with space at an end; remove it."
    if any(unicodedata.category(letter) in _LINE_SEPARATORS for letter in text):
        return f"is {text!r}, with a line end or control character in it; remove it."
    return ""


def is_plain(value: Any, *, max_bytes: int) -> bool:
    """True if `value` is made of JSON's own types within our limits; texts are not looked at.

    Level by level, so that depth costs no recursion. Each value takes at least a byte, so
    more values than bytes allowed end the walk: a list that holds itself ten times over does.
    """
    level = [value]
    room = max_bytes
    for _depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int:
                if not -MAX_INT <= item <= MAX_INT:
                    return False
            elif kind is float:
                if not math.isfinite(item):
                    return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str:
                        return False
                below.append(item.values())
            elif kind is list or kind is tuple:
                below.append(item)
            else:
                return False
        if not below:
            return True
        room -= sum(map(len, below))
        if room < 0:
            return False
        level = [child for container in below for child in container]
    return False


def _checked(text: str, value: Any, *, what: str, max_bytes: int) -> str:
    # Escaped by the encoder, so `\u0000` may also be an escaped backslash before "u0000".
    if "\\u0000" in text and find_fault(value, max_values=max_bytes) is not None:
        raise _refusal(value, what=what, max_bytes=max_bytes)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise _refusal(value, what=what, max_bytes=max_bytes) from None
    if size > max_bytes:
        raise PayloadRefused(
            f"{what} has {size} bytes; at most {max_bytes} can be stored. Keep references, not contents."
        )
    return text


def _refusal(value: Any, *, what: str, max_bytes: int) -> PayloadRefused:
    fault = find_fault(value, max_values=max_bytes)
    if fault is None:
        return PayloadRefused(f"{what} holds more values than the {max_bytes} bytes that can be stored.")
    return PayloadRefused(_sentence(what, fault), path=fault.path)


def _sentence(what: str, fault: Fault) -> str:
    where = f"{what} at {fault.path}" if fault.path else what
    return f"{where} {fault.reason}."


def _with_whole_floats_as_int(value: Any) -> Any:
    # Recursion is safe: is_plain has bounded the depth.
    if type(value) is dict:
        return {key: _with_whole_floats_as_int(child) for key, child in value.items()}
    if type(value) in (list, tuple):
        return [_with_whole_floats_as_int(child) for child in value]
    if type(value) is float and abs(value) <= MAX_INT and value.is_integer():
        return int(value)
    return value


class _NotStrict(Exception):
    """The text is not strict JSON; carries the reason."""


def _parse(text: str) -> Any:
    """Parse with depth and duplicate keys refused; numbers are for the caller to look at."""
    _refuse_depth(text)
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise _NotStrict(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError:  # the interpreter's own limit on converting digits
        raise _NotStrict("it has a whole number of thousands of digits") from None


def _refuse_depth(text: str) -> None:
    # Before parsing: the parser's own answer to depth is a RecursionError.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKENS.finditer(text):
        first = token.group()[0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _NotStrict(f"it is nested deeper than {MAX_DEPTH} levels")
        elif first in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = sorted(key for key, _value in pairs)
        twice = next(key for key, following in pairwise(keys) if key == following)
        raise _NotStrict(f"it has the key {twice[:80]!r} twice in one object")
    return document


_decode = json.JSONDecoder(object_pairs_hook=_unique).decode
