"""The rejects of a run on disk: one file per page while it runs, one file when it is done; never a line twice.

A page's file is replaced as a whole and named by the page's first line. A page that is entered again, even by a late
worker that does not know it lost the run, writes the same file with the same content.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from examples.batch_import.reader import Reject

COLUMNS = ("line", "id", "reason")


def write_page(folder: Path, *, first_line: int, rejects: Sequence[Reject]) -> None:
    """Keep the rejects of one page."""
    path = folder / "pages" / f"{first_line:012d}.csv"
    if not rejects:
        # An earlier try of this page may have seen a refusal that this one did not.
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as file:
        csv.writer(file).writerows((reject.line, reject.reference, reject.reason) for reject in rejects)


def merge(folder: Path) -> Path:
    """Put all pages together, in the order of the source, and return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "rejects.csv"
    with _replacing(target) as merged:
        csv.writer(merged).writerow(COLUMNS)
        for page in sorted((folder / "pages").glob("*.csv")):
            with page.open(encoding="utf-8", newline="") as file:
                shutil.copyfileobj(file, merged)
    return target


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """Write beside `path` and move it there once it is on the disk: nobody ever sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
