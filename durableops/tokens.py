"""API tokens: made, listed, revoked and recognised. What a scope allows is `access`; the header is the API's business.

Every change writes its audit entry in the same transaction.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q

from durableops import clock
from durableops.access import SCOPES
from durableops.checkpoints.codec import check_key, hash_hex
from durableops.checkpoints.failures import safe_text
from durableops.errors import InputRefused, TokenNotFound, TokenRefused
from runs.models import ApiToken, AuditEntry, Tenant

LONGEST_LIFE = timedelta(days=366)
USE_NOTED_EVERY = timedelta(minutes=5)
MAX_NAME_BYTES = 100
NAME_UNIQUE = "api_token_name_unique"

_SHAPE = re.compile(r"dop_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A token that was just made."""

    token: ApiToken
    secret: str
    """The whole token as its holder sends it. It is stored nowhere: show it now or never."""


def issue(
    name: str, *, tenant: Tenant, scopes: Iterable[str], lifetime: timedelta, actor: str, reason: str = ""
) -> Issued:
    """Make a token for one tenant. Raises InputRefused for a name, scope or lifetime that cannot be."""
    check_key(name, what="token name", max_bytes=MAX_NAME_BYTES)
    granted = _checked_scopes(scopes)
    if not timedelta(0) < lifetime <= LONGEST_LIFE:
        raise InputRefused(f"a token that lives {lifetime} cannot be made: give at most {LONGEST_LIFE.days} days.")
    prefix = secrets.token_hex(6)
    secret = f"dop_{prefix}_{secrets.token_urlsafe(32)}"
    try:
        with transaction.atomic():
            token = ApiToken.objects.create(
                tenant=tenant, name=name, prefix=prefix, secret_hash=hash_hex(secret), scopes=granted,
                created_by=actor, expires_at=clock.now() + lifetime,
            )  # fmt: skip
            after = {"name": name, "scopes": granted, "expires_at": token.expires_at.isoformat()}
            _audit(token, "issue_token", actor=actor, reason=reason, after=after)
    except IntegrityError as error:
        if NAME_UNIQUE not in str(error):
            raise
        raise InputRefused(f"there is a token {name!r} of {tenant} already: revoke it, or choose a name.") from None
    token.refresh_from_db()
    return Issued(token=token, secret=secret)


def revoke(prefix: str, *, tenant: Tenant, actor: str, reason: str) -> ApiToken:
    """End a token at once; one that has ended already stays as it is. Raises TokenNotFound."""
    with transaction.atomic():
        token = ApiToken.objects.select_for_update().filter(tenant=tenant, prefix=prefix).first()
        if token is None:
            raise TokenNotFound(f"{tenant} has no token {safe_text(prefix, limit=40)!r}; `api_token list` names them.")
        if token.revoked_at is None:
            token.revoked_at, token.revoked_by = clock.now(), actor
            token.save(update_fields=["revoked_at", "revoked_by"])
            _audit(token, "revoke_token", actor=actor, reason=reason, after={"name": token.name, "revoked": True})
    return token


def recognise(secret: str) -> ApiToken:
    """The token behind what a client sent, its tenant with it. Raises TokenRefused; only its holder learns why."""
    shape = _SHAPE.fullmatch(secret)
    token = ApiToken.objects.select_related("tenant").filter(prefix=shape[1]).first() if shape else None
    if token is None or not hmac.compare_digest(token.secret_hash, hash_hex(secret)):
        raise TokenRefused("this token is not known here. Send one as 'Authorization: Bearer dop_…'.")
    if token.revoked_at is not None:
        raise TokenRefused(f"token {token.name!r} was revoked. Ask an admin of {token.tenant} for another.")
    now = clock.now()
    if token.expires_at <= now:
        ended = token.expires_at.isoformat(timespec="seconds")
        raise TokenRefused(f"token {token.name!r} expired at {ended}. Ask an admin of {token.tenant} for another.")
    if token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY:
        # Again in the WHERE: of many requests at once, one writes.
        stale = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    return token


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    known = [scope.value for scope in SCOPES]
    wanted = set(scopes)
    if unknown := sorted(wanted.difference(known)):
        raise InputRefused(f"{unknown[0]!r} is not a scope of tokens; there are: {', '.join(known)}.")
    if not wanted:
        raise InputRefused(f"a token without a scope could do nothing; give some of: {', '.join(known)}.")
    return [scope for scope in known if scope in wanted]


def _audit(token: ApiToken, verb: str, *, actor: str, reason: str, after: Mapping[str, object]) -> None:
    AuditEntry.objects.create(
        tenant_id=token.tenant_id, actor=actor, verb=verb, target_kind="api token", target_id=token.prefix,
        reason=safe_text(reason, limit=2000), after=dict(after),
    )  # fmt: skip
