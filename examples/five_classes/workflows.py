"""A workflow for each row of the table: its steps call the same tool, and differ in when they are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from durableops import Run, State, step, workflow
from examples.five_classes.cells import Cell, Row, rows
from examples.five_classes.tools import PATIENT, tool_of


class RowState(State):
    """How far it is."""

    done: int = 0
    """Calls that were answered; counted from committed state, so an interruption adds none."""


def _acts(cell: Cell) -> Callable[[Run], dict[str, Any]]:
    def act(run: Run) -> dict[str, Any]:
        tool = tool_of(cell.row)
        if cell.row.way == "one":
            run.call(tool, text=cell.effects[0])
        else:
            run.call_many(tool, [{"text": text} for text in cell.effects])
        if cell.then is not None:
            run.call(tool, text=cell.then)
        run.state.done += len(cell.asked)
        return {"done": run.state.done}

    return act


def _declare(row: Row) -> Any:
    tools = [tool_of(row)]
    steps = {
        cell.moment.value: step(id=cell.step, timeout=120, retry=PATIENT, tools=tools)(_acts(cell))
        for cell in row.cells
    }
    declare = workflow(name=row.workflow, version=1, state=RowState, deadline=timedelta(hours=1), max_recoveries=1000)
    return declare(type(f"Row_{row.safety}_{row.way}", (), steps))


WORKFLOWS = {row: _declare(row) for row in rows()}
