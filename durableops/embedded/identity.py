"""As whom a server process runs. PostgreSQL refuses root, and root is who people are in containers."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from durableops.embedded.errors import OWN_SERVERS, EmbeddedError

Kind = Literal["self", "namespace", "nobody"]
# Any uid but 0 serves: it only exists inside the namespace, where it stands for root outside.
INSIDE = 1000


@dataclass(frozen=True, kw_only=True)
class Identity:
    """As whom to run, and how to tell `subprocess`."""

    kind: Kind

    @property
    def owner(self) -> int | None:
        """The uid that must own the server's folders, if it is not ours."""
        return pwd.getpwnam("nobody").pw_uid if self.kind == "nobody" else None

    @property
    def before_exec(self) -> Callable[[], None] | None:
        """What the child does before it becomes the server's program."""
        return {"self": None, "namespace": enter_namespace, "nobody": _become_nobody}[self.kind]


def choose_identity() -> Identity:
    """Ourselves for an ordinary user; for root a user namespace, or `nobody` where namespaces are off."""
    if os.geteuid() != 0:
        return Identity(kind="self")
    if _namespaces_work():
        return Identity(kind="namespace")
    try:
        pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and here are neither user namespaces nor a user `nobody`. "
            f"Run as an ordinary user. {OWN_SERVERS}"
        ) from None
    return Identity(kind="nobody")


def enter_namespace() -> None:
    """Move this process into a user namespace in which root is called by another number. Files stay root's outside."""
    outside_user, outside_group = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER)
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{INSIDE} {outside_user} 1"),
        ("gid_map", f"{INSIDE} {outside_group} 1"),
    ):
        handle = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(handle, line.encode())
        os.close(handle)


def _become_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def _namespaces_work() -> bool:
    if not hasattr(os, "unshare"):
        return False
    try:
        subprocess.run(["true"], preexec_fn=enter_namespace, check=True)  # no threads at start-up
    except (OSError, subprocess.SubprocessError):
        return False
    return True
