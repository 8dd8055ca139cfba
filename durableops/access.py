"""Who may do what: the one table of permissions, for people's roles and for the scopes of API tokens.

Console and API both ask it. A scope of a token *is* a permission, so there is no second table to disagree with this
one. Whose rights a request has is found by its part (`console.access` for people, `api.auth` for tokens); what a run's
state allows is asked of the transition table.
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum

from runs.models.access import Role


class Permission(StrEnum):
    ANYBODY = "anybody"
    """Signed in or not: the sign-in page, the API's description."""
    SIGNED_IN = "signed_in"
    """Somebody, of whichever tenant; the page shows only what belongs to theirs."""
    VIEW = "runs:read"
    PAYLOADS = "payloads:read"
    """Inputs, results and facts; a right of its own, which no role brings along."""
    PROMPTS = "prompts:read"
    """Raw prompts and temporary files; apart from the sight of payloads, and no role brings it along either."""
    START = "runs:start"
    SEND = "events:send"
    OPERATE = "runs:operate"
    DECIDE = "approvals:decide"
    SETTLE = "effects:settle"
    """Say what became of an effect in doubt or of a message nobody took, and let a queue or a destination go on."""
    REVIEW = "reviews:decide"
    """How runs go on that today's code cannot safely read: migrate, pin, reject."""
    RETAIN = "retention:manage"
    """How long what is kept: rules, legal holds, erasures."""
    QUOTAS = "quotas:manage"
    """What a tenant may use: caps, rates, budgets."""
    ADMINISTER = "tenant:administer"
    """Members, tokens, and whatever changes many runs at once."""


_READS = frozenset({Permission.VIEW})
_OPERATES = _READS | {Permission.START, Permission.SEND, Permission.OPERATE, Permission.SETTLE}
_DECIDES = _READS | {Permission.DECIDE, Permission.SETTLE, Permission.REVIEW}

GRANTS: dict[str, frozenset[Permission]] = {
    Role.VIEWER: _READS,
    Role.OPERATOR: _OPERATES,
    Role.REVIEWER: _DECIDES,
    Role.ADMIN: _OPERATES | _DECIDES | {Permission.RETAIN, Permission.QUOTAS, Permission.ADMINISTER},
}
"""What each role brings. Payload sight is a column of the membership."""

SCOPES: tuple[Permission, ...] = (
    Permission.VIEW,
    Permission.PAYLOADS,
    Permission.PROMPTS,
    Permission.START,
    Permission.SEND,
    Permission.OPERATE,
    Permission.DECIDE,
    Permission.SETTLE,
    Permission.REVIEW,
    Permission.RETAIN,
    Permission.QUOTAS,
)
"""What a token may be given. Administration is for people, who can be asked."""

_DECIDING: dict[str, Permission] = {
    "operator": Permission.OPERATE,
    "reviewer": Permission.DECIDE,
    "admin": Permission.ADMINISTER,
}


def deciding_roles(permissions: Container[str]) -> frozenset[str]:
    """As which of the roles that an approval may ask for somebody with these permissions counts."""
    return frozenset(role for role, permission in _DECIDING.items() if permission in permissions)


READS: dict[str, Permission] = {
    "members": Permission.VIEW,
    "payloads": Permission.PAYLOADS,
    "prompts": Permission.PROMPTS,
}
"""What reading a file needs, by whose eyes it is for."""

VERBS: dict[str, Permission] = {
    "start": Permission.START,
    "send_event": Permission.SEND,
    "bring_file": Permission.SEND,
    "pause": Permission.OPERATE,
    "resume": Permission.OPERATE,
    "cancel": Permission.OPERATE,
    "retry": Permission.OPERATE,
    "recheck": Permission.OPERATE,
    "retry_from": Permission.OPERATE,
    "fork": Permission.OPERATE,
    "compensate": Permission.OPERATE,
    "decide_compensation": Permission.SETTLE,
    "extend": Permission.OPERATE,
    "add_budget": Permission.OPERATE,
    "approve": Permission.DECIDE,
    "refuse": Permission.DECIDE,
    "delegate": Permission.DECIDE,
    "escalate": Permission.DECIDE,
    "comment": Permission.DECIDE,
    "settle": Permission.SETTLE,
    "release_system": Permission.SETTLE,
    "claim_doubt": Permission.SETTLE,
    "unclaim_doubt": Permission.SETTLE,
    "probe_doubt": Permission.SETTLE,
    "pause_system": Permission.ADMINISTER,
    "resume_system": Permission.ADMINISTER,
    "move_call": Permission.OPERATE,
    "retry_message": Permission.SETTLE,
    "redeliver": Permission.SETTLE,
    "skip_message": Permission.SETTLE,
    "stop_destination": Permission.SETTLE,
    "let_go_on": Permission.SETTLE,
    "migrate": Permission.REVIEW,
    "revert": Permission.REVIEW,
    "pin": Permission.REVIEW,
    "unpin": Permission.REVIEW,
    "reject": Permission.REVIEW,
    "ask_second": Permission.REVIEW,
    "edit": Permission.REVIEW,
    "set_rule": Permission.RETAIN,
    "preview_retention": Permission.RETAIN,
    "place_hold": Permission.RETAIN,
    "lift_hold": Permission.RETAIN,
    "erase": Permission.RETAIN,
    "set_quota": Permission.QUOTAS,
    "add_tenant_budget": Permission.QUOTAS,
}
"""What each verb on runs needs, whoever asks: a page, the API."""
