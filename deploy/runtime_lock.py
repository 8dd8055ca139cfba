"""Print the part of requirements.lock that the application needs to run, with its hashes: no tools, no test servers.

The lock says below each package what it came with ("via"), the project's own requirements included; what runs is what
can be reached from these.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main() -> None:
    """Print the lines, in the order of the lock."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    print("\n".join(runtime((CHECKOUT / "requirements.lock").read_text(), project["dependencies"])))


def runtime(lock: str, dependencies: list[str]) -> list[str]:
    """The blocks of the lock that `dependencies` need. Raises SystemExit where the lock lacks one of them."""
    blocks = {_name(block): block for block in re.split(r"\n(?=\S)", lock.strip()) if "==" in block}
    via = {name: _parents(block) for name, block in blocks.items()}
    needed = {_name(line) for line in dependencies}
    if missing := sorted(needed - blocks.keys()):
        sys.exit(f"requirements.lock lacks {', '.join(missing)}; make it anew from pyproject.toml.")
    while more := {name for name, parents in via.items() if name not in needed and parents & needed}:
        needed |= more
    return [block for name, block in blocks.items() if name in needed]


def _name(text: str) -> str:
    found = _NAME.match(text)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _parents(block: str) -> set[str]:
    _, _, told = block.partition("# via")
    return {_name(word) for word in (line.strip(" #") for line in told.split("\n")) if word}


if __name__ == "__main__":
    main()
