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
MOST_LISTED = 1000
MOST_DIGITS = 18
"""Of a number that the database can hold."""
_EMPTY = "--{} is empty; it stands in the audit log, so say it."


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
    def actor(self) -> str:
        """Who. Raises CommandError for what cannot stand in the audit."""
        actor: str = self.options["actor"].strip()
        if not actor:
            raise CommandError(_EMPTY.format("actor"))
        if not actor.isprintable() or len(actor) > LONGEST_ACTOR:
            raise CommandError(f"--actor is no name: give one line of at most {LONGEST_ACTOR} characters.")
        return actor

    @property
    def said(self) -> dict[str, str]:
        """Who, and why. Raises CommandError for what cannot stand in the audit."""
        reason = (self.options["reason"] or "").strip()
        if not reason:
            raise CommandError(_EMPTY.format("reason"))
        return {"actor": self.actor, "reason": reason}

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

    @property
    def limit(self) -> int:
        """How many rows are listed."""
        limit: int = self.options["limit"]
        if not 1 <= limit <= MOST_LISTED:
            raise CommandError(f"--limit is 1 to {MOST_LISTED}.")
        return limit

    def checkpoint(self) -> int:
        """At which checkpoint it is to begin."""
        seq: int | None = self.options["checkpoint"]
        if seq is None or not 0 <= seq < 2**31:
            raise CommandError(f"{self.verb!r} needs --checkpoint NUMBER; the run's page and its checkpoints show it.")
        return seq

    def nothing_named(self) -> None:
        if self.subject is not None:
            raise CommandError(f"{self.verb!r} is about everything; leave out {self.subject!r}.")


def listed(asked: Asked, name: str, rows: list[dict[str, Any]], lines: list[str], *, more: bool) -> Told:
    """A list: for people a line each, for scripts the rows under their name."""
    text = lines or [f"no {name}."]
    text += [f"there are more; --limit shows up to {MOST_LISTED}."] if more else []
    return Told(message="\n".join(text), facts={"verb": asked.verb, name: rows, "more": more})


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that can be asked for."""

    do: Callable[[Asked], Told]
    about: str
    """What is to be named, and what it does, for `--help`."""
    plan: Callable[[Asked], Told] | None = None
    """What it would do, where it may send something again."""
