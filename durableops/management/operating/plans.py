"""The guard's plans as text for a shell, and the refusal that shows one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FATES = {
    "again": "sent again with the old key",
    "anew": "sent again under another key: the other side may do it twice",
    "doubt": "in doubt: not sent, waits for a person",
    "given_up": "given up: the step is told so",
    "left": "without an outcome, stays listed",
    "pending": "a message on its way, delivered whatever becomes of the run",
    "read": "read again",
    "reused": "answered from the record, not sent again",
    "settled": "undone, or being undone, already",
    "shared": "answered from the tenant's record",
    "task": "undone by a person who follows instructions",
    "undo": "undone by a tool",
    "unsent": "never sent so far; sent when the step asks for it",
}


def as_text(plan: Mapping[str, Any]) -> str:
    """A plan as `Plan.as_json`, `Choices.as_json` or a bulk action keeps it."""
    lines = [_calls(line) for line in plan.get("calls", ())]
    lines += [f"  {number} × {kind} is waited for anew" for kind, number in sorted(plan.get("waits", {}).items())]
    lines += [f"  {number} {'run is' if number == 1 else 'runs are'} refused: {why}"
              for why, number in plan.get("cannot", {}).items()]  # fmt: skip
    for choice in plan.get("choices", ()):
        shown = f"  {choice['how']}: {' '.join(choice['means'])}"
        lines += [f"{shown} (not offered: {choice['why_not']})" if choice["why_not"] else shown]
    hashed = f"plan hash {plan['plan_hash']}" if plan.get("plan_hash") else "no plan hash: nothing depends on it"
    return "\n".join([f"{plan['verb']} would do:", *(lines or ["  nothing that was done before is met"]), hashed])


def _calls(line: Mapping[str, Any]) -> str:
    many = f"{line['calls']} {'call' if line['calls'] == 1 else 'calls'}"
    samples = f" ({', '.join(line['samples'])})" if line["samples"] else ""
    runs = f" in {line['runs']} runs" if line["runs"] > 1 else ""
    return f"  {many} of {line['tool']} [{line['safety']}]{samples}{runs}: {_FATES[line['category']]}"
