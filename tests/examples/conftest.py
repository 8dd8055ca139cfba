"""Running services for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.desks import DeskClient, LedgerClient, running_desk, running_ledger


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[DeskClient]:
    with running_desk(tmp_path / "desk") as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerClient]:
    with running_ledger(tmp_path / "ledger") as running:
        yield running
