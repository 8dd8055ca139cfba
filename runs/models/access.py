"""Tenants and who belongs to them. What a role may do is decided in one module of the console, not here."""

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

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="membership_user_tenant_unique"),
            models.CheckConstraint(condition=models.Q(role__in=sorted(Role.values)), name="membership_role_known"),
        ]
