"""A registry of its own for each test, and modules written by a test as an author would write them."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from durableops.authoring import registry
from durableops.errors import DefinitionError

HEADER = """\
from __future__ import annotations
import datetime as dt
from datetime import timedelta
from typing import Any
from durableops import Budget, Page, Retry, State, migration, step, tool, workflow

class Empty(State): ...

"""


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


class Author:
    """Writes modules into a folder and imports them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def write(self, body: str, *, name: str = "my_workflows") -> ModuleType:
        """Import a module whose text is the usual imports and `body`."""
        path = self.folder / f"{name}.py"
        path.write_text(HEADER + textwrap.dedent(body))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        self.names.append(name)
        spec.loader.exec_module(module)
        return module

    def place(self, mark: str, *, name: str = "my_workflows") -> str:
        """`file:line` of the line that ends with the comment `# mark`."""
        path = self.folder / f"{name}.py"
        lines = path.read_text().splitlines()
        return f"{path}:{next(number for number, line in enumerate(lines, 1) if line.endswith(f'# {mark}'))}"

    def mistake(self, body: str) -> str:
        """The message with which importing a module, or start-up after it, is refused."""
        with pytest.raises(DefinitionError) as caught:
            self._start(body)
        return caught.value.detail

    def _start(self, body: str) -> None:
        self.write(body)
        registry.check()


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    """See Author."""
    writer = Author(tmp_path)
    yield writer
    for name in writer.names:
        sys.modules.pop(name, None)
