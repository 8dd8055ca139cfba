"""Knobs: what their variables may hold, and what is said about the rest."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from durableops.conf import Conf, ConfError, get_conf, override_conf, read_conf

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "settings.md"


def test_knobs_have_their_defaults_without_variables():
    assert read_conf({}) == Conf()


def test_knob_is_read_with_the_type_of_its_default():
    conf = read_conf(
        {
            "DURABLEOPS_LEASE_SECONDS": " 20 ",
            "DURABLEOPS_PAYLOAD_MAX_BYTES": "2",
            "DURABLEOPS_PREPARE_STATEMENTS": "off",
            "DURABLEOPS_QUEUE_NAME": "bells",
        }
    )
    assert conf == Conf(lease_seconds=20.0, payload_max_bytes=2, prepare_statements=False, queue_name="bells")


def test_empty_variable_leaves_the_default():
    assert read_conf({"DURABLEOPS_LEASE_SECONDS": ""}) == Conf()


@pytest.mark.parametrize(
    ("variable", "text", "wanted"),
    [
        ("DURABLEOPS_LEASE_SECONDS", "soon", "wants a number, such as 10.0"),
        ("DURABLEOPS_LEASE_SECONDS", "nan", "finite"),
        ("DURABLEOPS_LEASE_SECONDS", "inf", "finite"),
        ("DURABLEOPS_LEASE_SECONDS", "-1", "not negative"),
        ("DURABLEOPS_PAYLOAD_MAX_BYTES", "2.5", "wants a whole number"),
        ("DURABLEOPS_PREPARE_STATEMENTS", "maybe", "wants 1 or 0"),
    ],
)
def test_nonsense_is_refused_by_variable_value_and_want(variable: str, text: str, wanted: str):
    with pytest.raises(ConfError, match=wanted) as refused:
        read_conf({variable: text})
    assert variable in str(refused.value)
    assert repr(text) in str(refused.value)


def test_misspelt_knob_is_refused_with_the_nearest_name():
    with pytest.raises(ConfError, match="DURABLEOPS_LEASE_SECONDS"):
        read_conf({"DURABLEOPS_LEASE_SECOND": "20"})


def test_knobs_cannot_be_changed_after_reading():
    with pytest.raises(FrozenInstanceError):
        get_conf().lease_seconds = 1.0  # type: ignore[misc]


def test_override_ends_with_its_block():
    before = get_conf()
    with override_conf(lease_seconds=3.5):
        assert get_conf().lease_seconds == 3.5
    assert get_conf() == before


def test_every_knob_is_documented_with_its_default():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = {f"| `DURABLEOPS_{knob.name.upper()}` | {_shown(knob.default)} |" for knob in fields(Conf)}
    assert [row for row in sorted(rows) if row not in text] == []


def _shown(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
