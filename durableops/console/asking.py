"""Questions to people as pages show them: what was noted about one, and what was decided. Deciding is the engine's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from durableops.authoring import forms
from durableops.engine import deciding
from durableops.masking import mask, mask_text
from runs.models import RunEvent, Wait

COMMENTS_SHOWN = 50
_INPUTS = {"date": "date", "datetime": "datetime-local"}


@dataclass(frozen=True, kw_only=True)
class Input:
    """One field of the form as the page draws it."""

    field: forms.Field
    value: str
    """What was typed, else the default."""
    wrong: bool = False

    @property
    def name(self) -> str:
        return f"in.{self.field.name}"

    @property
    def type(self) -> str:
        return _INPUTS.get(self.field.kind, "text")

    @property
    def is_number(self) -> bool:
        return self.field.kind in ("integer", "number", "decimal")

    @property
    def is_long(self) -> bool:
        return self.field.kind == "text" and self.field.longest > 200

    @property
    def limits(self) -> str:
        one = self.field
        told = [(one.at_least, "at least"), (one.more_than, "more than"), (one.at_most, "at most"),
                (one.less_than, "less than")]  # fmt: skip
        found = [f"{words} {limit:g}" for limit, words in told if limit is not None]
        return ", ".join([one.hint] * bool(one.hint) + found)


def inputs(fields: Sequence[Mapping[str, Any]], typed: Mapping[str, str] | None = None, wrong: str = "") -> list[Input]:
    """The fields of a form. `wrong` is the path of the one that was refused."""
    found = []
    for one in map(forms.field_of, fields):
        value = "" if one.default is None else str(one.default)
        if one.kind == "boolean":
            value = "on" if one.default else ""
        if typed is not None:
            value = typed.get(f"in.{one.name}", "")
        found.append(Input(field=one, value=value, wrong=wrong == f"/{one.name}"))
    return found


def comments(wait: Wait) -> list[RunEvent]:
    """What people noted about a question, oldest first."""
    noted = RunEvent.objects.filter(run_id=wait.run_id, event="comment", data__wait=wait.pk).order_by("-id")
    return list(noted[:COMMENTS_SHOWN])[::-1]


def told(wait: Wait, *, sight: bool) -> list[tuple[str, str]]:
    """What was decided: the choice, what was noted with it, and what was filled in for those who see payloads."""
    if wait.state != "answered" or wait.answer is None:
        return []
    found = json.loads(wait.answer)
    approval = deciding.terms_of(wait)
    labels = {one["name"]: one["label"] for one in deciding.choices_of(approval)}
    name = approval.choice or ("approve" if found.get("approved") else "refuse")
    lines = [("decision", labels.get(name, name))]
    if found.get("comment"):
        lines.append(("reason", mask_text(found["comment"])))
    if values := found.get("values"):
        shown = mask(values) if sight else dict.fromkeys(values, "hidden")
        lines += [(str(key), _plain(value)) for key, value in shown.items()]
    return lines


def _plain(value: Any) -> str:
    return {True: "yes", False: "no", None: "–"}[value] if isinstance(value, bool) or value is None else str(value)
