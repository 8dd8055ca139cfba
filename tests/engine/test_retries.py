"""Whether a failed step is entered again: the whole table, without a clock or a database."""

from __future__ import annotations

import random

import pytest

from durableops import Fatal, Refused, Retry, RetryLater
from durableops.conf import override_conf
from durableops.engine.retries import POINTLESS, GiveUp, RetryAt, decide
from durableops.errors import CallFailed, StepTimeout

pytestmark = pytest.mark.engine

RNG = random.Random(0)
STEADY = Retry(max_attempts=4, first_delay=2.0, factor=3.0, max_delay=10.0, jitter=0.0)


@pytest.mark.parametrize(
    ("failed", "verdict"),
    [(1, RetryAt(delay=2.0)), (2, RetryAt(delay=6.0)), (3, RetryAt(delay=10.0)), (4, None), (5, None)],
)
def test_attempts_and_pauses_are_the_policys(failed, verdict):
    found = decide(STEADY, failed, ValueError(), RNG)
    assert found == verdict if verdict else isinstance(found, GiveUp)


@pytest.mark.parametrize("kind", [*POINTLESS, Fatal], ids=lambda kind: kind.__name__)
def test_error_that_asking_again_cannot_change_is_not_retried(kind):
    found = decide(STEADY, 1, kind("x"), RNG)
    assert isinstance(found, GiveUp)
    assert kind.__name__ in found.why


@pytest.mark.parametrize("error", [ValueError(), CallFailed("x"), StepTimeout("x"), SystemExit()], ids=repr)
def test_other_errors_are_retried(error):
    assert isinstance(decide(STEADY, 1, error, RNG), RetryAt)


def test_errors_the_author_named_are_not_retried():
    policy = Retry(give_up_on=(LookupError,))
    assert isinstance(decide(policy, 1, KeyError(), RNG), GiveUp)
    assert isinstance(decide(policy, 1, ValueError(), RNG), RetryAt)


@pytest.mark.parametrize(
    ("seconds", "delay"),
    [(60, 60.0), (999_999, 60.0), (2.5e11, 60.0), (0, 2.0), (-5, 2.0), (float("inf"), 60.0), (float("nan"), 2.0)],
)
def test_retry_later_is_honoured_within_the_cap_and_never_shortens_the_pause(seconds, delay):  # C058
    assert decide(STEADY, 1, RetryLater(seconds), RNG) == RetryAt(delay=delay)


def test_cap_can_be_turned():
    with override_conf(call_retry_after_cap_seconds=5.0):
        assert decide(STEADY, 1, RetryLater(60), RNG) == RetryAt(delay=5.0)


def test_retry_later_uses_up_attempts_no_faster_than_the_policy():  # C058
    assert isinstance(decide(STEADY, 4, RetryLater(1), RNG), GiveUp)


@pytest.mark.parametrize("failed", [1, 50, 1999, 9999])
def test_pause_never_overflows(failed):  # C059
    policy = Retry(max_attempts=10_000, first_delay=1.0, factor=2.0, max_delay=60.0, jitter=0.2)
    found = decide(policy, failed, ValueError(), random.Random(failed))
    assert isinstance(found, RetryAt)
    assert 0 <= found.delay <= 72.0


def test_refusal_is_among_what_is_not_retried():
    assert Refused in POINTLESS
