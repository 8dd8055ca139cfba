"""`python -m examples.keeping.nursery`: for each line of failpoints it reads, one cleaner in a process of its own.

It says the process before it begins, what the cleaner printed if it came to its end, and how it ended, each as one
line of JSON. Forked, for a drill that kills many would otherwise spend its time on starting them.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import django
from django.core.management import call_command


def main() -> int:
    """Until there are no lines any more."""
    django.setup()
    from durableops import failpoints  # settings come first

    _say(ready=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            failpoints.arm(line.strip())
            call_command("retention", json=True)
            sys.stdout.flush()
            os._exit(0)
        _say(process=child)
        _, status = os.waitpid(child, 0)
        _say(status=os.waitstatus_to_exitcode(status))
    return 0


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
