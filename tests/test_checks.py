"""System checks: combinations of knobs that make no sense are refused, weaker ones are named."""

from __future__ import annotations

import pytest

from durableops.checks import check_database_roles, complaints
from durableops.conf import Conf


def ids(conf: Conf) -> list[str | None]:
    return [complaint.id for complaint in complaints(conf)]


def test_defaults_are_without_complaint():
    assert ids(Conf()) == []


def test_lease_shorter_than_three_heartbeats_is_refused():
    assert ids(Conf(heartbeat_seconds=1.0, lease_seconds=2.9)) == ["durableops.E001"]
    assert ids(Conf(heartbeat_seconds=1.0, lease_seconds=3.0)) == []


@pytest.mark.parametrize("knob", ["poll_seconds", "upkeep_seconds", "slice_seconds", "payload_max_bytes"])
def test_knob_that_must_not_be_zero_is_refused(knob: str):
    assert ids(Conf(**{knob: 0})) == ["durableops.E002"]  # type: ignore[arg-type]


def test_slice_of_many_leases_is_a_warning():
    assert ids(Conf(slice_seconds=101.0)) == ["durableops.W001"]


def test_upkeep_slower_than_a_lease_is_a_warning():
    assert ids(Conf(upkeep_seconds=11.0)) == ["durableops.W002"]


def test_one_database_role_is_a_warning_that_says_what_is_weaker(settings):
    settings.DATABASE_APPLICATION_ROLE = ""
    (complaint,) = check_database_roles(None)
    assert complaint.id == "durableops.W003"
    assert "delete audit entries, events and checkpoints" in complaint.msg


def test_two_database_roles_are_without_complaint(settings):
    settings.DATABASE_APPLICATION_ROLE = "app"
    assert check_database_roles(None) == []
