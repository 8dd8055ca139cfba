"""The fenced write: everything the holder of a run says at one moment, as one statement and one commit.

It updates (or at least locks) the run's row under its fence and head, and hangs on that row whatever else is to be
written: the checkpoint, outcomes of effects, new intents, waits, events, log lines. Where the fence or the head no
longer fits, nothing of it is written. Statements are built once per shape and prepared by the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

import psycopg

from runs import posting
from runs.doubting import opened
from runs.numbered import numbered
from runs.parts import ANSWERED_BY_REPEAT, PARTS, RECORDSETS, SYSTEMS
from runs.states import TRANSITIONS, sources
from runs.transitions import sets_for


@dataclass(frozen=True, kw_only=True)
class MadePlanRow:
    """Which steps follow, made by the step whose checkpoint it is committed with."""

    steps: str
    """JSON text, as the next one."""
    plan: str
    plan_hash: str
    why: str


@dataclass(kw_only=True)
class CheckpointRow:
    """The position that is committed with the write."""

    kind: str
    step_id: str
    next_step: str
    state: str | None
    """JSON text of the state, or None when it equals the last one stored."""
    cursor: str | None = None
    """JSON text of the page cursor."""
    output: str | None = None
    output_hash: str = ""
    effects_through: int = 0
    entry: int = 0
    attempt: int = 0
    elapsed: float = 0.0
    """Seconds since the step or page was entered."""
    plan: MadePlanRow | None = None
    """The plan that the step made for what follows it."""
    after_pages: bool = True
    """Whether the run's row may hold the cursor of a page, which ends with the step."""


@dataclass(kw_only=True)
class FencedWrite:
    """What is to be written for one run. Empty lists cost nothing."""

    run_id: UUID
    fence: int
    seq: int
    worker_id: UUID
    transition: str | None = None
    """Event of `states.TRANSITIONS` with which the holder lets go of the run; None keeps it."""
    delay: float = 0.0
    """Seconds until a queued run is due."""
    checkpoint: CheckpointRow | None = None
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """Effects whose outcome is now known: id, state, result, downstream_id, error_class, error_message, reused."""
    doubts: list[dict[str, Any]] = field(default_factory=list)
    """Effects whose outcome nobody knows: id, cause, why."""
    leaves: str = ""
    """Why the holder leaves effects without an outcome behind, if it may do so with this write: with a checkpoint all
    of them, with a transition those that its target does not take up again."""
    keeps: list[int] = field(default_factory=list)
    """Effects that are not left behind: their calls go on."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """Effects recorded with their outcome (class `read`)."""
    queued: list[dict[str, Any]] = field(default_factory=list)
    """Effects that wait for their turn at a legacy system."""
    intents: list[dict[str, Any]] = field(default_factory=list)
    """Effects about to be sent."""
    repeats: list[int] = field(default_factory=list)
    """Ids of effects about to be sent once more with their old key."""
    unsent: list[int] = field(default_factory=list)
    """Those of `repeats` that have certainly not been sent so far: only their time on the wire begins anew."""
    repeat_seconds: float = 0.0
    """How long from now those repeats may be put on the wire."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Messages for the outbox; columns as in `posting.COLUMNS`."""
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[dict[str, Any]] = field(default_factory=list)
    """What the approval among `waits` asks for besides its question; columns as in `parts.RECORDSETS`."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """History rows, in order: event, reason, data; `moves` marks the one of the transition."""
    logs: list[dict[str, Any]] = field(default_factory=list)
    progress: tuple[int, int | None, str] | None = None
    reused: int = 0
    repeated: int = 0
    step_id: str = ""
    attempt: int = 0
    entry: int = 0
    failed_attempt: bool = False
    error: tuple[str, str, str] | None = None
    """Class, message, fingerprint of the error that ended or delayed the run."""
    wake: tuple[str, str] | None = None
    """Cause and detail that the next resume will name."""
    isolated: bool | None = None
    """Whether the run needs a process of its own from now on; None leaves it as it is."""
    resource: str | None = None
    """What the run uses from now on that all tenants share; its place under another one's cap is given back."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """The run as the write left it, and what the holder must know before it goes on."""

    head_seq: int
    state: str
    cancel_requested: bool
    paused: bool
    switched_off: bool
    deadline_left: float | None
    """Seconds until the run's deadline on the database's clock; None without one."""
    intents: dict[str, int]
    """Slot (hex) to id of the effects that were inserted; a slot that is missing was there, or may not be sent."""
    repeats: frozenset[int] = frozenset()
    """Ids of the effects that may be sent once more."""
    messages: dict[str, int] = field(default_factory=dict)
    """Slot (hex) to id of the effects whose messages went into the outbox; a slot that is missing was there."""

    @property
    def may_send(self) -> bool:
        """Whether nothing speaks against putting the intents of this write on the wire."""
        late = self.deadline_left is not None and self.deadline_left <= 0
        return not (self.cancel_requested or self.paused or self.switched_off or late)


@dataclass(frozen=True, kw_only=True)
class Attached:
    """Something that happens in the same statement, and only if the write does."""

    ctes: str
    """Named queries, separated by commas; they find the write's row as `run`."""
    answer: str
    """Name of the query whose row, if there is one, is returned with the write."""
    params: dict[str, Any]


SWITCHED_OFF = """EXISTS (
    SELECT 1 FROM runs_pause_switch s
    WHERE s.scope = 'all' OR (s.scope = 'tenant' AND s.tenant_id = {run}.tenant_id)
       OR (s.scope = 'workflow' AND s.workflow = {run}.workflow AND coalesce(s.tenant_id, {run}.tenant_id) =
       {run}.tenant_id)
)"""

# Looked at by the very statement that commits an intent: what is not allowed to be sent leaves no intent behind.
MAY_SEND = f"""NOT (run.cancel_requested OR run.paused OR coalesce(run.deadline_at <= now(), false)
    OR {SWITCHED_OFF.format(run="run")})"""

_RETURNED = (
    "r.id, r.tenant_id, r.workflow, r.plan_id, r.fence, r.lineage, r.head_seq, r.state_seq, r.state, r.step_id,"
    " r.resumes, r.cancel_requested, r.paused, r.deadline_at"
)


@lru_cache(maxsize=512)
def build(
    *,
    transition: str | None,
    parts: tuple[str, ...],
    sets: tuple[str, ...],
    cancellable: bool,
    cursor_guard: bool,
    attached: tuple[str, str] | None = None,
) -> str:
    """The statement for one shape of write. `attached` is the text of its queries and the name of the answering one."""
    head = _head(transition=transition, sets=sets, cancellable=cancellable, cursor_guard=cursor_guard)
    ctes = [f"run AS {head}"]
    for part in parts:
        if part in RECORDSETS:
            ctes.append(f"x_{part} AS (SELECT * FROM jsonb_to_recordset(%({part})s::jsonb) AS x({RECORDSETS[part]}))")
        if part == "messages":
            ctes.append(posting.CTES)
            continue
        text = PARTS[part].replace("{may_send}", MAY_SEND)
        if part == "checkpoint":
            covered = posting.EFFECTS_THROUGH if "messages" in parts else "%(cp_effects)s"
            text = text.replace("{effects_through}", covered)
        ctes.append(f"{part} AS ({text})")
        if part in ("doubts", "leaves") and transition is None:
            ctes.append(opened(part))
    if transition is not None:
        # The server performs the last one first: on the timeline an effect is in doubt before its run is.
        ctes += [opened(part) for part in parts if part in ("doubts", "leaves")]
    ctes += [ANSWERED_BY_REPEAT for part in parts if part == "repeats"]
    ctes += [SYSTEMS for part in parts if part == "queued"]
    made = next((part for part in ("intents", "queued") if part in parts), "")
    intents = f"(SELECT jsonb_object_agg(encode(i.slot, 'hex'), i.id) FROM {made} i)" if made else "NULL::jsonb"
    repeats = "(SELECT array_agg(p.id) FROM repeats p)" if "repeats" in parts else "NULL::bigint[]"
    posted = posting.POSTED if "messages" in parts else "NULL::jsonb"
    more, joined = "", ""
    if attached:
        ctes.append(attached[0])
        more, joined = f", {attached[1]}.*", f" LEFT JOIN {attached[1]} ON true"
    return (
        f"WITH {'RECURSIVE ' if attached else ''}{', '.join(ctes)}"
        " SELECT run.head_seq, run.state, run.cancel_requested, run.paused,"
        f" {SWITCHED_OFF.format(run='run')} AS switched_off,"
        f" extract(epoch FROM run.deadline_at - now())::float8 AS deadline_left, {intents} AS intents,"
        f" {repeats} AS repeats, {posted} AS posted{more} FROM run{joined}"
    )


def _head(*, transition: str | None, sets: tuple[str, ...], cancellable: bool, cursor_guard: bool) -> str:
    guard = "r.id = %(run)s AND r.fence = %(fence)s AND r.head_seq = %(seq)s AND r.state IN ({})".format(
        ", ".join(f"'{s}'" for s in (sources(transition) if transition else ["running"]))
    )
    if cursor_guard:
        # Numbers compare alike everywhere; other cursors are compared by the engine, whose order is by code point.
        guard += " AND (r.cursor IS NULL OR jsonb_typeof(r.cursor) <> 'number' OR r.cursor < %(cp_cursor)s::jsonb)"
    assignments = list(sets)
    if transition:
        moves = sets_for(TRANSITIONS[transition].target)
        assignments.insert(0, _unless_cancelled(moves) if cancellable else moves)
    if not assignments:
        return f"MATERIALIZED (SELECT {_RETURNED} FROM runs_run r WHERE {guard} FOR NO KEY UPDATE)"
    return f"(UPDATE runs_run r SET {', '.join(assignments)} WHERE {guard} RETURNING {_RETURNED})"


def _unless_cancelled(moves: str) -> str:
    """A cancel that was accepted wins over whatever the holder says after it."""
    instead = {
        "state": "'cancelled'",
        "due_at": "NULL",
        "deferred": "false",
        "finished_at": "now()",
        "queue_expires_at": "NULL",
    }
    found = []
    for assignment in moves.split(", "):
        column, _, value = assignment.partition(" = ")
        if column in instead and instead[column] != value:
            value = f"CASE WHEN r.cancel_requested THEN {instead[column]} ELSE {value} END"
        found.append(f"{column} = {value}")
    return ", ".join(found)


type Attachment = tuple[Any, ...]
"""The row that an attached query answered with."""


def execute(cursor: psycopg.Cursor[Any], write: FencedWrite) -> Written | None:
    """Write it where `cursor` is. Returns None when the fence, the head or the state no longer fits: then nothing was
    written.
    """
    numbered_cursor = psycopg.RawCursor(cursor.connection)
    send(numbered_cursor, write)
    return answer(numbered_cursor)[0]


def send(cursor: psycopg.RawCursor[Any], write: FencedWrite, attached: Attached | None = None) -> None:
    """Send the statement; what came of it is asked with `answer`. Apart, so that several can be sent at once."""
    if attached is None:
        text, params = compile_write(write)
    else:
        text, params = compile_write(write, attached=(attached.ctes, attached.answer))
        params |= attached.params
    query, names = numbered(text)
    cursor.execute(query, [params[name] for name in names])


def answer(cursor: psycopg.RawCursor[Any]) -> tuple[Written | None, Attachment | None]:
    """What a write that was sent came to: None, when it did not fit; and the attached row, if there is one."""
    row = cursor.fetchone()
    if row is None:
        return None, None
    attachment = row[_OWN_COLUMNS:]
    return _written(row), attachment if attachment and attachment[0] is not None else None


_OWN_COLUMNS = 9


def _written(row: tuple[Any, ...]) -> Written:
    return Written(
        head_seq=row[0],
        state=row[1],
        cancel_requested=row[2],
        paused=row[3],
        switched_off=row[4],
        deadline_left=row[5],
        intents=row[6] or {},
        repeats=frozenset(row[7] or ()),
        messages=row[8] or {},
    )


def compile_write(write: FencedWrite, *, attached: tuple[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """The statement's text and its parameters."""
    params: dict[str, Any] = {
        "run": write.run_id,
        "fence": write.fence,
        "seq": write.seq,
        "worker": write.worker_id,
        "step": write.step_id,
        "attempt": write.attempt,
        "entry": write.entry,
    }
    sets: list[str] = []
    parts: list[str] = []
    if write.checkpoint:
        _add_checkpoint(write.checkpoint, params, sets)
        parts.append("checkpoint")
        if write.checkpoint.plan:
            parts.append("made_plan")
    for name in RECORDSETS:
        rows = getattr(write, name)
        if rows:
            params[name] = json.dumps(rows)
            parts.append(name)
    if write.leaves:
        known = [row["id"] for row in write.outcomes if row.get("state")] + [row["id"] for row in write.doubts]
        params |= {"leaves": write.leaves, "leaves_known": known + write.keeps}
        params["leaves_all"] = write.checkpoint is not None
        parts.append("leaves")
    # A checkpoint covers the effects of the messages that are posted with it.
    parts.sort(key=lambda part: part != "messages")
    if write.artifacts:
        parts.append("named")
    if write.repeats:
        params |= {"repeats": write.repeats, "unsent": write.unsent, "repeat_seconds": write.repeat_seconds}
        parts.append("repeats")
    if write.reused or write.repeated:
        params |= {"reused": write.reused, "repeated": write.repeated}
        sets.append("effects_avoided = r.effects_avoided + %(reused)s")
        parts.append("receipt")
    _add_sets(write, params, sets)
    text = build(
        transition=write.transition,
        parts=tuple(parts),
        sets=tuple(sets),
        # Whatever the holder was about to say: an accepted cancel is what the person was promised.
        cancellable=write.transition not in (None, "stop"),
        cursor_guard=write.checkpoint is not None and write.checkpoint.kind == "page",
        attached=attached,
    )
    return text, params


def _add_checkpoint(row: CheckpointRow, params: dict[str, Any], sets: list[str]) -> None:
    params |= {
        "cp_kind": row.kind,
        "cp_step": row.step_id,
        "cp_next": row.next_step,
        "cp_cursor": row.cursor,
        "cp_state": row.state,
        "cp_output": row.output,
        "cp_output_hash": row.output_hash,
        "cp_effects": row.effects_through,
        "cp_entry": row.entry,
        "cp_attempt": row.attempt,
        "cp_elapsed": row.elapsed,
    }
    sets += ["head_seq = r.head_seq + 1", "recoveries = 0", "step_attempts = 0"]
    if row.kind == "page" or row.after_pages:
        sets.append("cursor = %(cp_cursor)s::jsonb")
    if row.state is not None:
        sets.append("state_seq = r.head_seq + 1, state_bytes = r.state_bytes + octet_length(%(cp_state)s::text)")
    if row.kind != "page":
        sets.append("step_entries = 1")
    if row.plan is not None:
        params |= {
            "mp_steps": row.plan.steps,
            "mp_plan": row.plan.plan,
            "mp_hash": row.plan.plan_hash,
            "mp_why": row.plan.why,
        }
        sets.append("own_plan = true")
    if row.kind == "step":
        sets.append("step_id = %(cp_next)s")


def _add_sets(write: FencedWrite, params: dict[str, Any], sets: list[str]) -> None:
    if write.progress:
        done, total, note = write.progress
        params |= {"p_done": done, "p_total": total, "p_note": note}
        sets.append("progress_done = %(p_done)s, progress_total = %(p_total)s, progress_note = %(p_note)s")
    if write.failed_attempt:
        sets.append("step_attempts = r.step_attempts + 1")
    if write.error:
        params |= {"e_class": write.error[0], "e_message": write.error[1], "e_print": write.error[2]}
        sets.append("error_class = %(e_class)s, error_message = %(e_message)s, error_fingerprint = %(e_print)s")
    if write.transition:
        params["delay"] = write.delay
    if write.isolated is not None:
        params["isolate"] = write.isolated
        sets.append("isolated = %(isolate)s")
    if write.resource is not None:
        params["resource"] = write.resource
        sets.append("resource = %(resource)s")
        if not write.transition:
            sets.append("resource_slot = NULL")
    if write.wake:
        params |= {"w_cause": write.wake[0], "w_detail": write.wake[1]}
        sets.append("wake_cause = %(w_cause)s, wake_detail = %(w_detail)s, woken_at = now(), lost_at = NULL")
