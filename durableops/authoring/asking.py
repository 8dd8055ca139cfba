"""How a person is asked: what they may say, who may say it, and when they are reminded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

from durableops.authoring import forms
from durableops.errors import Fatal

Decider = Literal["operator", "reviewer", "admin"]
"""Who may decide: a role in the run's tenant. An admin may do what a reviewer may."""

DECIDERS = ("operator", "reviewer", "admin")
MOST_CHOICES = 8
SHORTEST_CLOCK = timedelta(seconds=1)
LONGEST_CLOCK = timedelta(days=3650)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,49}\Z")


@dataclass(frozen=True)
class Choice:
    """One thing a person may say. `approves=False` is a no, which always needs a reason."""

    name: str
    label: str = ""
    approves: bool = True


YES_AND_NO = (Choice("approve", "Approve"), Choice("refuse", "Refuse", approves=False))


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What an approval asks for besides its question, as plain values."""

    choices: list[dict[str, Any]]
    fields: list[dict[str, Any]]
    roles: list[str]
    four_eyes: bool
    remind_seconds: float | None
    escalate_seconds: float | None
    escalate_to: str

    @property
    def is_plain(self) -> bool:
        """Whether it is a yes or no without anything to fill in."""
        return not self.fields and self.choices == [asdict(one) for one in YES_AND_NO]


def terms(
    *, choices: Iterable[Choice | str] = (), form: forms.Form | None = None,
    by: Decider | Iterable[Decider] = "reviewer", four_eyes: bool = False, remind: timedelta | None = None,
    escalate: timedelta | None = None, escalate_to: Decider = "admin",
) -> Terms:  # fmt: skip
    """The terms as declared. Raises Fatal that says what is wrong with them."""
    roles = sorted({by} if isinstance(by, str) else set(by))
    if not roles or not set(roles) <= set(DECIDERS):
        raise Fatal(f"by is {by!r}; give one or more of {', '.join(DECIDERS)}.")
    if escalate_to not in DECIDERS:
        raise Fatal(f"escalate_to is {escalate_to!r}; give one of {', '.join(DECIDERS)}.")
    return Terms(
        choices=[asdict(one) for one in _choices(choices)],
        fields=forms.describe(form),
        roles=[str(role) for role in roles],
        four_eyes=bool(four_eyes),
        remind_seconds=_seconds(remind, "remind"),
        escalate_seconds=_seconds(escalate, "escalate"),
        escalate_to=escalate_to,
    )


def _choices(given: Iterable[Choice | str]) -> list[Choice]:
    found = [Choice(one) if isinstance(one, str) else one for one in given] or list(YES_AND_NO)
    names = [one.name for one in found]
    for one in found:
        if not _NAME.match(one.name):
            raise Fatal(f"choice {one.name!r} wants a name of a-z, 0-9, - and _, at most 50 long.")
    if len(set(names)) != len(names) or len(names) > MOST_CHOICES:
        raise Fatal(f"choices are {', '.join(names)}; give each a name of its own, and at most {MOST_CHOICES}.")
    if not any(one.approves for one in found):
        raise Fatal("none of the choices lets the run go on; give one with approves=True.")
    if all(one.approves for one in found):
        found.append(YES_AND_NO[1])  # a person can always say no
    return [Choice(one.name, one.label or one.name.replace("_", " ").capitalize(), one.approves) for one in found]


def _seconds(length: timedelta | None, what: str) -> float | None:
    if length is None:
        return None
    if not isinstance(length, timedelta) or not SHORTEST_CLOCK <= length <= LONGEST_CLOCK:
        raise Fatal(f"{what} is {length!r}; give a timedelta from a second to ten years.")
    return length.total_seconds()
