"""The collector of a worker: loaded modules are passed over, cycles of runs are still found."""

from __future__ import annotations

import gc
import weakref

import pytest

from durableops.engine import collector


class Node:
    itself: Node | None = None


@pytest.fixture
def spared():
    before = gc.get_threshold()
    collector.spare()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_is_loaded_is_passed_over_and_later_cycles_are_still_found(spared):
    assert gc.get_freeze_count() > 10_000
    assert not any(found is collector.__dict__ for found in gc.get_objects())
    node = Node()
    node.itself = node
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is None
