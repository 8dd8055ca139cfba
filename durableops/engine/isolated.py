"""The worker beside a worker: a process of its own for runs whose step asked for one, which it takes one at a time."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable

from durableops.authoring import registry
from durableops.clock import monotonic
from durableops.conf import get_conf

logger = logging.getLogger("durableops.isolated")

RESTART_SECONDS = 2.0
STOP_MARGIN_SECONDS = 3.0


def is_wanted() -> bool:
    """Whether any workflow this process knows asks for isolation."""
    return any(definition.asks_for_isolation for definition in registry.workflows())


class Companion:
    """`manage.py worker --isolated`, kept alive by the parent of a worker. Started, not forked: it shares nothing."""

    def __init__(self, *, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        """Called in the new process: it must not outlive its parent."""
        self._process: subprocess.Popen[bytes] | None = None
        self._next_start = 0.0

    def keep(self) -> None:
        """Start it if it is not there, not too often."""
        if self._process is not None and self._process.poll() is not None:
            logger.warning("the isolated worker ended with status %s", self._process.returncode)
            self._process = None
        if self._process is None and monotonic() >= self._next_start:
            self._next_start = monotonic() + RESTART_SECONDS
            self._process = subprocess.Popen(
                [sys.executable, "-m", "django", "worker", "--isolated"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                preexec_fn=self._prepare,
                stdin=subprocess.DEVNULL,
            )

    def ask_to_stop(self) -> None:
        """SIGTERM; another one does not wait for the grace."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for its end, and end it when its grace is over."""
        if self._process is None:
            return
        try:
            self._process.wait(get_conf().grace_seconds + STOP_MARGIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
