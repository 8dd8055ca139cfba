"""Where the data of each class lies: tables, which of their rows, what a row weighs, whether it goes or is emptied."""

from __future__ import annotations

from dataclasses import dataclass

ROW_BYTES = 60
"""What a row costs besides its texts, roughly: its head, its numbers, its places in indexes."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Some rows of one table. `t` stands for the table in every text."""

    data_class: str
    table: str
    where: str = "true"
    texts: tuple[str, ...] = ()
    """Columns whose stored size is counted."""
    key: str = "id"
    """What tells one row from another; `seq` and `number` do so only together with the run's id."""
    run: str = "t.run_id"
    """The run a row belongs to."""
    joins: str = ""
    empties: str = ""
    """What is assigned instead of removing the row."""
    covered_by: str = ""
    """Which other class a row belongs to, as SQL, where rows of such classes may be left when the run's row goes."""
    erasing: bool = False
    """Whether this is only done on request of those whom the data is about."""

    @property
    def weight(self) -> str:
        """What one row weighs, as SQL; sizes as they are stored, so that nothing is unpacked for it."""
        if self.table == "runs_artifact":
            return "t.size_bytes"
        texts = [f"coalesce(pg_column_size({name}), 0)" for name in self.texts]
        return " + ".join([*texts, *([] if self.empties else [str(ROW_BYTES)])]) or "0"


def _files(data_class: str) -> Target:
    return Target(
        data_class=data_class,
        table="runs_artifact",
        where=f"t.data_class = '{data_class}'",
    )


def _checkpoints(data_class: str, which: str) -> Target:
    return Target(
        data_class=data_class, table="runs_checkpoint", where=f"t.kind {which}", texts=("t.state", "t.output"),
        key="seq",
    )  # fmt: skip


_OF_EFFECT = " JOIN runs_effect e ON e.id = t.effect_id"
_OF_KIND = "CASE t.kind WHEN 'start' THEN 'input' WHEN 'finish' THEN 'deliverable' ELSE 'checkpoint' END"
_WHOLE: tuple[tuple[str, str, str, str], ...] = (
    # In an order in which nothing is left that another table names.
    ("runs_reservation", "id", "", ""),
    ("runs_budget", "id", "", ""),
    ("runs_outbox_message", "id", _OF_EFFECT, ""),
    ("runs_outbox_body", "effect_id", _OF_EFFECT, ""),
    ("runs_outbox_lane", "id", "", ""),
    ("runs_doubt", "id", "", ""),
    ("runs_compensation", "id", "", ""),
    ("runs_compensation_order", "id", "", ""),
    ("runs_artifact", "id", "", "t.data_class"),
    ("runs_prompt", "id", "", "'raw_prompt'"),
    ("runs_decision", "id", "", "'decision'"),
    ("runs_log_line", "id", "", "'event'"),
    ("runs_receipt", "id", "", "'event'"),
    ("runs_event", "id", "", "'event'"),
    ("runs_lineage", "number", "", "'checkpoint'"),
    ("runs_made_plan", "number", "", "'checkpoint'"),
    ("runs_review", "id", "", "'event'"),
    ("runs_checkpoint", "seq", "", _OF_KIND),
    ("runs_effect", "id", "", ""),
    ("runs_approval", "wait_id", "", ""),
    ("runs_wait", "id", "", ""),
    ("runs_summary", "run_id", "", ""),
)

TARGETS: tuple[Target, ...] = (
    _files("temp_file"),
    Target(data_class="raw_prompt", table="runs_prompt", texts=("t.sealed",)),
    _files("raw_prompt"),
    Target(
        data_class="effect_body", table="runs_effect", where="t.result IS NOT NULL", texts=("t.result",),
        empties="result = NULL",
    ),
    Target(
        data_class="effect_body", table="runs_outbox_body", where="t.body IS NOT NULL AND t.open_messages = 0",
        texts=("t.body",), key="effect_id", run="e.run_id", joins=_OF_EFFECT, empties="body = NULL",
    ),
    _files("effect_body"),
    Target(
        data_class="effect_summary", table="runs_effect",
        where="(t.request_summary <> '{}'::jsonb OR t.response_summary IS NOT NULL OR t.error_message <> '')",
        texts=("t.request_summary", "t.response_summary", "t.error_message"),
        empties="request_summary = '{}'::jsonb, response_summary = NULL, error_message = ''",
    ),
    Target(
        data_class="effect_summary", table="runs_outbox_message", where="t.error_message <> ''",
        texts=("t.error_message",), run="e.run_id", joins=_OF_EFFECT, empties="error_message = ''",
    ),
    Target(
        data_class="effect_summary", table="runs_effect", where="t.resource NOT IN ('', '(erased)')",
        texts=("t.resource", "t.author_key"), empties="resource = '(erased)', author_key = ''", erasing=True,
    ),
    Target(
        data_class="effect_summary", table="runs_run", key="id", run="t.id",
        where="(t.labels <> '{}'::jsonb OR t.error_message <> '' OR t.progress_note <> '' OR t.wake_detail <> ''"
        " OR t.cancel_reason <> '')",
        texts=("t.labels", "t.error_message", "t.progress_note", "t.wake_detail", "t.cancel_reason"),
        empties="labels = '{}'::jsonb, error_message = '', progress_note = '', wake_detail = '', cancel_reason = ''",
        erasing=True,
    ),
    Target(data_class="decision", table="runs_decision", texts=("t.name", "t.result")),
    _checkpoints("checkpoint", "NOT IN ('start', 'finish')"),
    Target(data_class="checkpoint", table="runs_lineage", texts=("t.functions", "t.moved", "t.reason"), key="number"),
    Target(data_class="checkpoint", table="runs_made_plan", texts=("t.steps", "t.plan", "t.why"), key="number"),
    _checkpoints("input", "= 'start'"),
    Target(
        data_class="input", table="runs_wait", where="(t.answer IS NOT NULL OR t.facts <> '' OR t.question <> '')",
        texts=("t.answer", "t.facts", "t.question"), empties="answer = NULL, facts = '', question = ''",
    ),
    _files("input"),
    _checkpoints("deliverable", "= 'finish'"),
    _files("deliverable"),
    Target(data_class="event", table="runs_event", texts=("t.data", "t.reason")),
    Target(data_class="event", table="runs_log_line", texts=("t.message", "t.fields")),
    Target(data_class="event", table="runs_receipt", texts=("t.detail",)),
    Target(data_class="event", table="runs_review", texts=("t.reason", "t.differences", "t.closed_why")),
    *(
        Target(
            data_class="effect_key", table=table, key=key, joins=joins, covered_by=covered_by,
            run="e.run_id" if joins else "t.run_id",
        )
        for table, key, joins, covered_by in _WHOLE
    ),
    Target(data_class="effect_key", table="runs_run", key="id", run="t.id"),
)  # fmt: skip
"""In the order in which they are worked on."""

OF_A_RUN = frozenset(target.table for target in TARGETS)
"""Every table that holds something of a run."""
