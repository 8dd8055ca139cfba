"""A limit on the memory of a process and all it forks: a control group of a test's own, of either version."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.processes import patiently

ROOT = Path("/sys/fs/cgroup")


class NoControlGroup(Exception):
    """This machine lets us limit no memory; the message says why."""


@contextmanager
def limited_to(megabytes: int) -> Iterator[tuple[str, ...]]:
    """What to put before a command so that it and its children get no more memory than that.

    Raises NoControlGroup.
    """
    is_newer = (ROOT / "cgroup.controllers").exists()
    folder = (ROOT if is_newer else ROOT / "memory") / f"durableops-test-{os.getpid()}"
    limit = folder / ("memory.max" if is_newer else "memory.limit_in_bytes")
    try:
        folder.mkdir()
    except OSError as error:
        raise NoControlGroup(f"{folder} cannot be made: {error.strerror}") from error
    try:
        try:
            limit.write_text(str(megabytes * 2**20))
        except OSError as error:
            raise NoControlGroup(f"{limit} cannot be written: {error.strerror}") from error
        yield ("/bin/sh", "-c", f'echo $$ > "{folder}/cgroup.procs"; exec "$@"', "sh")
    finally:
        patiently(lambda: not (folder / "cgroup.procs").read_text(), hoping_for="an empty control group")
        folder.rmdir()
