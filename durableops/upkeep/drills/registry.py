"""Which drills there are: classes marked with `@drill` in the `drills` modules of installed apps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from django.utils.module_loading import autodiscover_modules

from durableops.errors import DurableOpsError
from durableops.upkeep.drills.stage import Stage

BUNDLED_APPS = (
    "examples.ten_step",
    "examples.five_classes",
    "examples.company",
    "examples.keeping",
    "examples.every_clock",
    "examples.rolling",
    "examples.crowd",
)
"""Apps of this project that hold drills or what these need; the command adds them to those of its processes. Named,
never imported."""


class DrillNotFound(DurableOpsError):
    """There is no drill of that name."""

    code = "drill.not_found"
    http_status = 404


class Drill(ABC):
    """One drill. An instance plays once."""

    name: ClassVar[str]

    @abstractmethod
    def play(self, stage: Stage) -> None:
        """Do it. Raises DrillStopped when it cannot go on as told."""

    @abstractmethod
    def judge(self, stage: Stage) -> dict[str, Any]:
        """Check what the record says, also after a play that stopped, and return the figures of the report."""


_drills: dict[str, type[Drill]] = {}


def drill[D: type[Drill]](cls: D) -> D:
    """Make a drill known by its name."""
    _drills[cls.name] = cls
    return cls


def names() -> list[str]:
    """Every drill of the installed apps."""
    autodiscover_modules("drills")
    return sorted(_drills)


def get(name: str) -> type[Drill]:
    """The drill of that name. Raises DrillNotFound."""
    known = names()
    if name not in known:
        raise DrillNotFound(
            f"there is no drill {name!r}; there are: {', '.join(known) or 'none'}. "
            "A drill is found when its app is in DURABLEOPS_APPS."
        )
    return _drills[name]
