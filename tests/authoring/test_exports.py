"""The author's names: complete, sorted, and importable where there is no Django."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

import durableops
from durableops import errors
from durableops.authoring.context import AsyncRun, Run

ERRORS: list[Any] = [
    each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__
]


def test_exported_names_are_sorted_and_are_exactly_the_public_ones() -> None:
    public = {
        name
        for name, value in vars(durableops).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert durableops.__all__ == sorted(public)


def test_authors_names_import_without_django_or_a_database() -> None:
    script = (
        "import sys; from durableops import *; import durableops.checkpoints.states, durableops.authoring.registry;"
        "print(sorted({'django', 'rq', 'redis', 'psycopg', 'runs'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"


def test_every_error_is_drawn_in_the_tree_and_documented() -> None:
    for each in ERRORS:
        if not each.__name__.startswith("_"):
            assert each.__name__ in (errors.__doc__ or "")
        assert each.__doc__, each


def test_codes_are_stable_words_and_unique() -> None:
    public = [each for each in ERRORS if not each.__name__.startswith("_")]
    codes = [each.code for each in public]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").replace(".", "").isalpha() for code in codes)


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_survive_copying_and_pickling(kind: type[errors.DurableOpsError]) -> None:
    error = kind(5) if kind is errors.RetryLater else kind("what is")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), str(twin), twin.detail) == (kind, str(error), error.detail)


def test_signals_are_not_ordinary_errors_that_step_code_would_swallow() -> None:
    signals = [each for each in ERRORS if issubclass(each, errors.ControlSignal)]
    assert len(signals) == 6
    assert not any(issubclass(each, Exception) for each in signals)


def test_plain_and_async_runs_offer_the_same() -> None:
    names = {name for name in dir(Run) if not name.startswith("_")}
    assert names == {name for name in dir(AsyncRun) if not name.startswith("_")}
    for name in names:
        plain, other = inspect.getattr_static(Run, name), inspect.getattr_static(AsyncRun, name)
        if inspect.isfunction(plain) and name != "pages":
            assert list(inspect.signature(plain).parameters.values()) == list(
                inspect.signature(other).parameters.values()
            )
        assert (plain.fget if isinstance(plain, property) else plain).__doc__
