"""`manage.py api_description`: the OpenAPI document on standard output, as the committed copy holds it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from durableops.api.app import openapi_text


class Command(BaseCommand):
    help = "Print the OpenAPI description of the JSON API."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(openapi_text())
