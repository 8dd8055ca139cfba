"""Starts and ends a worker and an upkeep over and over, each in processes of its own, forked after one import."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import django


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def main(times: int) -> None:
    """Restart both so many times; each worker has registered before it is ended."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    django.setup()
    from django.db import connections

    from durableops.engine.supervisor import Supervisor
    from durableops.upkeep.rounds import Rounds
    from runs.models import Worker
    from tests.waiting import eventually

    for _ in range(times):
        connections.close_all()
        pids = [fork(lambda: Supervisor().run()), fork(lambda: Rounds().run())]
        eventually(Worker.objects.filter(pid=pids[0]).exists, timeout=20)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for pid in pids:
            os.waitpid(pid, 0)
    sys.stdout.write(f"restarted {times} times\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
