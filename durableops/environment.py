"""Which environment the settings see: the process's own and, in a development checkout, what set-up wrote there.

`.durableops/env` marks a checkout as a development one, `.durableops/services.env` says where its embedded servers are.
The process's environment always wins, and in production neither file is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

FOLDER = ".durableops"
DEVELOPMENT_FILE = "env"
SERVICES_FILE = "services.env"


def complete(environ: Mapping[str, str], *, checkout: Path) -> dict[str, str]:
    """Return `environ` with the checkout's own values behind it. An empty value counts as not given."""
    given = {name: value for name, value in environ.items() if value != ""}
    if given.get("DURABLEOPS_ENV", "development") != "development":
        return given
    found = {**read_file(checkout / FOLDER / DEVELOPMENT_FILE), **given}
    if found.get("DURABLEOPS_ENV") != "development":
        return given
    services = read_file(checkout / FOLDER / SERVICES_FILE)
    # The owner's role belongs to the embedded database: it must never be used together with somebody else's.
    if found.get("DATABASE_URL", services.get("DATABASE_URL")) != services.get("DATABASE_URL"):
        services.pop("DATABASE_OWNER_URL", None)
    return {**services, **found}


def read_file(path: Path) -> dict[str, str]:
    """Read NAME=value lines, quoted as a shell would; a missing file is an empty one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    pairs = (word.partition("=") for word in shlex.split(text, comments=True))
    return {name: value for name, _, value in pairs}


def write_file(path: Path, values: Mapping[str, str]) -> None:
    """Write the lines `read_file` reads, so that no reader ever sees half of them."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()), encoding="utf-8")
    draft.replace(path)
