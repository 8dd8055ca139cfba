"""Each benchmark runs to its end with tiny sizes, and its object has the agreed shape. No timing is asserted."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from benchmarks import catalogue, table

SIZES = {
    "density": ["runs=20", "plain_runs=5", "seconds=0.2"],
    "engine": ["runs=3", "samples=2", "idle_seconds=0.2", "queued=1500", "most_in_hand=16"],
    "migrate": ["runs=40", "watched_seconds=0.2"],
    "recovery": ["kills=1", "near_kills=1", "child_kills=1", "pool_kills=1"],
    "retention": ["events=400", "checkpoints=200", "effects=100", "seconds=0.3", "vacuum_seconds=0"],
}


@pytest.mark.drill
@pytest.mark.parametrize("name", sorted(SIZES))
def test_benchmark_answers_with_figures_and_targets(name, capfd, migrated_scratch):
    arguments = [part for size in SIZES[name] for part in ("--size", size)]
    call_command("bench", name, "--json", *arguments)
    found = json.loads(capfd.readouterr().out)
    assert (found["bench"], sorted(found)) == (name, ["bench", "figures", "seconds", "targets"])
    assert all(set(figure) >= {"value", "unit"} for figure in found["figures"].values())
    assert all(sorted(target) == ["got", "met", "name", "want"] for target in found["targets"])
    assert found["targets"]
    assert table.of_result(found).startswith(f"{name}: ")


def test_every_benchmark_is_proved_here():
    assert catalogue.names() == sorted(SIZES)


def test_unknown_benchmark_is_refused_with_the_names_there_are():
    with pytest.raises(CommandError, match="'engin' is no benchmark; there are density, engine, migrate, recovery"):
        call_command("bench", "engin")


def test_size_that_is_no_number_is_refused():
    with pytest.raises(CommandError, match="--size runs is not NAME=NUMBER"):
        call_command("bench", "engine", "--size", "runs")
