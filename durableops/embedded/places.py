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


def short_folder(checkout: Path) -> Path:
    """Return the same short folder for the same checkout and user, and another for each other one."""
    digest = hashlib.sha256(os.fsencode(checkout.resolve())).hexdigest()[:12]
    return Path("/tmp") / f"durableops-{os.geteuid()}-{digest}"  # noqa: S108  # private_folder checks whose it is


def private_folder(path: Path, *, owner: int | None = None) -> None:
    """Make a folder that only its owner can enter, or refuse one that somebody else prepared."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), owner}:
        raise EmbeddedError(f"{path} belongs to somebody else; remove it, or move the checkout. {OWN_SERVERS}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    if owner is not None and found.st_uid != owner:
        os.chown(path, owner, -1)
