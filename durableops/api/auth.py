"""Whose rights a request of another system has: the token's, in its one tenant. The table of rights is `access`."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from ninja.security import HttpBearer

from durableops import tokens
from durableops.access import Permission
from durableops.errors import NotPermitted, RunNotFound
from runs.models import Tenant
from runs.querysets import RunQuerySet


@dataclass(frozen=True, kw_only=True)
class Client:
    """The holder of a token, for the length of one request."""

    tenant: Tenant
    actor: str
    """How this client is named in events and in the audit; a person's name never begins like this."""
    permissions: frozenset[str]

    @property
    def sees_payloads(self) -> bool:
        return Permission.PAYLOADS in self.permissions

    def runs(self) -> RunQuerySet:
        """Every run this client may see; the only way the API comes to a run."""
        found = self.tenant.runs.all()
        assert isinstance(found, RunQuerySet)
        return found


class Needs(HttpBearer):
    """What an address asks of a token. Every address has one; without it nobody comes in."""

    def __init__(self, permission: Permission) -> None:
        super().__init__()
        self.permission = permission

    def authenticate(self, request: HttpRequest, token: str) -> Client:
        found = tokens.recognise(token.strip())
        client = Client(
            tenant=found.tenant, actor=f"token {found.name} ({found.prefix})", permissions=frozenset(found.scopes)
        )
        if self.permission not in client.permissions:
            raise NotPermitted(
                f"token {found.name!r} lacks the scope {self.permission.value}. Nothing was changed.",
                needs=self.permission.value,
            )
        return client


def client_of(request: HttpRequest) -> Client:
    """Who asks; set by the framework from what `Needs` returned."""
    client = getattr(request, "auth", None)
    assert isinstance(client, Client)
    return client


def no_such_run(run_id: object) -> RunNotFound:
    """The same words for a run that never was and for one of another tenant."""
    return RunNotFound(f"there is no run {run_id} here.", run=str(run_id))
