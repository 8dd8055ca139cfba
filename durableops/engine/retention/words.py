"""Texts that people give with what they decide about data."""

from __future__ import annotations

from durableops.checkpoints.failures import safe_text
from durableops.errors import InputRefused
from durableops.masking import mask_text

MAX_CHARACTERS = 2000


def reason_of(text: str) -> str:
    """A reason as it is kept. Raises InputRefused without one: what concerns data of many is never done in silence."""
    kept = safe_text(mask_text(text.strip()))[:MAX_CHARACTERS]
    if not kept:
        raise InputRefused("say why: the reason stands in the audit.")
    return kept
