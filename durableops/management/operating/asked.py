"""What somebody asked `manage.py operate` for: checked in one place, told in one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from durableops.engine import guard
from durableops.management.given import existing_tenant
from runs.models import Tenant

LONGEST_ACTOR = 200
MOST_DIGITS = 18
"""Of a number that the database can hold."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of it: facts for scripts, and text for people."""

    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One call of the command."""

    verb: str
    subject: str | None
    options: dict[str, Any]

    @property
    def tenant(self) -> Tenant:
        return existing_tenant(self.options["tenant"])

    @property
    def said(self) -> dict[str, str]:
        """Who, and why. Raises CommandError for what cannot stand in the audit."""
        actor, reason = self.options["actor"].strip(), (self.options["reason"] or "").strip()
        for name, text in {"actor": actor, "reason": reason}.items():
            if not text:
                raise CommandError(f"--{name} is empty; it stands in the audit log, so say it.")
        if not actor.isprintable() or len(actor) > LONGEST_ACTOR:
            raise CommandError(f"--actor is no name: give one line of at most {LONGEST_ACTOR} characters.")
        return {"actor": actor, "reason": reason}

    @property
    def wants_plan(self) -> bool:
        """Whether only what it would do is asked for."""
        return bool(self.options["plan"])

    @property
    def plan_hash(self) -> str | None:
        """The plan that was looked at; with `--yes` whatever it is by then."""
        given: str | None = self.options["plan_hash"]
        if self.options["yes"]:
            if given:
                raise CommandError("--yes takes whatever the plan is, --plan-hash one plan: give one of them.")
            return None
        return given or guard.UNSEEN

    def run_id(self) -> UUID:
        """The run it is about."""
        if self.subject is None:
            raise CommandError(f"{self.verb!r} needs the id of a run.")
        try:
            return UUID(self.subject)
        except ValueError:
            raise CommandError(
                f"{self.subject!r} is not the id of a run; `manage.py start` and the console show it."
            ) from None

    def number(self, what: str) -> int:
        """The number of the thing it is about: `what` says of what, and who shows it."""
        given = self.subject or ""
        if not given.isdecimal() or len(given) > MOST_DIGITS:
            raise CommandError(f"{self.verb!r} needs the number of {what}.")
        return int(given)

    def nothing_named(self) -> None:
        if self.subject is not None:
            raise CommandError(f"{self.verb!r} is about everything; leave out {self.subject!r}.")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that can be asked for."""

    do: Callable[[Asked], Told]
    about: str
    """What is to be named, and what it does, for `--help`."""
    plan: Callable[[Asked], Told] | None = None
    """What it would do, where it may send something again."""
