"""The Django app of the machine: on start it finds the authors' workflows."""

from __future__ import annotations

from django.apps import AppConfig


class DurableOpsConfig(AppConfig):
    name = "durableops"
    verbose_name = "durableops"

    def ready(self) -> None:
        import durableops.checks  # noqa: F401  # registers the system checks
        from durableops.engine.discover import discover

        discover()
