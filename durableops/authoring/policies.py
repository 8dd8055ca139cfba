"""Values that say how often, how long and how much; what enforces them lives in the engine."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_UP, Decimal
from typing import Literal

from durableops.authoring.source import source_of_caller
from durableops.errors import DefinitionError, Fatal

OnDeadline = Literal["fail", "cancel", "extend", "ask"]
"""When the run's deadline comes: end it, or give it once more as long, by itself or after asking a person."""

OnQueueWait = Literal["fail", "cancel", "continue", "extend", "ask"]
"""When a run has stood in the queue too long: end it, only say so, say so once before it ends, or ask a person."""

OnStepTimeout = Literal["retry", "fail", "cancel", "continue", "extend", "ask"]
"""When an entry takes too long: what its Retry says, end the run, go on with the step's `default`, let the entry take
once more as long, or ask a person whether to enter it again."""

OnCallTimeout = Literal["retry", "fail", "cancel", "continue", "ask"]
"""When a call gets no answer in time: what its Retry says, give up at once, end the run, answer with the tool's
`default` (`read` only), or ask a person whether to try again."""

OnTimeout = Literal["raise", "continue", "cancel", "fail", "extend", "ask"]
"""When a wait ends by its clock: raise WaitTimeout in the step, return its `default`, end the run, wait once more as
long, or ask a person whether to."""

OnBudget = Literal["exhaust", "fail", "cancel", "extend", "ask"]
"""When a budget is spent: end the run with its progress so far, as failed, or as cancelled; give it as much again, by
itself once or after asking a person."""

MOST_ATTEMPTS = 10_000
"""More attempts than this are a loop, not a retry; the record counts them in small numbers."""
MOST_AMOUNT = 1e12
MILLIONTH = Decimal("0.000001")
MAX_DELAY_SECONDS = 365 * 24 * 3600.0
"""No pause between two attempts is longer than a year, so it always fits in a timedelta."""


def refuse(detail: str) -> DefinitionError:
    """A definition error that begins with the line of the author's call."""
    return DefinitionError(f"{source_of_caller()}: {detail}")


def is_number(value: object) -> bool:
    """True for a finite int, float or Decimal; booleans are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    # Decimal("sNaN") refuses even the question that math.isfinite would ask.
    return value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When a failed step or call is tried again.

    The pause before attempt *n + 1* is `first_delay * factor ** (n - 1)` seconds, at most
    `max_delay`, then spread by `jitter` so that many runs which failed together do not come
    back together. Raises DefinitionError for values that make no sense.
    """

    max_attempts: int = 3
    """Attempts in all, the first included; 1 means never again."""

    first_delay: float = 1.0
    """Seconds before the second attempt, at least a millisecond; 0 tries again at once."""

    factor: float = 2.0
    """How much longer each pause is than the one before, 1 to 100."""

    max_delay: float = 60.0
    """Seconds; the pause before jitter never exceeds this."""

    jitter: float = 0.2
    """Share of the pause, 0 to 1, by which it is randomly lengthened or shortened."""

    give_up_on: tuple[type[Exception], ...] = ()
    """Errors after which no further attempt is made; `Fatal` is always one of them."""

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.max_delay < self.first_delay:
            raise refuse(
                f"Retry has max_delay={self.max_delay} below first_delay={self.first_delay}; "
                "give max_delay at least first_delay."
            )
        if not isinstance(self.give_up_on, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, Exception) for kind in self.give_up_on
        ):
            raise refuse(f"Retry has give_up_on={self.give_up_on!r}; give a tuple of exception classes.")

    def _check_numbers(self) -> None:
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            raise refuse(
                f"Retry has max_attempts={self.max_attempts!r}; give a whole number from 1 to {MOST_ATTEMPTS}."
            )
        for name, low, high in (
            ("first_delay", 0.001 if self.first_delay else 0.0, MAX_DELAY_SECONDS),
            ("factor", 1.0, 100.0),
            ("max_delay", 0.0, MAX_DELAY_SECONDS),
            ("jitter", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise refuse(f"Retry has {name}={value!r}; give a finite number from {low:g} to {high:g}.")

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Seconds to pause after failed attempt number `attempt` (from 1)."""
        if attempt < 1:
            raise ValueError(f"attempt is {attempt}; attempts are counted from 1")
        pause = self._capped(attempt - 1)
        # Jitter comes after the cap: capping it too would gather half of a crowd at max_delay.
        return pause * (1 + rng.uniform(-self.jitter, self.jitter))

    def _capped(self, turns: int) -> float:
        if self.first_delay == 0 or self.factor == 1:
            return float(self.first_delay)
        # Compared as logarithms: 2.0 ** 1999 is an OverflowError before min() could help. The
        # bounds on the options keep the power below finite when it is taken.
        room = math.log(self.max_delay / self.first_delay) / math.log(self.factor)
        if turns >= room:
            return float(self.max_delay)
        return float(min(self.max_delay, self.first_delay * self.factor**turns))

    def gives_up_on(self, error: BaseException) -> bool:
        """True if this error ends the attempts, however many are left."""
        return isinstance(error, (Fatal, *self.give_up_on))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one run may spend; None is no limit. Raises DefinitionError for negative amounts."""

    tokens: int | None = None
    """Model tokens, in and out together."""

    money: Decimal | float | None = None
    """In the deployment's one currency. A float is taken as it is written: 0.1 is a tenth."""

    calls: int | None = None
    """Calls of tools that reached the sending stage."""

    steps: int | None = None
    """Entries of steps, waits not counted."""

    compute_seconds: float | None = None
    """Seconds spent inside step code."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            whole = field.name in {"tokens", "calls", "steps"}
            if not is_number(value) or value < 0 or (whole and not isinstance(value, int)):
                kind = "whole number" if whole else "number"
                raise refuse(f"Budget has {field.name}={value!r}; give a finite {kind} from 0, or None.")

    @property
    def limits(self) -> dict[str, Decimal]:
        """The units that are limited."""
        return self.amounts({field.name: getattr(self, field.name) for field in fields(self)})

    @staticmethod
    def amounts(given: Mapping[str, object]) -> dict[str, Decimal]:
        """Amounts by unit, exact to a millionth; None is left out. Raises DefinitionError for what is no amount."""
        known = {field.name for field in fields(Budget)}
        found = {}
        for name, value in given.items():
            if name not in known:
                raise refuse(f"{name!r} is no unit of a budget; there are {', '.join(sorted(known))}.")
            if value is None:
                continue
            if not is_number(value) or value < 0 or value > MOST_AMOUNT:  # type: ignore[operator]
                raise refuse(f"{name}={value!r} cannot be spent; give a finite number from 0 to {MOST_AMOUNT:g}.")
            found[name] = Decimal(str(value)).quantize(MILLIONTH, rounding=ROUND_UP)
        return found
