"""The demo's words: lines with the time since it began, a progress line that is rewritten, and the summary."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TextIO

from examples.demo.account import Account

BAR = 30
LINES_WITHOUT_A_TERMINAL = 10
"""A terminal sees a moving bar; a log sees about this many lines instead."""


class ReceiptLike(Protocol):
    """What is told of a resume."""

    number: int
    cause: str
    detail: str
    step_id: str
    reused_effects: int
    repeated_effects: int

    @property
    def recovery_seconds(self) -> float | None:
        """From the last sign of life to the next worker."""


class Narrator:
    """Tells the story to a person, and its end to a script."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._began = time.monotonic()
        self._bar_shown = ""
        self._tenth_told = 0

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """One line of the story."""
        self._clear_bar()
        self._write(f"[{self.seconds:6.1f} s] {text}\n")

    def plain(self, text: str) -> None:
        """Lines without a time."""
        self._clear_bar()
        self._write(f"{text}\n")

    def progress(self, done: int, total: int, note: str) -> None:
        """How far the import is."""
        if not total:
            return
        if self._out.isatty():
            filled = BAR * done // total
            bar = f"  [{'#' * filled}{'.' * (BAR - filled)}] {done:,} of {total:,} rows  {note}"
            if bar != self._bar_shown:
                self._write(f"\r{bar:<{len(self._bar_shown)}}")
                self._bar_shown = bar
        elif (tenth := LINES_WITHOUT_A_TERMINAL * done // total) > self._tenth_told:
            self._tenth_told = tenth
            self.tell(f"{done:,} of {total:,} rows  ({note})")

    def last_line(self, report: dict[str, Any]) -> None:
        """The report as one JSON object."""
        self._clear_bar()
        self._write(json.dumps(report) + "\n")

    def _clear_bar(self) -> None:
        if self._bar_shown:
            self._write(f"\r{' ' * len(self._bar_shown)}\r")
            self._bar_shown = ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def summary(
    state: dict[str, Any], *, receipts: Iterable[ReceiptLike], avoided: int, account: Account, rejects: Path
) -> str:
    """What was imported, what was rejected, each resume and its reason, and what the two logs say to each other."""
    where = f", with line and reason in {rejects}" if state["rejected"] else ""
    lines = [
        "",
        f"Imported   {state['imported']:,} of {state['rows']:,} rows from {state['source']}",
        f"Rejected   {_many(state['rejected'], 'row')}, {state['duplicates']:,} of them repeated an earlier row{where}",
        "Resumes",
        *(f"  {receipt.number}. {_resume(receipt)}" for receipt in receipts),
        f"Calls      {avoided:,} answered from the record instead of being made again",
        f"The desk   saw {account.requests:,} requests and holds {account.tickets:,} tickets",
        *(f"  {_many(count, 'repeat')} after: {cause}" for cause, count in sorted(account.explained.items())),
        *(f"  PROBLEM: {text}" for text in problems(account)),
    ]
    if account.is_clean:
        lines.append("  every repeat has its reason, no ticket is there twice, none is missing")
    return "\n".join(lines)


def problems(account: Account) -> list[str]:
    """What the comparison found wrong, in words."""
    found = [
        (len(account.unexplained_repeats), "keys were sent more often than our records explain"),
        (account.duplicate_tickets, "tickets are there twice"),
        (len(account.unknown_keys), "keys reached the desk without an intent on record"),
        (len(account.missing_tickets), "recorded results have no ticket at the desk"),
    ]
    return [f"{count} {what}" for count, what in found if count]


def _resume(receipt: ReceiptLike) -> str:
    text = f"{receipt.cause}, step {receipt.step_id}"
    if receipt.detail:
        text += f": {receipt.detail}"
    if receipt.recovery_seconds is not None:
        text += f"; back in a worker's hand after {receipt.recovery_seconds:.2f} s"
    if receipt.reused_effects or receipt.repeated_effects:
        text += (
            f"; {_many(receipt.reused_effects, 'result')} reused,"
            f" {_many(receipt.repeated_effects, 'call')} sent again with old keys"
        )
    return text


def _many(count: int, what: str) -> str:
    """A count with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
