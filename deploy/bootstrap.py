"""Make `.venv` from requirements.lock with the best interpreter there is. Nothing of the project is imported here.

Read by whatever `python3` a machine has, so: the standard library only, and nothing newer than Python 3.8. Prints to
standard error; quick when nothing is to be done. Remedies are sentences, not tracebacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Tuple

OLDEST = (3, 12)
NEWEST = (3, 14)
CHECKOUT = Path(__file__).resolve().parent.parent
LOCK_FILE = CHECKOUT / "requirements.lock"
VENV = CHECKOUT / ".venv"
HOME = CHECKOUT / ".durableops"
# Where version managers keep interpreters; what they put on PATH may be a shim that refuses to run.
MANAGED = (
    (os.environ.get("PYENV_ROOT", "~/.pyenv"), "versions/3.*/bin/python3"),
    ("~/.asdf/installs/python", "3.*/bin/python3"),
    ("~/.local/share/mise/installs/python", "3.*/bin/python3"),
    ("~/.local/share/uv/python", "cpython-3.*/bin/python3"),
)
STAMP = VENV / "durableops-stamp"
# `uv` needs nothing of an interpreter; without it, an interpreter must be able to make an environment with pip.
QUESTION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
QUESTION_WITH_VENV = "import ensurepip, venv; " + QUESTION
QUESTION_WITH_PIP = "import pip; " + QUESTION


class Missing(Exception):
    """Something is not there; the message is one sentence with the remedy."""


class Interpreter(NamedTuple):
    """A Python that was tried and ran."""

    path: str
    version: Tuple[int, ...]


def main() -> None:
    """Bring `.venv` up to date with the lock file, one process at a time."""
    HOME.mkdir(mode=0o700, exist_ok=True)
    with (HOME / "setup.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not is_up_to_date():
            install()
    mark_as_development()


def is_up_to_date() -> bool:
    """Tell whether `.venv` was made here, from this lock file, and still runs."""
    try:
        return STAMP.read_text() == fingerprint() and (VENV / "bin" / "python").exists()
    except FileNotFoundError:
        return False


def fingerprint() -> str:
    """Name what the environment depends on: the lock, the place (scripts hold its path) and the machine."""
    lock = hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()
    return "\n".join([lock, str(VENV), platform.system(), platform.machine(), ""])


def install() -> None:
    """Install exactly what the lock file says: with `uv` where it works, else with pip."""
    uv = shutil.which("uv")
    if not (uv and installed_with_uv(uv)):
        install_with_pip()
    STAMP.write_text(fingerprint())


def installed_with_uv(uv: str) -> bool:
    """Try `uv`. It has network settings of its own, so that it may fail where pip does not."""
    os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    ours = tried(python_of_venv())
    if ours is None or not fits(ours):
        create(best_interpreter(uv), uv)
    say("installing what requirements.lock names, with uv")
    command = [uv, "pip", "install", "--quiet", "--python", python_of_venv(), "--require-hashes", "-r", str(LOCK_FILE)]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


def install_with_pip() -> None:
    """Install with the environment's own pip; an environment made by `uv` has none, and is made anew."""
    ours = tried(python_of_venv(), question=QUESTION_WITH_PIP)
    if ours is None or not fits(ours):
        create(best_interpreter(None), None)
    say("installing what requirements.lock names, with pip")
    command = [python_of_venv(), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
    run([*command, "--require-hashes", "-r", str(LOCK_FILE)], doing="installing the packages", remedy=NETWORK)


def python_of_venv() -> str:
    """Return the environment's interpreter, whether it is there or not."""
    return str(VENV / "bin" / "python")


NETWORK = "Check that this machine reaches a package index (the lines above say what failed), then run it again."


def create(interpreter: Optional[Interpreter], uv: Optional[str]) -> None:
    """Make an empty `.venv`; without an interpreter, `uv` fetches one."""
    shutil.rmtree(VENV, ignore_errors=True)
    wanted = interpreter.path if interpreter else "%d.%d" % NEWEST
    say("making .venv with Python " + (".".join(map(str, interpreter.version)) if interpreter else wanted))
    command = [uv, "venv", "--quiet", "--python"] if uv else []
    command += [wanted, str(VENV)] if uv else [wanted, "-m", "venv", str(VENV)]
    run(command, doing="making .venv", remedy="Check that the checkout can be written to and the disk is not full.")


def best_interpreter(uv: Optional[str]) -> Optional[Interpreter]:
    """Return the one named by PYTHON, else the newest that fits, or None if `uv` has to fetch one."""
    question = QUESTION if uv else QUESTION_WITH_VENV
    named = tried(shutil.which(os.environ.get("PYTHON", "")) or "", question)
    if named and fits(named):
        return named
    found = [one for one in (tried(path, question) for path in candidates()) if one and fits(one)]
    if found:
        return max(found, key=lambda one: one.version)
    if uv:
        return None
    raise Missing(
        "Python %d.%d or newer is needed and none was found: install one (for example `apt-get install python3.13 "
        "python3.13-venv`, or `pyenv install 3.13`), or install `uv`, which fetches its own." % OLDEST
    )


def candidates() -> Iterator[str]:
    """Yield where interpreters may be: running this, on PATH, in version managers' folders."""
    yield sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            yield str(Path(folder or ".", "python3.%d" % minor))
    for folder, pattern in MANAGED:
        try:
            yield from sorted(str(path) for path in Path(folder).expanduser().glob(pattern))
        except OSError:  # another user's, as PYENV_ROOT is after `su`: there is nothing in it for us
            continue


def tried(path: str, question: str = QUESTION) -> Optional[Interpreter]:
    """Run a candidate and see what it is: a version manager's shim may exist and fail."""
    if not path or not os.access(path, os.X_OK):
        return None
    try:
        said = subprocess.run(
            [path, "-c", question],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)$", said.strip())
    return Interpreter(path, tuple(int(number) for number in numbers.groups())) if numbers else None


def fits(interpreter: Interpreter) -> bool:
    """Tell whether the project runs on it and the lock file has packages for it."""
    return OLDEST <= interpreter.version[:2] <= NEWEST


def mark_as_development() -> None:
    """Say that this checkout is for development; settings read it, and an explicit DURABLEOPS_ENV wins."""
    marker = HOME / "env"
    if not marker.exists():
        marker.write_text("DURABLEOPS_ENV=development\n")


def run(command: List[str], doing: str, remedy: str) -> None:
    """Run a command, its output on our standard error."""
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise Missing("%s failed. %s" % (doing, remedy))


def say(words: str) -> None:
    """Tell the person who waits what takes the time."""
    print("set-up: " + words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Missing as problem:
        sys.exit("set-up: %s" % problem)
    except PermissionError as problem:
        sys.exit("set-up: %s may not be written by this user: run as its owner, or clone afresh." % problem.filename)
