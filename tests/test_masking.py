from __future__ import annotations

import pytest

from durableops.masking import MASK, mask, mask_text


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
    "text",
    ["Authorization: Bearer sk_test_123", "https://ann:geheim1@host/x", "password=geheim1", "{'secret': 'geheim1'}"],
)
def test_credentials_in_running_text_are_masked_by_shape(text):
    shown = mask_text(text)
    assert MASK in shown
    assert "geheim1" not in shown
    assert "sk_test_123" not in shown


def test_deep_document_ends_and_plain_text_is_left_alone():
    deep: object = "x"
    for _ in range(1000):
        deep = [deep]
    assert "…" in str(mask(deep))
    assert mask_text("nothing to see in this sentence") == "nothing to see in this sentence"
