"""What a tool's `probe` answers when it is asked whether a call happened. An error of the probe is `Unknown`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Happened:
    """It happened; this is its result, as the call itself would have returned it."""

    result: Any = None
    """What the step gets. JSON."""

    downstream_id: str = ""
    """The other side's id of what was made; by default taken from the result, where the tool names the field."""


@dataclass(frozen=True)
class DidNotHappen:
    """It certainly did not happen, and may be sent again.

    Believed only once nobody can be sending it any more; until then the probe is asked again.
    """

    evidence: str = ""
    """How that is known, for the people who read it later."""


@dataclass(frozen=True)
class Unknown:
    """The other side does not know either; the probe is asked again later, and people may settle it."""

    why: str = ""
    """For the people who settle it."""


type ProbeAnswer = Happened | DidNotHappen | Unknown
