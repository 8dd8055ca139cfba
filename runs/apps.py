"""The Django app that holds the record."""

from __future__ import annotations

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Durable runs"

    def ready(self) -> None:
        from django.db.models.signals import post_migrate

        from runs.grants import grant_to_application
        from runs.retention.install import install

        post_migrate.connect(grant_to_application, sender=self, dispatch_uid="runs.grants")
        post_migrate.connect(install, sender=self, dispatch_uid="runs.retention")
