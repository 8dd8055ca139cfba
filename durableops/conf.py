"""The engine's knobs: one class, one line each, read once from `DURABLEOPS_*`. Django's settings live elsewhere.

`get_conf()` is what code asks; `override_conf()` is for tests. Whether the knobs make sense together is asked by the
system checks (durableops/checks.py), so that an operator sees all complaints at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches

PREFIX = "DURABLEOPS_"
YES = frozenset({"1", "true", "yes", "on"})
NO = frozenset({"0", "false", "no", "off"})

# Read by the settings, not here.
OTHER_VARIABLES = frozenset(
    {
        "DURABLEOPS_ENV",
        "DURABLEOPS_APPS",
        "DURABLEOPS_LOG_LEVEL",
        "DURABLEOPS_DATABASE_ROLE",
        "DURABLEOPS_ENCRYPTION_KEYS",
    }
)


class ConfError(ValueError):
    """A variable holds something that its knob cannot mean."""


@dataclass(frozen=True, kw_only=True)
class Conf:
    """What an operator may turn. Seconds are of wall time; `DURABLEOPS_LEASE_SECONDS=20` turns `lease_seconds`."""

    queue_name: str = "durableops"  # the RQ queue that carries the bells; one per installation on a shared broker
    concurrency: int = 16  # runs one worker holds at once; agents wait, so many fit; a killed worker interrupts so many
    connections: int = 4  # the engine's own database connections in a worker, shared by its runs
    step_connections: int = 4  # database connections for the Django code of steps and `local` tools, in a worker
    heartbeat_seconds: float = 0.25  # a worker's parent raises its counter this often
    lease_seconds: float = 10.0  # a counter that stood still this long, on the observer's clock, means a dead worker
    poll_seconds: float = 2.0  # a sleeping worker looks for work this often, even when no bell rings
    upkeep_seconds: float = 0.2  # pause between two rounds of the reaper, the timers and the sweep
    grace_seconds: float = 10.0  # after SIGTERM a worker finishes or hands back what it holds within this time
    step_grace_seconds: float = 5.0  # a step past its timeout may clean up this long before its process is ended
    slice_seconds: float = 5.0  # a run gives way after this long when others wait
    bulk_threads: int = 3  # so many runs of bulk actions an upkeep works on at once; each has a connection meanwhile
    version_patience_seconds: float = 10.0  # a plan without a worker this long is given up: newer ones take its runs
    currency: str = "EUR"  # what budgets of money are in, three letters; one for the whole installation
    payload_max_bytes: int = 1024 * 1024  # the largest input, state, step output or effect result, encoded
    run_state_max_bytes: int = 256 * 1024 * 1024  # what the states of one run's checkpoints may take together
    large_result_max_bytes: int = 64 * 1024 * 1024  # the largest result that a tool may have kept as a file instead
    secret_names: str = ""  # further names of fields whose values are masked, separated by commas
    secret_patterns: str = ""  # further shapes of secrets: a JSON list of regular expressions
    retention_seconds: float = 30.0  # pause between two rounds of the cleaner, in an upkeep process
    retention_share: float = 0.3  # share of the time that the cleaner works at most, when there is much to clean
    link_seconds: float = 900.0  # how long a link to a file works
    call_retry_after_cap_seconds: float = 60.0  # a downstream's Retry-After is believed up to this
    relay_concurrency: int = 16  # messages of the outbox that one `manage.py relay` delivers at once
    upkeep_relay_concurrency: int = 8  # and one upkeep process; 0 leaves all of them to `manage.py relay`
    webhook_allow: str = ""  # networks and hosts of our own that webhooks may be sent to, by commas; others are refused
    relay_poll_seconds: float = 1.0  # an idle relay looks for messages this often, even when no bell rings
    doubt_remind_seconds: float = 3600.0  # an effect in doubt this long is reminded of; a tool may say otherwise
    doubt_escalate_seconds: float = 86400.0  # an effect in doubt this long is escalated; a tool may say otherwise
    session_locks: bool = True  # off behind a transaction pooler: workers are then judged by their counters alone
    prepare_statements: bool = True  # off behind a pooler that cannot keep prepared statements in transaction mode


def read_conf(environ: Mapping[str, str]) -> Conf:
    """Read every knob from its variable; an absent or empty variable leaves the default.

    Raises ConfError that names the variable, what it holds and what it wants.
    """
    _refuse_misspelt(environ)
    given: dict[str, object] = {}
    for knob in fields(Conf):
        variable = PREFIX + knob.name.upper()
        text = environ.get(variable, "").strip()
        if text:
            given[knob.name] = _typed(text, kind=type(knob.default), variable=variable)
    return Conf(**given)  # type: ignore[arg-type]  # each value was made with its own field's type


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Refuse a variable that almost is a knob: a knob that silently does not turn is found in the worst hour."""
    knobs = [PREFIX + knob.name.upper() for knob in fields(Conf)]
    for variable in environ:
        if not variable.startswith(PREFIX) or variable in knobs or variable in OTHER_VARIABLES:
            continue
        if near := get_close_matches(variable, knobs, n=1, cutoff=0.9):
            raise ConfError(f"{variable} is not a knob; {near[0]} is.")


def _typed(text: str, *, kind: type, variable: str) -> object:
    if kind is bool:
        return _boolean(text, variable=variable)
    if kind is str:
        return text
    try:
        number = kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ConfError(
            f"{variable} is {text!r}; it wants {wanted}, such as {getattr(Conf, _knob(variable))}."
        ) from None
    if not math.isfinite(number) or number < 0:
        raise ConfError(f"{variable} is {text!r}; it wants a finite number that is not negative.")
    return number


def _boolean(text: str, *, variable: str) -> bool:
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise ConfError(f"{variable} is {text!r}; it wants 1 or 0.")


def _knob(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


_conf: Conf | None = None


def get_conf() -> Conf:
    """Return the knobs of this process, read from its environment the first time somebody asks."""
    global _conf  # read once, then the same for the life of the process
    if _conf is None:
        _conf = read_conf(os.environ)
    return _conf


@contextmanager
def override_conf(**changes: object) -> Iterator[Conf]:
    """Let `get_conf()` answer with some knobs changed, inside a `with` block. For tests."""
    global _conf
    before = get_conf()
    _conf = replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield _conf
    finally:
        _conf = before
