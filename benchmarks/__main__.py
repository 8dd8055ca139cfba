"""`python -m benchmarks` (`make bench`): ours and the peers' in one run, interleaved; a table, and JSON in a file."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import psycopg

from benchmarks import catalogue, peers, table
from benchmarks.scratch import CHECKOUT

OUTPUT = CHECKOUT / ".durableops" / "bench.json"
FIGURES = {
    "steps_per_second": ("steps_per_s", "steps/s"),
    "start_latency_p50": ("start_latency_ms_p50", "start p50 ms"),
    "start_latency_p95": ("p95", "p95 ms"),
    "commits_per_step": ("commits_per_step", "commits/step"),
    "worker_peak_memory": ("peak_rss_mb", "MB"),
}
"""Our figure: the peers' name for it, and the heading."""


def main(argv: list[str]) -> None:
    """Run everything asked for."""
    options = _options(argv)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")
    django.setup()
    report: dict[str, Any] = {"engine": [], "peers": {}, "trouble": []}
    for _ in range(options.rounds):
        report["engine"].append(catalogue.run("engine", runs=options.runs, samples=options.samples))
        _one_round_of_peers(report, options)
    report["others"] = [catalogue.run(name) for name in catalogue.names() if name != "engine" and not options.quick]
    report["ratios"] = _ratios(report)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1))
    print("\n".join(_lines(report)))
    print(f"\nwritten to {options.output}")


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Our benchmarks and the peers' in one run."
    )
    parser.add_argument("--rounds", type=int, default=3, help="ours and theirs take turns this often")
    parser.add_argument("--runs", type=int, default=400, help="runs of ours in a round")
    parser.add_argument("--samples", type=int, default=50, help="single starts that are timed in a round")
    parser.add_argument("--peers", nargs="*", default=[peer.name for peer in peers.PEERS], help="which peers")
    parser.add_argument("--quick", action="store_true", help="the engine and the peers only")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args(argv)


def _one_round_of_peers(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Each peer once; one that cannot run is named once and left out from then on."""
    try:
        scripts = peers.folder()
    except peers.PeersMissing as missing:
        _note(report, str(missing))
        return
    left_out = {trouble.partition(":")[0] for trouble in report["trouble"]}
    for peer in peers.PEERS:
        if peer.name not in options.peers or peer.name in left_out:
            continue
        try:
            found = peers.run(
                peer,
                scripts=scripts,
                environment=_peers_environment(),
                samples=0 if peer.name == "langgraph" else options.samples,
                share=options.runs / 400,
            )
            report["peers"].setdefault(peer.name, []).append(found)
        except peers.PeersMissing as missing:
            _note(report, f"{peer.name}: {missing}")


def _note(report: dict[str, Any], trouble: str) -> None:
    if trouble not in report["trouble"]:
        report["trouble"].append(trouble)
        print(f"bench: {trouble}", file=sys.stderr)


def _peers_environment() -> dict[str, str]:
    """Their scripts make databases of their own on the same server, as a role that may."""
    from django.conf import settings

    url = settings.DATABASE_OWNER_URL or settings.DATABASE_URL
    server = urlsplit(url)._replace(path="/postgres").geturl()
    with psycopg.connect(server) as connection:
        row = connection.execute("SELECT current_setting('data_directory', true)").fetchone()
    data = os.environ.get("BENCH_PGDATA") or (row[0] if row else "") or ""
    readable = data if data and os.access(Path(data) / "pg_wal", os.R_OK | os.X_OK) else ""
    return {"BENCH_DATABASE_URL": server, "BENCH_PGDATA": readable, "BENCH_REDIS_URL": settings.REDIS_URL}


def _ratios(report: dict[str, Any]) -> dict[str, float]:
    """Our steps per second against each peer's right after: the median of the rounds, since machines are noisy."""
    ours = [found["figures"]["steps_per_second"]["value"] for found in report["engine"]]
    return {
        name: round(statistics.median(a / found["steps_per_s"] for a, found in zip(ours, seen, strict=False)), 2)
        for name, seen in report["peers"].items()
    }


def _lines(report: dict[str, Any]) -> list[str]:
    rows = [["", *(heading for _, heading in FIGURES.values()), "ours is times as fast"]]
    ours = [{name: found["figures"][name]["value"] for name in FIGURES} for found in report["engine"]]
    rows.append(["durableops", *(_median([found[name] for found in ours]) for name in FIGURES), ""])
    for name, seen in report["peers"].items():
        theirs = (_median([found.get(key) for found in seen]) for key, _ in FIGURES.values())
        rows.append([name, *theirs, f"{report['ratios'][name]:g}"])
    lines = [f"medians of {len(report['engine'])} rounds, ours and theirs in turn", *table.columns(rows), ""]
    lines += [table.of_result(found) + "\n" for found in [report["engine"][-1], *report["others"]]]
    lines += [f"{'met   ' if ratio >= 1 else 'MISSED'}  at least as many steps/s as {name}: {ratio:g} times as many"
              for name, ratio in report["ratios"].items()]  # fmt: skip
    return lines + [f"not measured: {trouble}" for trouble in report["trouble"]]


def _median(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):,.6g}" if known else "–"


if __name__ == "__main__":
    main(sys.argv[1:])
