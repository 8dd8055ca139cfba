"""Bytes in the storage: written once, in pieces, sealed where asked, and never read back as anything else."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from pathlib import Path

import pytest
from django.core.files.storage import default_storage

from durableops.artifacts import storage
from durableops.errors import ArtifactDamaged, ArtifactGone, SealBroken

pytestmark = pytest.mark.usefixtures("media")
SOME = b"piece of it " * 50_000


def read(stored: storage.Stored) -> bytes:
    return b"".join(storage.read(stored.path, content_hash=stored.content_hash, sealed=bool(stored.sealed_with)))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("given", ["bytes", "text", "path", "file", "pieces", "empty"])
def test_what_was_given_is_read_back(tmp_path, given, sealed):
    (tmp_path / "it").write_bytes(SOME)
    data = {
        "bytes": SOME,
        "text": SOME.decode(),
        "path": tmp_path / "it",
        "file": io.BytesIO(SOME),
        "pieces": (SOME[at : at + 7000] for at in range(0, len(SOME), 7000)),
        "empty": b"",
    }[given]
    stored = storage.write(storage.new_path(tenant="acme", run_id="r"), data, sealed=sealed)
    wanted = b"" if given == "empty" else SOME
    assert read(stored) == wanted
    assert (stored.size_bytes, stored.content_hash) == (len(wanted), hashlib.sha256(wanted).hexdigest())
    on_disk = Path(default_storage.path(stored.path)).read_bytes()
    assert (b"piece of it" in on_disk) is (not sealed and given != "empty")


@pytest.mark.parametrize("sealed", [False, True])
def test_a_large_file_is_never_whole_in_memory(sealed):
    pieces = (bytes(1_000_000) for _ in range(64))
    tracemalloc.start()
    stored = storage.write(storage.new_path(tenant="acme", run_id="r"), pieces, sealed=sealed)
    assert sum(len(piece) for piece in storage.read(
        stored.path, content_hash=stored.content_hash, sealed=sealed)) == 64_000_000  # fmt: skip
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_two_files_of_the_same_content_are_two_files():
    first, second = (storage.write(storage.new_path(tenant="acme", run_id="r"), b"same") for _ in range(2))
    assert first.path != second.path
    storage.remove(first.path)
    assert read(second) == b"same"


def test_a_changed_file_never_comes_to_its_end():
    stored = storage.write(storage.new_path(tenant="acme", run_id="r"), SOME)
    file = Path(default_storage.path(stored.path))
    file.chmod(0o600)
    file.write_bytes(SOME[:-1] + b"!")
    came: list[bytes] = []
    with pytest.raises(ArtifactDamaged, match="its hash differs"):
        came.extend(storage.read(stored.path, content_hash=stored.content_hash, sealed=False))
    assert sum(len(piece) for piece in came) < len(SOME)


@pytest.mark.parametrize("harm", ["cut", "swapped", "longer", "foreign", "garbage"])
def test_a_sealed_file_that_was_tampered_with_is_refused(harm):
    sealed = [storage.write(storage.new_path(tenant="acme", run_id="r"), SOME * 2, sealed=True) for _ in range(2)]
    file, other = (Path(default_storage.path(one.path)) for one in sealed)
    raw, theirs = file.read_bytes(), other.read_bytes()
    size = 21 + 4 + int.from_bytes(raw[21:25])
    changed = {
        "cut": raw[:size],
        "swapped": raw[:21] + raw[size : 2 * size - 21] + raw[21:size] + raw[2 * size - 21 :],
        "longer": raw + b"more",
        "foreign": raw[:21] + theirs[21:],
        "garbage": b"something else",
    }[harm]
    file.chmod(0o600)
    file.write_bytes(changed)
    with pytest.raises(SealBroken):
        read(sealed[0])


def test_a_file_that_is_gone_is_told_before_the_first_byte():
    stored = storage.write(storage.new_path(tenant="acme", run_id="r"), b"x")
    storage.remove(stored.path)
    storage.remove(stored.path)
    with pytest.raises(ArtifactGone):
        storage.read(stored.path, content_hash=stored.content_hash, sealed=False)


def test_the_folder_of_a_run_goes_with_its_last_file():
    first, second = (storage.write(storage.new_path(tenant="acme", run_id="r"), b"x") for _ in range(2))
    folder = Path(default_storage.path(first.path)).parent
    storage.remove(first.path)
    assert folder.is_dir()
    storage.remove(second.path)
    assert not folder.exists()


@pytest.mark.parametrize("data", [7, ["text", "pieces"], None, object()])
def test_what_cannot_be_a_file_is_refused_with_what_can(data):
    with pytest.raises(TypeError, match="give bytes, a text, a Path"):
        storage.write(storage.new_path(tenant="acme", run_id="r"), data)


def test_nobody_else_on_the_machine_reads_files():
    stored = storage.write(storage.new_path(tenant="acme", run_id="r"), b"x")
    file = Path(default_storage.path(stored.path))
    assert file.stat().st_mode & 0o007 == 0
    assert file.parent.stat().st_mode & 0o007 == 0
