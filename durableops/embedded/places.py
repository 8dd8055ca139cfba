"""Which folders the embedded servers of one checkout use. What runs there is not decided here."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from durableops.embedded.errors import OWN_SERVERS, EmbeddedError
from durableops.environment import FOLDER

POSTGRES_SOCKET = ".s.PGSQL.5432"
VALKEY_SOCKET = "valkey.sock"
# sizeof(sun_path) minus the closing NUL.
LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of one checkout's servers."""

    home: Path
    """`.durableops` in the checkout: lock, logs, URLs."""
    postgres_data: Path
    """The database cluster."""
    valkey_data: Path
    """The broker's append-only file."""
    sockets: Path
    """A folder only its owner may enter: that is why the servers can trust whoever connects."""

    @property
    def postgres_socket(self) -> Path:
        return self.sockets / POSTGRES_SOCKET

    @property
    def valkey_socket(self) -> Path:
        return self.sockets / VALKEY_SOCKET


def places_for(checkout: Path) -> Places:
    """Choose the folders for a checkout; nothing is created."""
    home = checkout.resolve() / FOLDER
    sockets = home / "sockets"
    if len(os.fsencode(sockets / POSTGRES_SOCKET)) > LONGEST_SOCKET_PATH:
        sockets = short_folder(checkout)
    return Places(home=home, postgres_data=home / "postgres", valkey_data=home / "valkey", sockets=sockets)


def short_folder(checkout: Path, *, below: str = "/tmp") -> Path:  # noqa: S108  # made private, or refused
    """Return the same short folder for the same checkout and user, and another for each other one."""
    digest = hashlib.sha256(os.fsencode(checkout.resolve())).hexdigest()[:12]
    return Path(below) / f"durableops-{os.geteuid()}-{digest}"


def private_folder(path: Path, *, owner: int | None = None) -> None:
    """Make a folder that only its owner can enter, or accept one that was made so earlier.

    A folder found otherwise is refused and left as it is: its mode is somebody else's decision.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _refuse_unless_private(path, owner=os.geteuid() if owner is None else owner)
    else:
        if owner is not None:
            os.chown(path, owner, -1)


def _refuse_unless_private(path: Path, *, owner: int) -> None:
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not stat.S_IMODE(found.st_mode) & 0o077:
        return
    raise EmbeddedError(
        f"{path} is not a folder that only user {owner} can enter: remove it, or `chmod go= {path}`. {OWN_SERVERS}"
    )


def shared_folder(path: Path) -> None:
    """Make a folder of ours that others may pass through but not change, or accept one made so earlier."""
    try:
        path.mkdir()
    except FileExistsError:
        if path.lstat().st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
            raise EmbeddedError(f"{path} belongs to somebody else: remove it. {OWN_SERVERS}") from None
    else:
        path.chmod(0o711)
