"""`manage.py api_token create|list|revoke`: tokens of other systems, from a script. What one is lives in `tokens`."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops import tokens
from durableops.access import SCOPES
from durableops.errors import DurableOpsError
from durableops.management.given import existing_tenant
from runs.models import ApiToken, Tenant

ACTOR = "command line"


class Command(BaseCommand):
    help = "Create, list or revoke tokens of the API. A token is shown once, when it is created."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make a token and show it")
        create.add_argument("name")
        create.add_argument(
            "--scope", action="append", required=True, choices=[scope.value for scope in SCOPES], help="may be repeated"
        )
        create.add_argument("--days", type=_days, default=90, help="how long it lives (default 90, at most 366)")
        listing = actions.add_parser("list", help="list a tenant's tokens, newest first")
        revoke = actions.add_parser("revoke", help="end a token at once")
        revoke.add_argument("prefix", help="the part after dop_, as `list` shows it")
        for action in (create, listing, revoke):
            action.add_argument("--tenant", default="default")
            action.add_argument("--json", action="store_true")
        for action in (create, revoke):
            action.add_argument("--reason", default="", help="kept in the audit")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = getattr(self, f"_{options['action']}")(existing_tenant(options["tenant"]), options)
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            json.dump(found, sys.stdout)
            self.stdout.write("")
            return
        for line in found["lines"] if "lines" in found else [_line(found)]:
            self.stdout.write(line)

    def _create(self, tenant: Tenant, options: dict[str, Any]) -> dict[str, Any]:
        issued = tokens.issue(
            options["name"], tenant=tenant, scopes=options["scope"], lifetime=timedelta(days=options["days"]),
            actor=ACTOR, reason=options["reason"],
        )  # fmt: skip
        return {**_shown(issued.token), "token": issued.secret}

    def _list(self, tenant: Tenant, options: dict[str, Any]) -> dict[str, Any]:
        found = [_shown(token) for token in ApiToken.objects.filter(tenant=tenant).order_by("-id")]
        if options["json"]:
            return {"tokens": found}
        return {"lines": [_line(each) for each in found] or [f"{tenant} has no tokens."]}

    def _revoke(self, tenant: Tenant, options: dict[str, Any]) -> dict[str, Any]:
        return _shown(tokens.revoke(options["prefix"], tenant=tenant, actor=ACTOR, reason=options["reason"]))


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days; give a whole one, such as 90")
    return int(text)


def _shown(token: ApiToken) -> dict[str, Any]:
    def moment(at: Any) -> str | None:
        return at.isoformat() if at else None

    return {
        "name": token.name,
        "prefix": token.prefix,
        "tenant": token.tenant.slug,
        "scopes": token.scopes,
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
        "revoked_at": moment(token.revoked_at),
        "last_used_at": moment(token.last_used_at),
    }


def _line(shown: dict[str, Any]) -> str:
    ended = f"revoked {shown['revoked_at']}" if shown["revoked_at"] else f"expires {shown['expires_at']}"
    known = f"{shown['prefix']}  {shown['name']}  {','.join(shown['scopes'])}  {ended}"
    return f"{known}\n{shown['token']}\nIt is not shown again." if "token" in shown else known
