"""The batch import as a durable workflow: prepare, shard, execute, summarize, deliver."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field

from durableops import Fatal, Page, Retry, Run, State, step, workflow
from durableops.errors import InputRefused
from examples.batch_import import rejects
from examples.batch_import.layout import ID_AS_TITLE, WHOLE_ROW
from examples.batch_import.page import create_ticket, import_page
from examples.batch_import.reader import read_page
from examples.batch_import.shards import bounds_of, count_rows, shard_at
from examples.batch_import.source import Choices, Source, hash_of, open_source

OUTPUT_VARIABLE = "BATCH_IMPORT_OUTPUT"
MAX_SHARDS = 8
ROWS_WORTH_A_SHARD = 1000


class ImportState(State):
    """What the import was asked to do, and the few numbers that say how far it is."""

    source: str
    """Path of the CSV."""
    id_column: str = ""
    """Empty: found by its name. `*`: the whole row identifies itself."""
    title_column: str = ""
    """Empty: found by its name. `*`: the id stands in."""
    required: list[str] = Field(default=[], max_length=100)
    """Columns without which a row is rejected."""
    missing: list[str] = Field(default=[], max_length=100)
    """Texts that mean "nothing here", besides the empty one."""
    page_rows: int = Field(default=100, ge=1, le=5000)
    """Rows between two commits of the cursor."""

    sha256: str = ""
    rows: int = 0
    shards: list[tuple[int, int]] = Field(default=[], max_length=MAX_SHARDS)
    """Where each shard begins: byte position and line."""
    imported: int = 0
    rejected: int = 0
    duplicates: int = 0

    def check_start(self) -> None:
        """A file that cannot be imported is refused before there is a run."""
        find_source(self)

    """Those among the rejected whose content an earlier row had."""


@workflow(name="batch-import", version=1, state=ImportState, deadline=timedelta(days=7))
class BatchImport:
    """One ticket for each row of a CSV, then a person's approval of the delivery."""

    @step(timeout=1800)
    def prepare(run: Run) -> dict[str, Any]:
        """Look at the file, settle what its columns mean, count its rows."""
        state: ImportState = run.state
        source = opened(state)
        columns, layout = source.layout.columns, source.layout
        # Settled here once: a later version of the guess must not change a run that has begun.
        state.id_column = WHOLE_ROW if layout.id_column is None else columns[layout.id_column]
        state.title_column = ID_AS_TITLE if layout.title_column is None else columns[layout.title_column]
        state.sha256 = hash_of(source.path)
        state.rows = count_rows(source)
        run.log("file accepted", rows=state.rows, id_column=state.id_column, title_column=state.title_column)
        return {"rows": state.rows, "columns": list(columns), "sha256": state.sha256}

    @step(timeout=1800)
    def shard(run: Run) -> dict[str, Any]:
        """Cut the file into a few parts at row boundaries; pages never straddle them, so progress can name the part."""
        state: ImportState = run.state
        wanted = max(1, min(MAX_SHARDS, state.rows // ROWS_WORTH_A_SHARD))
        state.shards = bounds_of(unchanged(state), rows=state.rows, shards=wanted)
        return {"shards": len(state.shards)}

    @step(timeout=6 * 3600, retry=Retry(max_attempts=20, max_delay=60), tools=[create_ticket])
    def execute(run: Run) -> dict[str, Any]:
        """Page after page: tickets, rejects, numbers, cursor; the last three commit together."""
        state: ImportState = run.state
        source, folder = unchanged(state), output_folder(run)
        for rows in run.pages(page_reader(source, state), start=list(source.start)):
            outcome = import_page(run, source.layout, rows)
            rejects.write_page(folder, first_line=rows[0].line, rejects=outcome.rejects)
            state = run.state
            state.imported += outcome.imported
            state.rejected += len(outcome.rejects)
            state.duplicates += outcome.duplicates
            part = shard_at(state.shards, rows[0].line)
            run.progress(state.imported + state.rejected, state.rows, f"shard {part} of {len(state.shards)}")
        return {"imported": state.imported, "rejected": state.rejected}

    @step(timeout=600)
    def summarize(run: Run) -> dict[str, Any]:
        """Put the rejects together and say what was done."""
        state: ImportState = run.state
        path = rejects.merge(output_folder(run))
        run.artifact("rejects.csv", path, content_type="text/csv")
        run.log("import finished", rejects_file=str(path), imported=state.imported, rejected=state.rejected)
        return {**numbers(state), "rejects_file": str(path)}

    @step(timeout=600)
    def deliver(run: Run) -> dict[str, Any]:
        """Ask a person, for at most three days."""
        state: ImportState = run.state
        question = f"Deliver {state.imported} tickets? {state.rejected} of {state.rows} rows were rejected."
        facts = {"source": state.source, **numbers(state)}
        run.approval("delivery", question=question, facts=facts, timeout=timedelta(days=3), on_timeout="cancel")
        return {"delivered": state.imported}


def numbers(state: ImportState) -> dict[str, int]:
    """The counts people ask for."""
    return {
        "rows": state.rows,
        "imported": state.imported,
        "rejected": state.rejected,
        "duplicates": state.duplicates,
    }


def find_source(state: ImportState) -> Source:
    """Open the source file and read its header. Raises InputRefused with a sentence."""
    choices = Choices(
        id_column=state.id_column,
        title_column=state.title_column,
        required=tuple(state.required),
        missing=tuple(state.missing),
    )
    return open_source(Path(state.source), choices)


def opened(state: ImportState) -> Source:
    """The source file; raises Fatal if it cannot be imported any more, for trying again would not help."""
    try:
        return find_source(state)
    except InputRefused as refused:
        raise Fatal(refused.detail) from refused


def unchanged(state: ImportState) -> Source:
    """The source file, if it is still the one that was prepared: byte positions mean nothing in another."""
    source = opened(state)
    if hash_of(source.path) != state.sha256:
        raise Fatal(f"{source.path} has changed since the import began; start a new import of the new file.")
    return source


def page_reader(source: Source, state: ImportState) -> Callable[[list[int]], Page | None]:
    """What `run.pages` reads with; a page ends with its shard."""
    stops = [line for _, line in state.shards]

    def read(cursor: list[int]) -> Page | None:
        position = (cursor[0], cursor[1])
        return read_page(source.path, position, delimiter=source.delimiter, rows=state.page_rows, stops=stops)

    return read


def output_folder(run: Run) -> Path:
    """Where this run keeps its files."""
    return Path(os.environ.get(OUTPUT_VARIABLE, ".durableops/batch-import")) / run.id
