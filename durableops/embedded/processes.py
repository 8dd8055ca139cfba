"""Start a program that ends by itself and say what it said if it fails; nothing about particular servers."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.identity import Identity


def run(command: Sequence[str | Path], *, identity: Identity, log: Path, doing: str, words: Path | None = None) -> None:
    """Run a command to its end, its words in `log`; EmbeddedError with the last of them (or of `words`) if it fails.

    A server it leaves behind must inherit neither our pipes (a reader would wait for ever) nor our session.
    """
    with log.open("ab") as out:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            preexec_fn=identity.before_exec,
            start_new_session=True,
            check=False,
        )
    if done.returncode != 0:
        told = words if words and words.exists() else log
        raise EmbeddedError(f"{doing} failed: {last_words(told)} (all of it: {told})")


def last_words(log: Path, *, lines: int = 1) -> str:
    """Return the last lines of a log that say something."""
    said = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " ".join(said[-lines:]) or "it said nothing"


def ask(path: Path, question: bytes, *, seconds: float = 2.0) -> bytes | None:
    """Send a few bytes to a unix socket and return the answer, or None if nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
            if question:
                connection.sendall(question)
                return connection.recv(4096)
        except OSError:
            return None
    return b""
