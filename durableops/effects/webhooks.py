"""What a webhook looks like on the wire: Standard Webhooks (standardwebhooks.com), version 1 signatures, rotation.

Pure: what to send, never the sending. Signing is that project's own library.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
SECRET_BYTES = 32
"""The specification asks for 24 to 64."""
ID_PREFIX = "msg_"
ATTEMPT_HEADER = "webhook-attempt"
"""Ours: 1 for the first; more says that an earlier one may have arrived."""


def new_secret() -> str:
    """A secret as receivers are given it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def body_of(event_type: str, data_json: str, *, at: datetime) -> bytes:
    """The body: type, time and data. The same bytes for each attempt; `data_json` is JSON text."""
    instant = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f'{{"type":{json.dumps(event_type)},"timestamp":"{instant}","data":{data_json}}}'.encode()


def headers_of(key: str, body: bytes, *, secrets_of: Sequence[str], at: datetime, attempt: int) -> dict[str, str]:
    """The headers, signed with each of the secrets: while one is rotated, receivers may have either.

    The id is made of the effect's key, so that it is the same for each attempt and after each crash.
    """
    message_id, when = ID_PREFIX + key, at.astimezone(UTC).replace(microsecond=0)
    # The library reads the fields of the datetime as UTC, whatever its zone: hence the conversion above.
    signed = [Webhook(secret).sign(message_id, when, body.decode()) for secret in secrets_of]
    return {
        "content-type": "application/json",
        "user-agent": "durableops",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(when.timestamp())),
        "webhook-signature": " ".join(signed),
        ATTEMPT_HEADER: str(attempt),
    }
