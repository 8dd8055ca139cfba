"""Benchmarks on copies of a migrated database: what they do there is theirs, the migrating is not what is tested."""

from __future__ import annotations

import pytest

from tests.fixtures import template


@pytest.fixture
def migrated_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.scratch.make_database", lambda place: template.copy_to(place.database))
