"""`python -m examples.demo.approve`: give every approval that a demo's run waits for, as the console does."""

from __future__ import annotations

import getpass
import os
import sys

import django

from durableops.errors import DurableOpsError


def main() -> int:
    """Approve, and say what was approved."""
    os.environ.setdefault("DURABLEOPS_ENV", "development")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    django.setup()
    # Models can be imported only now that Django is set up.
    from examples.demo import record

    waiting = record.open_approvals()
    for wait_id, question in waiting:
        try:
            record.approve(wait_id, actor=getpass.getuser(), reason="given on the command line")
        except DurableOpsError as refused:
            print(refused)
            return 1
        print(f"approved: {question}")
    if not waiting:
        print("no run of a demo waits for an approval.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
