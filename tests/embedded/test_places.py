"""Folders of the embedded servers: private, never somebody else's, and none that was found is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.places import LONGEST_SOCKET_PATH, places_for, private_folder, short_folder


def test_sockets_live_in_the_checkout_when_the_path_allows(tmp_path: Path):
    assert places_for(tmp_path).sockets == tmp_path / ".durableops" / "sockets"


def test_socket_path_never_exceeds_what_the_kernel_takes(tmp_path: Path):
    for length in range(1, 120):
        places = places_for(tmp_path / ("é" * length))
        assert len(bytes(places.postgres_socket)) <= LONGEST_SOCKET_PATH


def test_short_folder_is_the_same_for_one_checkout_and_another_for_the_next(tmp_path: Path):
    assert short_folder(tmp_path / "a") == short_folder(tmp_path / "a")
    assert short_folder(tmp_path / "a") != short_folder(tmp_path / "b")


def test_private_folder_is_made_for_its_owner_only(tmp_path: Path):
    private_folder(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    private_folder(tmp_path / "made")


def test_folder_that_others_may_enter_is_refused_and_left_as_it_is(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(EmbeddedError, match="only user"):
        private_folder(shared)
    assert shared.stat().st_mode & 0o777 == 0o777


def test_link_in_place_of_a_private_folder_is_refused(tmp_path: Path):
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(EmbeddedError):
        private_folder(tmp_path / "link")
