"""What the demo was asked for, and the environment its processes share."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from examples.batch_import.source import Choices
from examples.batch_import.workflows import OUTPUT_VARIABLE
from examples.desk import ADDRESS_VARIABLE
from examples.ledger import ADDRESS_VARIABLE as LEDGER_VARIABLE

CHECKOUT = Path(__file__).resolve().parents[2]
AIRPORTS = CHECKOUT / "examples" / "batch_import" / "data" / "airports.csv"
APPS = ("examples.batch_import", "examples.ten_step", "examples.bookkeeping")
KEPT_FOLDERS = 5


@dataclass(frozen=True, kw_only=True)
class Options:
    """One demo."""

    once: bool
    """Give the approval and exit, instead of leaving both to the person."""
    csv: Path
    choices: Choices
    home: Path
    """Where demos keep their folders, and the lock that lets one play at a time."""
    folder: Path
    """This demo's logs, the desk's data and the rejects."""

    @property
    def output(self) -> Path:
        """Where the runs keep their files, each in a folder of its own."""
        return self.folder / "output"


def read_options(environ: Mapping[str, str]) -> Options:
    """ONCE and CSV, as `make demo` passes them on; DEMO_FOLDER is for tests."""
    home = Path(environ.get("DEMO_FOLDER") or CHECKOUT / ".durableops" / "demo")
    given = environ.get("CSV", "")
    # The airports without a city are there to have something to reject; of your own file nothing is demanded.
    choices = Choices() if given else Choices(required=("city",), missing=("NA",))
    return Options(
        once=environ.get("ONCE", "") not in ("", "0"),
        csv=Path(given).expanduser().absolute() if given else AIRPORTS,
        choices=choices,
        home=home,
        folder=home / time.strftime("%Y%m%d-%H%M%S", time.gmtime()),
    )


def make_folder(folder: Path) -> None:
    """Make this demo's folder and drop the oldest ones."""
    (folder / "logs").mkdir(parents=True)
    for old in sorted(path for path in folder.parent.iterdir() if path.is_dir())[:-KEPT_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)


def set_environment(folder: Path) -> None:
    """Say to this process, and so to all it starts, where things are; what is set already stays."""
    os.environ.setdefault("DURABLEOPS_ENV", "development")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    os.environ.setdefault("DURABLEOPS_LOG_LEVEL", "WARNING")
    apps = [app for app in os.environ.get("DURABLEOPS_APPS", "").split(",") if app]
    os.environ["DURABLEOPS_APPS"] = ",".join(dict.fromkeys([*apps, *APPS]))
    os.environ[OUTPUT_VARIABLE] = str(folder / "output")


def set_addresses(*, desk: str, ledger: str) -> None:
    """Say where the ticket desk and the ledger are."""
    os.environ[ADDRESS_VARIABLE] = desk
    os.environ[LEDGER_VARIABLE] = ledger
