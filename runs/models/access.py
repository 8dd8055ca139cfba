"""Tenants, who belongs to them, and the tokens of other systems. What a role or a scope may do is decided elsewhere."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Tenant(models.Model):
    """Whose runs these are; no query of one tenant ever returns rows of another."""

    id = models.AutoField(primary_key=True)
    slug = models.SlugField(max_length=100, unique=True)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.slug


class Role(models.TextChoices):
    VIEWER = "viewer"
    OPERATOR = "operator"
    REVIEWER = "reviewer"
    ADMIN = "admin"


class Membership(models.Model):
    """One person's role in one tenant."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role.choices)
    sees_payloads = models.BooleanField(default=False)
    reads_prompts = models.BooleanField(default=False, db_default=False)
    """Raw prompts and temporary files: a right that is given by name, and whose every use is in the audit."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="membership_user_tenant_unique"),
            models.CheckConstraint(condition=models.Q(role__in=sorted(Role.values)), name="membership_role_known"),
        ]


class ApiToken(models.Model):
    """What another system proves itself with, for one tenant. The secret was shown once; only its hash is here."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    """The public half: how a token is found, and named in lists and in the audit."""
    secret_hash = models.CharField(max_length=64)
    """SHA-256 in hex. No salt and no stretching: the secret is 256 random bits, not somebody's password."""
    scopes = models.JSONField()
    """A list of permissions, named as in durableops.access."""
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=200, default="", blank=True)
    last_used_at = models.DateTimeField(null=True)
    """Coarse: written at most once in some minutes, so that reading does not become writing."""

    class Meta:
        db_table = "runs_api_token"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(revoked_at=None, revoked_by="")
                | (models.Q(revoked_at__isnull=False) & ~models.Q(revoked_by="")),
                name="api_token_revoked_by_iff_revoked",
            ),
            models.CheckConstraint(
                condition=models.Q(secret_hash__regex=r"^[0-9a-f]{64}$"),  # noqa: S106 - the shape of a hash
                name="api_token_secret_is_hashed",
            ),
            # One living name in a tenant; a name may be used again once its token was revoked.
            models.UniqueConstraint(
                fields=["tenant", "name"], name="api_token_name_unique", condition=models.Q(revoked_at=None)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"
