"""The one error of the embedded servers."""

from __future__ import annotations


class EmbeddedError(RuntimeError):
    """An embedded server cannot be had; the message is one sentence with a remedy."""


OWN_SERVERS = "Or use your own servers: set DATABASE_URL and REDIS_URL."
