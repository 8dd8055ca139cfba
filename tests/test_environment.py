"""A checkout's own values stand behind the process's, and production reads none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from durableops.environment import complete, read_file, write_file

SERVICES = {
    "DATABASE_URL": "postgresql://app@/ours",
    "DATABASE_OWNER_URL": "postgresql://owner@/ours",
    "REDIS_URL": "unix:///r",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    write_file(tmp_path / ".durableops" / "env", {"DURABLEOPS_ENV": "development"})
    write_file(tmp_path / ".durableops" / "services.env", SERVICES)
    return tmp_path


def test_development_checkout_knows_its_servers(checkout: Path):
    assert complete({}, checkout=checkout) == {"DURABLEOPS_ENV": "development", **SERVICES}


def test_unmarked_checkout_offers_nothing(tmp_path: Path):
    write_file(tmp_path / ".durableops" / "services.env", SERVICES)
    assert complete({}, checkout=tmp_path) == {}


def test_production_reads_no_file(checkout: Path):
    assert complete({"DURABLEOPS_ENV": "production"}, checkout=checkout) == {"DURABLEOPS_ENV": "production"}


def test_owner_of_the_embedded_database_is_not_used_for_another_database(checkout: Path):
    found = complete({"DATABASE_URL": "postgresql://other@/theirs"}, checkout=checkout)
    assert found["DATABASE_URL"] == "postgresql://other@/theirs"
    assert "DATABASE_OWNER_URL" not in found


def test_owner_is_kept_for_the_embedded_database_named_explicitly(checkout: Path):
    found = complete({"DATABASE_URL": SERVICES["DATABASE_URL"]}, checkout=checkout)
    assert found["DATABASE_OWNER_URL"] == SERVICES["DATABASE_OWNER_URL"]


def test_empty_variable_counts_as_not_given(checkout: Path):
    assert complete({"DATABASE_URL": ""}, checkout=checkout)["DATABASE_URL"] == SERVICES["DATABASE_URL"]


def test_values_with_spaces_and_quotes_survive_the_file(tmp_path: Path):
    values = {"A": "one two", "B": "it's", "C": ""}
    write_file(tmp_path / "f", values)
    assert read_file(tmp_path / "f") == values
