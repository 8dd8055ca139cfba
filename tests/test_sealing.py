"""Sealing: keys that rotate, and refusals that say what is missing."""

from __future__ import annotations

import pytest

from durableops import sealing
from durableops.checks import check_encryption_keys
from durableops.errors import SealBroken

OLD, NEW = sealing.new_key(), sealing.new_key()


def test_without_keys_of_its_own_an_installation_seals_with_its_secret(settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS = []
    sealed = sealing.seal(b"prompt")
    assert b"prompt" not in sealed
    assert sealing.unseal(sealed) == b"prompt"
    settings.SECRET_KEY = "another secret of at least so many characters"
    with pytest.raises(SealBroken, match="DURABLEOPS_ENCRYPTION_KEYS"):
        sealing.unseal(sealed)


def test_the_newest_key_seals_and_every_key_opens(settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS = [OLD]
    sealed, before = sealing.seal(b"prompt"), sealing.key_id()
    settings.DURABLEOPS_ENCRYPTION_KEYS = [NEW, OLD]
    assert sealing.unseal(sealed) == b"prompt"
    assert sealing.key_id() != before
    resealed = sealing.seal(sealing.unseal(sealed))
    settings.DURABLEOPS_ENCRYPTION_KEYS = [NEW]
    assert sealing.unseal(resealed) == b"prompt"
    with pytest.raises(SealBroken):
        sealing.unseal(sealed)


def test_the_name_of_a_key_does_not_tell_the_key(settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS = [OLD]
    assert len(sealing.key_id()) == 16
    assert sealing.key_id() not in OLD


@pytest.mark.parametrize("key", ["", "short", "x" * 44, "é" * 44])
def test_what_is_no_key_is_found_by_the_checks(settings, key):
    settings.DURABLEOPS_ENCRYPTION_KEYS = [OLD, key]
    [found] = check_encryption_keys(None)
    assert (found.id, "key 2 of 2" in found.msg, key in found.msg) == ("durableops.E003", True, key == "")


def test_production_without_a_key_of_its_own_is_warned(settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS, settings.PRODUCTION = [], True
    assert [found.id for found in check_encryption_keys(None)] == ["durableops.W006"]
    settings.DURABLEOPS_ENCRYPTION_KEYS = [OLD]
    assert check_encryption_keys(None) == []
