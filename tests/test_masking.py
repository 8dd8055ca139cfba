"""Masking: by name, by shape, in time that grows with the text, and never a whole log."""

from __future__ import annotations

import json
import logging
import time

import pytest

from durableops.checks import check_masking
from durableops.conf import override_conf
from durableops.masking import HARMLESS, MASK, SEALED, MaskingFormatter, mask, mask_json, mask_text


def test_secrets_are_masked_by_name_at_any_depth_and_the_rest_stays():
    given = {"user": "ann", "password": "hunter22", "list": [{"api_key": "k-1", "n": 5}], "tokens_used": 7, "token": ""}
    assert mask(given) == {
        "user": "ann",
        "password": MASK,
        "list": [{"api_key": MASK, "n": 5}],
        "tokens_used": 7,
        "token": "",
    }
    assert given["password"] == "hunter22"


@pytest.mark.parametrize(
    "name",
    ["Authorization", "proxy-authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-Auth-Token", "X-Hub-Signature",
     "client_secret", "private_key", "DB_PASSWORD", "passphrase", "accessKey", "csrf_token"],
)  # fmt: skip
def test_names_of_headers_and_fields_that_hold_secrets_are_known(name):
    assert mask({name: "geheim1"}) == {name: MASK}


SECRETS = [
    "Authorization: Bearer sk_test_123",
    "https://ann:geheim1@host/x",
    "postgresql://ann:geheim1@host/db",
    "password=geheim1",
    "{'secret': 'geheim1'}",
    "[('x-api-key', 'geheim1')] api-key: geheim1",
    "X-Api-Key: geheim1",
    "Cookie: session=geheim1; b=2",
    "GET https://api.example/things?signature=geheim1&x=1",
    "POST https://hooks.example/services/T0000AAAA/B0000BBBB/geheim1ABCDEFGH12 timed out",
    "-----BEGIN RSA PRIVATE KEY-----\ngeheim1\n-----END RSA PRIVATE KEY-----",
    "a token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJnZWhlaW0xIn0.c2VjcmV0c2VjcmV0",
    "AKIAIOSFODNN7EXAMPLE and more",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "xoxb-123456789012-geheim1",
    "sk_live_geheim1ABCDEFGH",
    "sk-proj-geheim1ABCDEFGHIJKLMNOP",
    "AIzaSyA-geheim1ABCDEFGHIJKLMNOPQRSTUV",
]


@pytest.mark.parametrize("text", SECRETS)
def test_credentials_in_running_text_are_masked_by_shape(text):
    shown = mask_text(f"before {text} after" if "://" in text else text)
    assert MASK in shown
    for secret in ("geheim1", "sk_test_123", "AKIAIOSFODNN7", "ghp_16C7", "Z2VoZWltMSJ9", "c2VjcmV0"):
        assert secret not in shown


@pytest.mark.parametrize("text", SECRETS)
def test_masking_twice_is_masking_once(text):
    assert mask_text(mask_text(text)) == mask_text(text)


@pytest.mark.parametrize("line", HARMLESS)
def test_ordinary_lines_stay_as_they_are(line):
    assert mask_text(line) == line


def test_address_keeps_host_path_and_identifiers():
    address = "https://ops.example/runs/019a7c3e-4b1d-7c55-9a55-0c6b1f6a2d10/effects/17"
    assert mask_text(f"see {address}.") == f"see {address}."


def test_deep_document_ends_and_plain_text_is_left_alone():
    deep: object = "x"
    for _ in range(1000):
        deep = [deep]
    assert "…" in str(mask(deep))
    assert mask_text("nothing to see in this sentence") == "nothing to see in this sentence"


def test_what_is_stored_encrypted_is_shown_as_masked():
    assert mask({"api": {SEALED: "gAAAAA"}}) == {"api": MASK}


def test_json_text_is_masked_as_json_and_other_text_by_shape():
    assert json.loads(mask_json('{"password": "geheim1", "n": 1}')) == {"password": MASK, "n": 1}
    assert "geheim1" not in mask_json('{"password": "geheim1"')


@pytest.mark.parametrize("text", ["x-" * 50_000 + "key", "sk-" + "a-" * 50_000, "x://" + "a:" * 50_000,
                                  "-----BEGIN " + "A " * 50_000, "\nx-key" * 20_000, "token" + " " * 50_000,
                                  "https://" + "a/" * 50_000, "eyJ" * 30_000 + "key"])  # fmt: skip
def test_hostile_text_takes_time_in_proportion_to_its_length(text):
    began = time.process_time()
    mask_text(text)
    assert time.process_time() - began < 2.0


def test_an_installation_adds_names_and_shapes_of_its_own():
    with override_conf(secret_names="tax_number, IBAN", secret_patterns='["AC-[0-9]{8}"]'):
        assert mask({"tax_number": "1", "iban": "2", "name": "3"}) == {"tax_number": MASK, "iban": MASK, "name": "3"}
        assert mask_text("account AC-12345678 is closed") == f"account {MASK} is closed"
        assert check_masking(None) == []
    assert mask_text("account AC-12345678 is closed") == "account AC-12345678 is closed"


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        ("[0-9]+", "JSON list"),
        ('{"a": 1}', "JSON list"),
        ('["("]', "no regular expression"),
        ('["x*"]', "matches nothing at all"),
        ('[".+"]', "would mask 100% of ordinary log lines"),
        ('["[a-z]+"]', "ordinary log lines"),
        ('["ok-[0-9]+", "\\\\w+"]', "ordinary log lines"),
    ],
)
def test_a_rule_that_would_eat_a_whole_log_is_refused_at_the_start(patterns, told):  # C145
    with override_conf(secret_patterns=patterns):
        [found] = check_masking(None)
    assert (found.id, told in found.msg) == ("durableops.E004", True)


def test_lines_of_the_process_log_and_their_tracebacks_are_masked():  # C146
    formatter = MaskingFormatter("%(levelname)s %(message)s")
    try:
        hdrs = {"Authorization": "Bearer sk_test_12345678"}
        raise ConnectionError(f"POST https://ann:geheim1@x.example/?token=geheim2 with {hdrs}")
    except ConnectionError:
        import sys

        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed: %s", ("password=geheim3",), sys.exc_info())
    line = formatter.format(record)
    assert "ConnectionError: POST https://" in line
    assert not any(secret in line for secret in ("geheim1", "geheim2", "geheim3", "sk_test_12345678"))
