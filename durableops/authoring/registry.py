"""The definitions this process knows, by name and version; finding the modules is the engine's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from durableops.authoring.calls import check_calls
from durableops.authoring.definitions import (
    MigrationDefinition,
    ToolDefinition,
    WorkflowDefinition,
)
from durableops.authoring.source import SourceRef
from durableops.errors import DefinitionError, WorkflowNotFound

type _Declared = WorkflowDefinition | ToolDefinition | MigrationDefinition


_stamps = itertools.count()


class Registry:
    """Filled while modules are imported, read-only afterwards."""

    def __init__(self) -> None:
        self._workflows: dict[tuple[str, int], WorkflowDefinition] = {}
        self._tools: dict[str, ToolDefinition] = {}
        self._migrations: dict[tuple[str, int, int], MigrationDefinition] = {}
        self._unchecked: list[WorkflowDefinition] = []
        self.stamp = next(_stamps)
        """Another one whenever something was declared, in any registry of the process."""

    def add_workflow(self, new: WorkflowDefinition) -> None:
        """Raises DefinitionError if the name and version are taken by another declaration."""
        old = self._workflows.get((new.name, new.version))
        if old is not None and not _same(old, new):
            raise _duplicate(f"workflow {new.name!r} version {new.version}", new.source, old.source)
        self._workflows[new.name, new.version] = new
        self.stamp = next(_stamps)
        self._unchecked.append(new)

    def add_tool(self, new: ToolDefinition) -> None:
        """Raises DefinitionError if the name is taken by another declaration."""
        old = self._tools.get(new.name)
        if old is not None and not _same(old, new):
            raise _duplicate(f"tool {new.name!r}", new.source, old.source)
        self._tools[new.name] = new

    def add_migration(self, new: MigrationDefinition) -> None:
        """Raises DefinitionError if that step between versions has a migration already."""
        key = (new.workflow, new.to_version, new.from_version)
        old = self._migrations.get(key)
        if old is not None and not _same(old, new):
            what = f"migration of {key[0]!r} from version {new.from_version} to {key[1]}"
            raise _duplicate(what, new.source, old.source)
        self._migrations[key] = new
        self.stamp = next(_stamps)

    def check(self) -> None:
        """Check what could not be checked before every module was imported.

        Called at start-up after discovery, and by every look-up. Raises DefinitionError.
        """
        while self._unchecked:
            check_calls(self._unchecked[-1])
            self._unchecked.pop()

    def workflow(self, name: str, version: int | None = None) -> WorkflowDefinition:
        """The workflow in that version, by default the newest. Raises WorkflowNotFound."""
        self.check()
        known = self.versions(name)
        wanted = (known[-1] if known else None) if version is None else version
        if wanted is None or wanted not in known:
            raise _not_found(name, version, known, self._names())
        return self._workflows[name, wanted]

    def workflows(self) -> tuple[WorkflowDefinition, ...]:
        """Every workflow, by name and version."""
        self.check()
        return tuple(self._workflows[key] for key in sorted(self._workflows))

    def versions(self, name: str) -> tuple[int, ...]:
        """The versions of one workflow, oldest first; empty if the name is unknown."""
        return tuple(sorted(version for known, version in self._workflows if known == name))

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Every tool, by name."""
        return tuple(self._tools[name] for name in sorted(self._tools))

    def tool(self, name: str) -> ToolDefinition | None:
        """The tool with this name, or None."""
        return self._tools.get(name)

    def migrations(self, name: str) -> tuple[MigrationDefinition, ...]:
        """The migrations of one workflow, oldest source version first."""
        keys = sorted(key for key in self._migrations if key[0] == name)
        return tuple(self._migrations[key] for key in sorted(keys, key=lambda key: key[2]))

    def chain(self, name: str, from_version: int, to_version: int) -> tuple[MigrationDefinition, ...]:
        """The fewest migrations that lead from one version to another, in order; empty when none do."""
        paths: list[tuple[MigrationDefinition, ...]] = [()]
        for path in paths:  # grows while we read it: a breadth-first walk
            at = path[-1].to_version if path else from_version
            if at == to_version:
                return path
            paths += [(*path, each) for each in self.migrations(name) if each.from_version == at]
        return ()

    def clear(self) -> None:
        """Forget everything; for tests."""
        self.__init__()  # type: ignore[misc]

    def _names(self) -> list[str]:
        return sorted({name for name, _version in self._workflows})


_current = Registry()


def current() -> Registry:
    """The registry that declarations go to and look-ups read."""
    return _current


@contextmanager
def isolated() -> Iterator[Registry]:
    """An empty registry for the length of a `with` block; for tests."""
    global _current
    outer, _current = _current, Registry()
    try:
        yield _current
    finally:
        _current = outer


def stamp() -> int:
    """Another number whenever what this process knows has changed."""
    return _current.stamp


def check() -> None:
    """See Registry.check."""
    _current.check()


def workflow(name: str, version: int | None = None) -> WorkflowDefinition:
    """See Registry.workflow."""
    return _current.workflow(name, version)


def workflows() -> tuple[WorkflowDefinition, ...]:
    """See Registry.workflows."""
    return _current.workflows()


def versions(name: str) -> tuple[int, ...]:
    """See Registry.versions."""
    return _current.versions(name)


def tools() -> tuple[ToolDefinition, ...]:
    """See Registry.tools."""
    return _current.tools()


def tool(name: str) -> ToolDefinition | None:
    """See Registry.tool."""
    return _current.tool(name)


def migrations(name: str) -> tuple[MigrationDefinition, ...]:
    """See Registry.migrations."""
    return _current.migrations(name)


def chain(name: str, from_version: int, to_version: int) -> tuple[MigrationDefinition, ...]:
    """See Registry.chain."""
    return _current.chain(name, from_version, to_version)


def clear() -> None:
    """See Registry.clear."""
    _current.clear()


def _same(old: _Declared, new: _Declared) -> bool:
    """True if the very same lines ran again: a reload, or an import retried after it failed."""
    thing = new.cls if isinstance(new, WorkflowDefinition) else new.function
    return old.source == new.source and "<locals>" not in thing.__qualname__


def _duplicate(what: str, new: SourceRef, old: SourceRef) -> DefinitionError:
    return DefinitionError(f"{new}: {what} is declared twice; the other is at {old}. Rename one of them.")


def _not_found(name: str, version: int | None, known: tuple[int, ...], names: list[str]) -> WorkflowNotFound:
    if known:
        have = ", ".join(str(number) for number in known)
        detail = f"workflow {name!r} has no version {version} here; it has {have}."
    else:
        have = ", ".join(names) or "none"
        detail = f"there is no workflow {name!r} here; there are: {have}."
    return WorkflowNotFound(f"{detail} Is its app in DURABLEOPS_APPS?", workflow=name, version=version)
