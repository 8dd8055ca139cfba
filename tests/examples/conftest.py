"""A running ticket desk for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.desks import DeskClient, running_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[DeskClient]:
    with running_desk(tmp_path / "desk") as running:
        yield running
