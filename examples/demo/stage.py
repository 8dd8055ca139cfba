"""Everything a demo runs on: one demo at a time, the desk, the ledger, upkeep, two workers, the console."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from django.core.management import get_commands

from durableops.upkeep.drills.checks import DrillStopped
from examples.demo.desk_client import DeskClient
from examples.demo.options import CHECKOUT, Options, set_addresses
from examples.demo.processes import Troupe
from examples.ledger_desk.client import LedgerClient

WORKERS = 2
CONSOLE_STARTS_WITHIN_SECONDS = 30.0


class StageError(Exception):
    """The demo cannot begin; the message says why and what to do."""


@dataclass(kw_only=True)
class Stage:
    """What is running."""

    troupe: Troupe
    desk: DeskClient
    ledger: LedgerClient
    console: str
    """Address of the console; empty if it was not started."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the checkout's demo lock. Two demos would share workers, and one worker knows one desk."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StageError("a demo is running in this checkout already; stop it with Ctrl-C first.") from None
        yield


@contextmanager
def set_stage(options: Options) -> Iterator[Stage]:
    """Start everything; stop it on the way out, however that is taken."""
    with ExitStack() as stack:
        troupe = Troupe(folder=CHECKOUT, logs=options.folder / "logs", environment=os.environ)
        stack.callback(troupe.dismiss)
        desk = DeskClient(_serve(troupe, "desk", "examples.ticket_desk", options.folder / "desk"))
        ledger = LedgerClient(_serve(troupe, "ledger", "examples.ledger_desk", options.folder / "ledger"))
        set_addresses(desk=desk.url, ledger=ledger.url)
        troupe.keep("upkeep", _manage("upkeep"))
        for number in range(1, WORKERS + 1):
            troupe.keep(f"worker-{number}", _manage("worker"))
        console = _start_console(troupe) if has_console(options) else ""
        yield Stage(troupe=troupe, desk=desk, ledger=ledger, console=console)


def has_console(options: Options) -> bool:
    """Nobody looks at a console that is gone in a minute, and an installation may do without one."""
    return not options.once and "web" in get_commands()


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, str(CHECKOUT / "manage.py"), *arguments]


def _serve(troupe: Troupe, name: str, module: str, data: Path) -> str:
    """Start a service that the runs call; returns its address."""
    command = [sys.executable, "-m", module, "--data", str(data), "--stop-at-end-of-input"]
    try:
        return str(troupe.start(name, command, answers=True).answer["url"])
    except DrillStopped as stopped:
        raise StageError(str(stopped)) from None


def _start_console(troupe: Troupe) -> str:
    os.environ["DURABLEOPS_DEMO"] = "1"  # it explains itself, and lets people kill workers
    address = f"127.0.0.1:{_free_port()}"
    member = troupe.keep("web", _manage("web", "--bind", address))
    url, deadline = f"http://{address}/", time.monotonic() + CONSOLE_STARTS_WITHIN_SECONDS
    while not _answers(f"{url}sign-in/"):
        if member.process.poll() is not None or time.monotonic() > deadline:
            raise StageError(f"the console did not start; see {troupe.logs / 'web.log'}.")
        time.sleep(0.1)
    return url


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
