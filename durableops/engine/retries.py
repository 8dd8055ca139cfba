"""Whether a failed step is entered again: a pure decision."""

from __future__ import annotations

import random
from dataclasses import dataclass

from durableops.authoring.policies import Retry
from durableops.conf import get_conf
from durableops.errors import (
    ArtifactDamaged,
    ArtifactGone,
    ArtifactNotFound,
    CallFailed,
    ChildrenFailed,
    CompatibilityError,
    CursorRegression,
    DefinitionError,
    DuplicateName,
    EffectConflict,
    EffectGivenUp,
    Fatal,
    PayloadRefused,
    Refused,
    ResultGone,
    RetryLater,
    WaitTimeout,
)

POINTLESS = (
    ChildrenFailed, CompatibilityError, CursorRegression, DefinitionError, DuplicateName, EffectConflict,
    EffectGivenUp, PayloadRefused, Refused, ResultGone, WaitTimeout, ArtifactDamaged, ArtifactGone, ArtifactNotFound,
)  # fmt: skip
"""Errors that the same code would meet again: what is on record does not change by asking twice."""


@dataclass(frozen=True, kw_only=True)
class RetryAt:
    """Enter the step again after so many seconds."""

    delay: float


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The run fails."""

    why: str


def decide(policy: Retry, failed_attempts: int, error: BaseException, rng: random.Random) -> RetryAt | GiveUp:
    """What follows on failed attempt number `failed_attempts` (counted from 1, since the last commit)."""
    # What a tool called fatal is no less so for the step: entering it again would send the call once more.
    fatal_call = isinstance(error, CallFailed) and isinstance(error.__cause__, Fatal)
    if fatal_call or isinstance(error, POINTLESS) or policy.gives_up_on(error):
        return GiveUp(why=f"{type(error).__name__} is not retried")
    if failed_attempts >= policy.max_attempts:
        return GiveUp(why=f"all {policy.max_attempts} attempts failed")
    delay = policy.delay(failed_attempts, rng)
    if isinstance(error, RetryLater):
        delay = max(delay, min(error.after_seconds, get_conf().call_retry_after_cap_seconds))
    return RetryAt(delay=delay)
