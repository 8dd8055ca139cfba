"""The whole demo as a newcomer runs it: real workers, a real desk, a SIGKILL in mid-call, a file full of mistakes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs.models import Doubt

CHECKOUT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.drill, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def play(process_environment: dict[str, str], clean_queue: Any, tmp_path: Path):
    def run(content: bytes) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "given.csv"
        path.write_bytes(content)
        environment = process_environment | {"ONCE": "1", "CSV": str(path), "DEMO_FOLDER": str(tmp_path / "demo")}
        done = subprocess.run(
            [sys.executable, "-m", "examples.demo"],
            env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        assert lines, done.stderr
        return done.returncode, json.loads(lines[-1]), done.stdout

    return run


def rejects_in(folder: Path) -> dict[int, str]:
    [path] = folder.glob("demo/*/output/*/rejects.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {int(row["line"]): row["reason"] for row in rows}
    assert len(found) == len(rows), "no line is rejected twice"
    return found


GOOD = 396
MESSY = {
    10: b"17,only two,fields,and more",
    20: b"short",
    30: b",no id,x",
    40: b"n0,row 0,c0",
    50: b"n1,another title,c1",
    60: b"bad\xff,not utf-8,x",
    70: b'n999,"a title\r\non two lines",x',
    80: b"",
    350: b"n2,row 2,c2",
    360: b"n3,row 3,another city",
}
"""Lines (the header is 1, the quoted line end of 70 shifts those behind it by one) that stand between good rows."""


def messy_file() -> bytes:
    lines: list[bytes] = [b"id,name,city"]
    good = iter(range(GOOD))
    for number in range(2, 2 + GOOD + len(MESSY)):
        if number in MESSY:
            lines.append(MESSY[number])
        else:
            n = next(good)
            lines.append(f"n{n},row {n},c{n}".encode())
    return b"\xef\xbb\xbf" + b"\r\n".join(lines)


def test_a_messy_file_is_imported_once_although_its_worker_is_killed_in_mid_call(play, tmp_path):
    status, report, told = play(messy_file())

    assert status == 0, told
    assert report["state"] == "succeeded"
    assert report["kills"] == 1
    assert report["resumes"] == 2  # the lost worker, the approval
    assert (report["rows"], report["imported"], report["rejected"]) == (GOOD + 9, GOOD + 1, 8)
    assert report["tickets"] == report["imported"]
    assert report["requests"] == report["tickets"] + 3  # two calls timed out, one of them was cut short again
    assert report["repeated_keys"] == 2
    assert (report["unexplained_repeats"], report["duplicate_tickets"]) == (0, 0)
    assert report["effects_avoided"] > 0
    doubt = Doubt.objects.select_related("run", "effect").get(pk=report["doubt"])
    assert (doubt.settled_at, doubt.run.state, str(doubt.run_id)) == (None, "in_doubt", report["doubtful_run"])
    assert (doubt.effect.resource, report["booked_twice"]) == ("invoice 2026-102 of October", 0)
    assert rejects_in(tmp_path) == {
        10: "4 fields; wanted 3",
        20: "1 fields; wanted 3",
        30: "no id",
        40: "duplicate of line 2",
        50: "line 3 has this id with other content",
        60: "not UTF-8",
        351: "duplicate of an earlier row",
        361: "an earlier row has this id with other content",
    }


@pytest.mark.parametrize("content", [b"", b"1,Alice\n2,Bob\n", b"\x00\x01\x02"])
def test_a_file_that_cannot_be_imported_ends_in_a_sentence_and_no_run(play, content):
    from runs.models import Run

    status, report, told = play(content)

    assert status == 2
    assert report["state"] == "refused"
    assert "given.csv" in report["error"]
    assert "Traceback" not in told
    assert not Run.objects.exists()


def test_a_file_with_a_header_alone_succeeds_with_nothing_to_do(play):
    status, report, _ = play(b"id,name\n")

    assert status == 0
    assert (report["state"], report["rows"], report["tickets"], report["kills"]) == ("succeeded", 0, 0, 0)
