"""Between the address of the Effects page and its SQL: what was asked for, and the links that keep it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.http import QueryDict

from runs.models.effect import EFFECT_STATES

FIELDS = ("tenant", "tool", "system", "state", "key", "request", "resource")
"""Qualifiers, as the address names them. `request` is the hash of the canonical request."""
LONGEST = 255


@dataclass(frozen=True, kw_only=True)
class EffectFilter:
    """The list as the address describes it."""

    tenant: str = ""
    tool: str = ""
    system: str = ""
    state: str = ""
    key: str = ""
    request: str = ""
    resource: str = ""
    before: int | None = None
    """Effects below this number: where the page begins. None is the newest."""

    @classmethod
    def read(cls, query: QueryDict) -> EffectFilter:
        """Read the query string. A state that does not exist is left out; text is cut to what a column holds."""
        given = {name: query.get(name, "").replace("\0", "").strip()[:LONGEST] for name in FIELDS}
        if given["state"] not in EFFECT_STATES:
            given["state"] = ""
        before = query.get("before", "")
        return cls(**given, before=int(before) if before.isdecimal() and len(before) < 19 else None)

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """What narrows it, by name."""
        return [(name, value) for name in FIELDS if (value := getattr(self, name))]

    @property
    def query(self) -> str:
        """The query string of this very page."""
        given: list[tuple[str, str]] = self.conditions
        return urlencode([*given, ("before", str(self.before))] if self.before is not None else given)

    def first_page(self) -> EffectFilter:
        return replace(self, before=None)

    def at(self, before: int) -> EffectFilter:
        return replace(self, before=before)

    def with_one(self, name: str, value: str) -> EffectFilter:
        """The first page with this condition set; with an empty value, without it."""
        return replace(self.first_page(), **{name: value})  # type: ignore[arg-type]  # a text field by its name

    def chips(self) -> list[tuple[str, str, str]]:
        """Each condition with the query string of the page without it."""
        return [(name, value, self.with_one(name, "").query) for name, value in self.conditions]
