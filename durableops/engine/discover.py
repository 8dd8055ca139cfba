"""Finding the authors' workflows: the `workflows` module of every installed app, as Django finds `admin`."""

from __future__ import annotations

from django.utils.module_loading import autodiscover_modules

from durableops.authoring import registry
from durableops.engine.compensation import undoing


def discover() -> None:
    """Import every `workflows` module, then check what all definitions together say. Raises DefinitionError."""
    undoing.install()
    autodiscover_modules("workflows")
    registry.check()
