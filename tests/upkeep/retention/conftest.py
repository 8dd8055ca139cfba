"""A cleaner in the test's process, and runs with something of every class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from durableops import failpoints
from durableops.engine.database import Database
from durableops.upkeep.retention.cleaner import LOCK_TIMEOUT, Cleaned, Cleaner
from runs.models import Artifact, Checkpoint, Decision, IdempotencyRecord, LogLine, Prompt, Receipt, Run, RunEvent, Wait
from tests.factories import make_artifact, make_checkpoint, make_effect, make_prompt, make_run, make_wait, now

LONG_AGO = timedelta(days=5000)


@pytest.fixture
def cleaning(transactional_db: None, media: str) -> Iterator[Database]:
    """The cleaner's own connection."""
    found = Database(name="test retention", options=LOCK_TIMEOUT.replace("2s", "300ms"))
    yield found
    found.close()
    failpoints.arm("")


@pytest.fixture
def clean(cleaning: Database) -> Callable[..., Cleaned]:
    """Clean everything that may go as of now, or of another moment."""

    def work(**options: Any) -> Cleaned:
        as_of = options.pop("as_of", None) or cleaning.fetch("SELECT clock_timestamp()")[0][0]
        return Cleaner(cleaning, by="tests", **options).clean(as_of)

    return work


def full_run(state: str = "succeeded", *, ago: timedelta = LONG_AGO, **over: Any) -> Run:
    """A finished run with at least one row of every class."""
    at = now() - ago
    run = make_run(
        state=state, finished_at=at, created_at=at - timedelta(hours=1), head_seq=over.pop("head_seq", 2),
        state_json='{"customer":"ann"}', **over,
    )  # fmt: skip
    make_checkpoint(run, seq=1, kind="page", state='{"n":1}', state_seq=1)
    make_checkpoint(run, seq=3, kind="finish", output='{"rows":3}', next_step="")
    Run.objects.filter(pk=run.pk).update(head_seq=3)
    make_effect(run, state="succeeded", result='{"id":"T-1"}', request_summary={"for": "ann"}, completed_at=at)
    make_wait(run, state="answered", answer='{"by":"ann"}', facts='{"n":1}', question="Go?")
    Decision.objects.create(run=run, step_id="first", name="kind", input_hash="i" * 64, result='"a"', fence=1)
    for event in ("start", "claim", "succeed"):
        RunEvent.objects.create(run=run, event=event, data={"n": 1})
    LogLine.objects.create(run=run, at=at, step_id="first", level="info", message="hello")
    Receipt.objects.create(run=run, number=1, cause="timer", step_id="first", fence=1)
    make_prompt(run)
    for data_class in ("temp_file", "raw_prompt", "effect_body", "input", "deliverable"):
        make_artifact(run, data_class=data_class)
    run.refresh_from_db()
    return run


def left_of(run: Run) -> dict[str, int]:
    """How much of each class a run still has."""
    checkpoints = Checkpoint.objects.filter(run=run)
    effects = IdempotencyRecord.objects.filter(run=run)
    files = {c: Artifact.objects.filter(run=run, data_class=c).count()
             for c in ("temp_file", "raw_prompt", "effect_body", "input", "deliverable")}  # fmt: skip
    return {
        "temp_file": files["temp_file"],
        "raw_prompt": Prompt.objects.filter(run=run).count() + files["raw_prompt"],
        "effect_body": effects.exclude(result=None).count() + files["effect_body"],
        "effect_summary": effects.exclude(request_summary={}).count(),
        "decision": Decision.objects.filter(run=run).count(),
        "checkpoint": checkpoints.filter(kind__in=["step", "page"]).count(),
        "input": checkpoints.filter(kind="start").count() + Wait.objects.filter(run=run).exclude(answer=None).count()
        + files["input"],
        "deliverable": checkpoints.filter(kind="finish").count() + files["deliverable"],
        "event": sum(model.objects.filter(run=run).count() for model in (RunEvent, LogLine, Receipt)),
        "effect_key": Run.objects.filter(pk=run.pk).count() + effects.count(),
    }  # fmt: skip


def classes_left(run: Run) -> set[str]:
    return {name for name, number in left_of(run).items() if number}
