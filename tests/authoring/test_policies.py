"""Pauses between attempts stay finite, capped and spread; nonsense is refused."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableops.authoring.policies import MAX_DELAY_SECONDS, Budget, Retry
from durableops.errors import DefinitionError, Fatal


# C059
@pytest.mark.parametrize(
    ("attempt", "pause"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (2000, 60.0), (10**9, 60.0)]
)
def test_pause_doubles_up_to_its_cap_for_any_attempt(attempt: int, pause: float) -> None:
    assert Retry(jitter=0).delay(attempt, random.Random(1)) == pytest.approx(pause)


# C059
@pytest.mark.parametrize(
    ("retry", "pause"),
    [
        (Retry(factor=1.0, first_delay=5, jitter=0), 5.0),
        (Retry(first_delay=0, jitter=0), 0.0),
        (Retry(first_delay=0, max_delay=0, jitter=0), 0.0),
        (Retry(first_delay=60, max_delay=60, jitter=0), 60.0),
        (Retry(first_delay=0.001, factor=100, max_delay=60, jitter=0), 60.0),
    ],
)
def test_odd_but_sensible_policies_have_finite_pauses(retry: Retry, pause: float) -> None:
    assert retry.delay(2000, random.Random(1)) == pytest.approx(pause)


# C059
@given(
    first=st.just(0.0) | st.floats(0.001, MAX_DELAY_SECONDS),
    extra=st.floats(0, 1),
    factor=st.floats(1, 100),
    attempt=st.integers(1, 10**6),
    seed=st.integers(),
)
def test_every_accepted_policy_gives_a_pause_that_fits_in_a_timedelta(
    first: float, extra: float, factor: float, attempt: int, seed: int
) -> None:
    largest = min(MAX_DELAY_SECONDS, first + extra * (MAX_DELAY_SECONDS - first))
    retry = Retry(first_delay=first, max_delay=largest, factor=factor)
    pause = retry.delay(attempt, random.Random(seed))
    assert 0 <= pause <= largest * 1.2
    assert timedelta(seconds=pause) >= timedelta(0)


# C059
def test_jitter_spreads_pauses_by_its_share_even_at_the_cap() -> None:
    rng = random.Random(7)
    pauses = [Retry(jitter=0.2).delay(50, rng) for _ in range(500)]
    assert 48 <= min(pauses) < 50
    assert 70 < max(pauses) <= 72


def test_same_random_numbers_give_the_same_pause() -> None:
    assert Retry().delay(3, random.Random(5)) == Retry().delay(3, random.Random(5))


# C059
@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": 2.0},
        {"max_attempts": True},
        {"first_delay": -1},
        {"first_delay": 1e-9},
        {"first_delay": math.nan},
        {"first_delay": "1"},
        {"factor": 0.5},
        {"factor": 101},
        {"factor": math.inf},
        {"factor": math.nan},
        {"max_delay": 0.5},
        {"max_delay": math.inf},
        {"max_delay": MAX_DELAY_SECONDS + 1},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"give_up_on": ValueError},
        {"give_up_on": (ValueError("x"),)},
        {"give_up_on": (KeyboardInterrupt,)},
    ],
)
def test_policies_that_make_no_sense_are_refused_where_they_are_written(options: dict[str, object]) -> None:
    with pytest.raises(DefinitionError) as caught:
        Retry(**options)  # type: ignore[arg-type]
    assert caught.value.detail.startswith(f"{__file__}:")
    assert next(iter(options)) in caught.value.detail


def test_attempts_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        Retry().delay(0, random.Random(1))


def test_fatal_and_named_errors_end_the_attempts() -> None:
    retry = Retry(give_up_on=(LookupError,))
    assert retry.gives_up_on(KeyError("x"))
    assert retry.gives_up_on(Fatal("x"))
    assert not retry.gives_up_on(ValueError("x"))


@pytest.mark.parametrize(
    "options", [{"calls": 0}, {"money": 1.5}, {"money": Decimal("0.10")}, {"compute_seconds": 0.5}, {}]
)
def test_budgets_from_zero_up_are_accepted(options: dict[str, object]) -> None:
    Budget(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"calls": -1},
        {"tokens": 1.5},
        {"steps": True},
        {"money": math.nan},
        {"money": Decimal("sNaN")},
        {"money": "1"},
        {"compute_seconds": math.inf},
    ],
)
def test_budgets_that_make_no_sense_are_refused_where_they_are_written(options: dict[str, object]) -> None:
    with pytest.raises(DefinitionError) as caught:
        Budget(**options)  # type: ignore[arg-type]
    assert caught.value.detail.startswith(f"{__file__}:")
