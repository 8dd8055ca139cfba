"""The workflows of the drill's runs: short, so that a run whose facts were kept can show that it still goes on."""

from __future__ import annotations

from durableops import Run, State, step, workflow

PLAIN = "keeping"
REOPENABLE = "keeping-reopenable"
"""The same, with the right to reopen its runs for a long time."""
FIRST, SECOND = "first", "second"


class Kept(State):
    """What a step needs of the one before."""

    customer: str


def first(run: Run) -> str:
    """Nothing that anybody outside would see."""
    return str(run.state.customer)


def second(run: Run) -> str:
    """Goes on with what the checkpoint holds."""
    return str(run.state.customer)


for _name in (PLAIN, REOPENABLE):
    workflow(name=_name, version=1, state=Kept, max_recoveries=20)(
        type("Keeping", (), {FIRST: step(id=FIRST, timeout=60)(first), SECOND: step(id=SECOND, timeout=60)(second)})
    )
