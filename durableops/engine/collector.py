"""Python's collector of cycles in a worker: what is loaded once is not looked through again and again.

Each of its full passes stops every run of the process. With a thousand in hand, all that came up while they began took
more than a second of their ten.
"""

from __future__ import annotations

import gc

COLLECT_AFTER = 10_000
"""So many new objects, a megabyte or two, are looked through at once: five times Python's own number."""


def spare() -> None:
    """Pass over all that is loaded by now, here and in children; their pages stay shared with this process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
