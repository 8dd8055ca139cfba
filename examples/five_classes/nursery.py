"""`python -m examples.five_classes.nursery COMMAND …`: run a command in a child, and in another when that dies.

What a supervisor does, without loading everything anew for each child: a drill that kills relays by the dozen would
otherwise spend its time on starting them.
"""

from __future__ import annotations

import os
import signal
import sys

import django
from django.core.management import call_command


def main(command: list[str]) -> int:
    """Keep one child alive until asked to stop."""
    django.setup()
    stopped = False
    child = 0

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if child:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    while not stopped:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            call_command(*command)
            os._exit(0)
        os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
