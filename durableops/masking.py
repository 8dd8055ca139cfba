"""Making what looks secret unreadable, by name and by shape: before it is stored, and alike in every view.

Who sees what is said elsewhere. An installation adds names and shapes of its own by settings; one that would eat
ordinary text is refused when the process starts, for a log that says nothing is no log.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from durableops.conf import get_conf

MASK = "••••••"
MAX_DEPTH = 64
SEALED = "$sealed"
"""The one key of a value that is stored encrypted (durableops.checkpoints.secrets)."""

_TELLING_NAME = (
    r"pass(word|wd|phrase)?$|^pwd$|secret|token$|api[-_]?key|access[-_]?key|authori[sz]ation|cookie|credential"
    r"|private[-_]?key|^x-.*(signature|auth)$"
)
_HEADER = (
    r"(?im)^(\s*(?:authorization|proxy-authorization|cookie|set-cookie|x-[\w-]*(?:key|token|secret|signature|auth))"
    r"\s*:[ \t]*)\S[^\r\n]*"
)
_ASSIGNED = (
    r"(?i)\b(pass(?:word|wd|phrase)|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|client[-_]?secret)"
    r"(['\"]?\s*[=:]\s*['\"]?|['\"],\s*b?['\"])[^\s'\",;&]{4,}"
)
# By shape, in running text. Each takes time in proportion to the text, whatever it holds.
_SHAPES: tuple[tuple[str, str], ...] = (
    # Lines of HTTP headers, as clients and tracebacks show them.
    (_HEADER, rf"\1{MASK}"),
    (r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", rf"\1 {MASK}"),
    # Who logs in, in addresses of every kind.
    (r"(?i)\b([a-z][a-z0-9+.-]{1,30}://)[^/\s:@'\"]*+:[^/\s@'\"]++@", rf"\1{MASK}@"),
    (_ASSIGNED, rf"\1\2{MASK}"),
    # What well-known services hand out.
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
    (r"\bey[JK][A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MASK),
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", MASK),
    (r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}", MASK),
    (r"\bxox[abeoprs]-[A-Za-z0-9-]{8,}", MASK),
    (r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}|\bwhsec_[A-Za-z0-9+/=]{16,}", MASK),
    (r"\bsk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}", MASK),
    (r"\bAIza[A-Za-z0-9_-]{30,}", MASK),
    (r"\bdop_[0-9a-f]{8,}_[A-Za-z0-9_-]{16,}", MASK),
)
_ADDRESS = re.compile(r"(?i)\bhttps?://[^\s'\"<>()\[\]{}]+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
_LETTER, _DIGIT = re.compile(r"[A-Za-z]"), re.compile(r"[0-9]")
LONG_SEGMENT = 16
# Nothing of the above is found in a text without one of these: most texts are looked through once.
_HINTS = (
    "bearer", "basic ", "://", "pass", "pwd", "secret", "token", "key", "authoriz", "cookie", "x-", "eyj", "eyk",
    "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_", "glpat", "xox", "_live_", "_test_", "sk-",
    "whsec", "aiza", "dop_",
)  # fmt: skip

HARMLESS = (
    "2026-11-29 14:02:11,004 INFO durableops.engine run 019a7c3e-4b1d-7c55-9a55-0c6b1f6a2d10 goes on at step ship",
    "batch-import v3: 3,376 of 3,376 rows imported, 12 rejected, took 41.2 s",
    "connection to 10.0.0.7:5432 refused; trying again in 0.40 s (attempt 3 of 8)",
    "Invoice 4711 for Miller & Söhne was sent to accounts@example.com",
    "ValueError: field 'amount' at /lines/3 is not a number",
)
"""Ordinary lines. A shape that masks much of them would eat a whole log."""
MOST_OF_HARMLESS = 0.25


class MaskingRefused(ValueError):
    """A name or shape of this installation cannot be used; the message says which and why."""


def mask(value: Any, depth: int = 0) -> Any:
    """The same value with what looks secret masked, by name and by shape."""
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        if value.keys() == {SEALED}:
            return MASK
        names = _rules()[0]
        return {
            key: MASK if names.search(str(key)) and item not in (None, "", [], {}) else mask(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(item, depth + 1) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def mask_text(text: str) -> str:
    """Running text with credentials masked."""
    _, shapes, own = _rules()
    looked_at = text.lower()
    if any(hint in looked_at for hint in _HINTS):
        text = _ADDRESS.sub(lambda found: _cut(found[0]), text)
        for pattern, instead in shapes:
            text = pattern.sub(instead, text)
    for pattern in own:
        text = pattern.sub(MASK, text)
    return text


def _cut(address: str) -> str:
    """A web address without what is asked of it, and without parts of its path that nobody has typed: webhooks and
    signed links carry their secret there."""
    place, asked, _ = address.partition("?")
    scheme, _, rest = place.partition("://")
    host, *path = rest.partition("#")[0].split("/")
    shown = "/".join([host, *(MASK if _is_no_word(segment) else segment for segment in path)])
    return f"{scheme}://{shown}{'?' + MASK if asked else ''}"


def _is_no_word(segment: str) -> bool:
    long = len(segment.rstrip(".,:;")) >= LONG_SEGMENT and not _UUID.match(segment)
    return bool(long and _LETTER.search(segment) and _DIGIT.search(segment))


_HOST = re.compile(r"""(?i)\b(https?://)(?:[^\s/?#"'<>@]*@)?([^\s/?#"'<>]+)[^\s"'<>]*""")


def mask_addresses(text: str) -> str:
    """Running text with everything but the hosts of addresses left out: a webhook's path is its secret."""
    return _HOST.sub(r"\1\2/…", text)


class MaskingFormatter(logging.Formatter):
    """Lines of the process's own log, tracebacks included, with credentials masked."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_text(super().format(record))


def mask_json(text: str) -> str:
    """JSON text with what looks secret masked; text that is no JSON is masked by shape."""
    try:
        return json.dumps(mask(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return mask_text(text)


def check_rules() -> None:
    """Raise MaskingRefused if a name or shape of this installation cannot be used."""
    _rules()


type _Rules = tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], str], ...], tuple[re.Pattern[str], ...]]


def _rules() -> _Rules:
    conf = get_conf()
    return _compiled(conf.secret_names, conf.secret_patterns)


@lru_cache(maxsize=8)
def _compiled(names: str, patterns: str) -> _Rules:
    own_names = [name.strip() for name in names.split(",") if name.strip()]
    by_name = "|".join([_TELLING_NAME, *(f"^{re.escape(name)}$" for name in own_names)])
    shapes = tuple((re.compile(pattern), instead) for pattern, instead in _SHAPES)
    return re.compile(by_name, re.IGNORECASE), shapes, tuple(_own_shapes(patterns))


def _own_shapes(given: str) -> Iterator[re.Pattern[str]]:
    if not given:
        return
    try:
        found = json.loads(given)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise MaskingRefused(
            'DURABLEOPS_SECRET_PATTERNS is not a JSON list of regular expressions, such as ["AC-[0-9]{8}"].'
        )
    for one in found:
        try:
            pattern = re.compile(one)
        except re.error as wrong:
            raise MaskingRefused(f"the pattern {one!r} is no regular expression: {wrong}.") from None
        if pattern.match(""):
            raise MaskingRefused(f"the pattern {one!r} matches nothing at all, so it would stand between all letters.")
        eaten = sum(len(match) for line in HARMLESS for match in _matches(pattern, line))
        share = eaten / sum(map(len, HARMLESS))
        if share > MOST_OF_HARMLESS:
            raise MaskingRefused(
                f"the pattern {one!r} would mask {share:.0%} of ordinary log lines; say more exactly what it is for."
            )
        yield pattern


def _matches(pattern: re.Pattern[str], line: str) -> list[str]:
    return [match[0] for match in pattern.finditer(line)]


def unmasked(given: Any, original: Any, masked: Any) -> Any:
    """What a person gave, with the value behind each mask that they left as they were shown it."""
    if given == masked:
        return original
    if isinstance(given, dict) and isinstance(original, dict) and isinstance(masked, dict):
        return {
            name: unmasked(value, original[name], masked[name]) if name in original and name in masked else value
            for name, value in given.items()
        }
    if isinstance(given, list) and isinstance(original, list) and isinstance(masked, list):
        pairs = zip(original, masked, strict=False)
        return [
            value if pair is None else unmasked(value, *pair)
            for value, pair in zip(given, [*pairs, *[None] * len(given)], strict=False)
        ]
    return given
