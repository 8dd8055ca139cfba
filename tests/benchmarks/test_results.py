"""What a benchmark's object looks like, and when a target counts as met."""

from __future__ import annotations

from benchmarks.results import Figure, Result, at_least, at_most, quantile, spread


def test_quantile_is_one_of_the_values():
    values = [float(number) for number in range(1, 21)]
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile([7.0], 0.95)) == (10.0, 19.0, 7.0)


def test_target_without_a_number_is_missed_and_not_hidden():
    target = at_most("commits", 1.1, Figure(value=None, unit="commits", note="the log cannot be read"))
    assert target.as_json() == {"name": "commits", "want": "at most 1.1 commits", "got": None, "met": False}


def test_target_is_met_up_to_its_limit():
    assert [at_most("x", 10, Figure(value=value, unit="ms")).met for value in (10.0, 10.01)] == [True, False]
    assert [at_least("x", 10, Figure(value=value, unit="a")).met for value in (10.0, 9.99, None)] == [
        True,
        False,
        False,
    ]


def test_object_has_the_shape_that_scripts_rely_on():
    figures = spread([0.2, 0.4], unit="s")
    found = Result(bench="recovery", seconds=1.23456, figures=figures, targets=[at_most("p95", 1, figures["p95"])])
    assert found.as_json() == {
        "bench": "recovery",
        "seconds": 1.235,
        "figures": {
            "p50": {"value": 0.2, "unit": "s"},
            "p95": {"value": 0.4, "unit": "s"},
            "max": {"value": 0.4, "unit": "s"},
        },
        "targets": [{"name": "p95", "want": "at most 1 s", "got": 0.4, "met": True}],
    }


def test_nothing_seen_is_said():
    assert spread([], unit="s")["p50"] == Figure(value=None, unit="s", note="nothing was seen")
