"""The peers: other engines' scripts, run as they are on the same server, each in an environment of its own.

The scripts stand outside this checkout (`BENCH_PEERS`, else `../shared/bench`); without them only ours is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scratch import CHECKOUT

VARIABLE = "BENCH_PEERS"
DEFAULT_FOLDER = CHECKOUT.parent / "shared" / "bench"
COMMON_PACKAGES = ("psycopg[binary]", "psutil")
PATIENCE_SECONDS = 600


class PeersMissing(Exception):
    """The scripts, or what one of them needs, cannot be had; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One engine in the configuration that is fair to it."""

    name: str
    script: str
    packages: tuple[str, ...]
    options: tuple[str, ...]
    runs: int
    """How many workflows or jobs make a run of some seconds."""


PEERS = (
    Peer(
        name="absurd",
        script="peer_absurd.py",
        packages=("absurd-sdk", "absurdctl"),
        options=("--variant", "tuned"),
        runs=300,
    ),
    Peer(
        name="dbos",
        script="peer_dbos.py",
        packages=("dbos",),
        options=("--mode", "queue", "--variant", "tuned", "--concurrency", "10"),
        runs=100,
    ),
    Peer(
        name="langgraph",
        script="peer_langgraph.py",
        packages=("langgraph", "langgraph-checkpoint-postgres", "psycopg-pool"),
        options=("--mode", "direct", "--variant", "sync"),
        runs=100,
    ),
    Peer(
        name="procrastinate",
        script="peer_procrastinate.py",
        packages=("procrastinate",),
        options=("--concurrency", "10"),
        runs=600,
    ),
    Peer(name="rq", script="peer_rq.py", packages=("rq",), options=("--variant", "simple"), runs=400),
)


def folder() -> Path:
    """Where the peers' scripts are. Raises PeersMissing."""
    found = Path(os.environ.get(VARIABLE) or DEFAULT_FOLDER)
    if not (found / "_common.py").is_file():
        raise PeersMissing(
            f"the peers' scripts are not in {found}: name their folder in {VARIABLE} to measure them too."
        )
    return found


def run(peer: Peer, *, scripts: Path, environment: dict[str, str], samples: int, share: float = 1.0) -> dict[str, Any]:
    """Run one peer's script and return the object it prints. Raises PeersMissing."""
    command = [str(interpreter(peer)), str(scripts / peer.script), *peer.options]
    command += ["--workflows", str(max(10, int(peer.runs * share))), "--latency-samples", str(samples)]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=scripts,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines() or ["it said nothing"]
        raise PeersMissing(f"{peer.name} did not run: {last[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def interpreter(peer: Peer) -> Path:
    """The interpreter of the peer's own environment, made at first use. Raises PeersMissing."""
    home = CHECKOUT / ".durableops" / "peers" / peer.name
    python, stamp = home / "bin" / "python", home / "packages"
    wanted = "\n".join((*COMMON_PACKAGES, *peer.packages))
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"bench: making an environment for {peer.name}", file=sys.stderr)
    venv.create(home, with_pip=True, clear=True)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *COMMON_PACKAGES, *peer.packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PeersMissing(f"the packages of {peer.name} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    stamp.write_text(wanted)
    return python
