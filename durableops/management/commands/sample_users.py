"""`manage.py sample_users`: one person for each role, with passwords nobody has seen, for demos."""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import DurableOpsError
from runs.models import Membership
from runs.models.access import Role

# Those who act on payloads see them; a viewer does not.
SIGHT = {Role.VIEWER: False, Role.OPERATOR: True, Role.REVIEWER: True, Role.ADMIN: True}


class Command(BaseCommand):
    help = "Make (or give new passwords to) a viewer, an operator, a reviewer and an admin of one tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError(
                "sample users are for development; in production make real ones (manage.py createsuperuser)."
            )
        try:
            people = make(options["tenant"])
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({"tenant": options["tenant"], "users": people}))
            return
        for person in people:
            self.stdout.write(f"{person['role']:<10} {person['username']:<24} {person['password']}")


@transaction.atomic
def make(tenant_slug: str) -> list[dict[str, str]]:
    """Make the sample users of a tenant and return their names and new passwords."""
    tenant = get_or_make_tenant(tenant_slug)
    people = []
    for role in Role:
        name = role.value if tenant_slug == "default" else f"{role.value}-{tenant_slug}"
        password = secrets.token_urlsafe(9)
        user, _ = User.objects.get_or_create(username=name)
        user.set_password(password)
        user.save()
        Membership.objects.update_or_create(
            user=user, tenant=tenant, defaults={"role": role.value, "sees_payloads": SIGHT[role]}
        )
        people.append({"role": role.value, "username": name, "password": password})
    return people
