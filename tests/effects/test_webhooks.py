"""Webhooks on the wire, judged by the specification's own example and by a second implementation of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta, timezone

from standardwebhooks import Webhook

from durableops.effects import webhooks

# The example of the libraries at github.com/standard-webhooks/standard-webhooks ("sign function works").
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
AT = datetime.fromtimestamp(1614265330, UTC)


def signatures(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether one of the signatures is right: written from the text of the specification, without its library."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(wanted, one) for one in headers["webhook-signature"].split(" "))


def test_signature_is_that_of_the_specifications_example():
    headers = webhooks.headers_of(
        "p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', secrets_of=[SECRET], at=AT, attempt=1
    )
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == SIGNATURE


def test_zone_and_fractions_of_the_time_change_nothing():
    elsewhere = (AT + timedelta(microseconds=999_999)).astimezone(timezone(timedelta(hours=9)))
    headers = webhooks.headers_of("k", b"{}", secrets_of=[SECRET], at=elsewhere, attempt=1)
    assert headers["webhook-timestamp"] == "1614265330"
    assert signatures(SECRET, headers, b"{}")


def test_while_a_secret_is_rotated_both_sign():
    old, new = webhooks.new_secret(), webhooks.new_secret()
    body = webhooks.body_of("order.shipped", '{"number":7}', at=AT)
    headers = webhooks.headers_of("k", body, secrets_of=[new, old], at=datetime.now(UTC), attempt=2)
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (old, new):
        assert signatures(secret, headers, body)
        assert Webhook(secret).verify(body, headers) == json.loads(body)
    assert not signatures(webhooks.new_secret(), headers, body)
    assert headers["webhook-attempt"] == "2"


def test_body_names_type_time_and_data_and_is_the_same_for_each_attempt():
    body = webhooks.body_of("order.shipped", '{"number":7,"to":"Zoë"}', at=AT)
    assert json.loads(body) == {
        "type": "order.shipped", "timestamp": "2021-02-25T15:02:10Z", "data": {"number": 7, "to": "Zoë"},
    }  # fmt: skip
    assert body == webhooks.body_of("order.shipped", '{"number":7,"to":"Zoë"}', at=AT)


def test_secrets_are_as_long_as_the_specification_asks_and_never_the_same():
    made = {webhooks.new_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(24 <= len(base64.b64decode(secret.removeprefix("whsec_"))) <= 64 for secret in made)
