"""The timeline of a run as places on a drawing: who had the run when, long idle folded. Pure; templates draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from durableops.console.words import length, moment, seconds_between
from runs.states import TERMINAL

LEFT, RIGHT, ROW, TOP, FOLDED = 132.0, 884.0, 34.0, 28.0, 84.0
NARROWEST = 2.5
FOLD_SHARE = 0.12
"""Idle is folded when it takes more than this share of the whole."""
FOLD_SECONDS = 5.0
LOST = frozenset({"lose_worker", "kill_step", "give_up"})
CLOCKS = frozenset({"call_timeout", "step_timeout", "wait_timeout", "time_out", "run_deadline", "queue_wait", "budget"})


@dataclass(frozen=True, kw_only=True)
class Move:
    """A history row that moved the run."""

    at: datetime
    event: str
    to_state: str
    step_id: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A checkpoint: a step that was committed, or a page of one."""

    at: datetime
    step_id: str
    next_step: str
    page: bool = False


@dataclass(frozen=True, kw_only=True)
class Span:
    """The run in one state, for one step."""

    step_id: str
    kind: str
    """queued, running, lost, waiting or parked."""
    state: str
    start: datetime
    end: datetime
    open: bool = False

    @property
    def seconds(self) -> float:
        return seconds_between(self.start, self.end) or 0.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    x: float
    width: float
    kind: str
    state: str
    title: str
    tiny: bool = False
    """Narrower than can be seen, or put together from such."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    x: float
    y: float
    label: str
    number: int = 0


@dataclass(kw_only=True)
class Row:
    """One step: its bars and its figures, for the drawing and for the table beside it."""

    step_id: str
    y: float
    state: str = ""
    bars: list[Bar] = field(default_factory=list)
    clocks: list[Mark] = field(default_factory=list)
    queued: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    lost: int = 0
    timeouts: int = 0
    note: str = ""
    note_x: float = 0.0


@dataclass(kw_only=True)
class Drawing:
    rows: list[Row]
    ticks: list[Mark]
    folds: list[Bar]
    resumes: list[Mark]
    height: float
    total: float
    folded: float

    @property
    def bottom(self) -> float:
        return self.height - 28


def spans_of(moves: Sequence[Move], commits: Sequence[Commit], *, now: datetime) -> list[Span]:
    """The stretches between moves, running ones cut where a step was committed."""
    found: list[Span] = []
    ends = [*moves[1:], *([None] if moves else [])]
    for move, following in zip(moves, ends, strict=True):
        if move.to_state in TERMINAL or not move.to_state:
            continue
        end = following.at if following else now
        if move.to_state == "running":
            lost = following is not None and following.event in LOST
            found += _cut(move, end, commits, lost=lost, still=following is None)
        else:
            kind = {"queued": "queued", "waiting": "waiting"}.get(move.to_state, "parked")
            found.append(Span(step_id=move.step_id, kind=kind, state=move.to_state, start=move.at, end=end,
                              open=following is None))  # fmt: skip
    return found


def _cut(move: Move, end: datetime, commits: Sequence[Commit], *, lost: bool, still: bool) -> list[Span]:
    """One stretch in a worker's hand: a span for each step, and for what a lost worker had not committed."""
    inside = [commit for commit in commits if move.at < commit.at <= end]
    pieces: list[Span] = []
    start, step, saved = move.at, move.step_id, move.at
    for commit in inside:
        saved = max(saved, commit.at)
        if not commit.page:
            pieces.append(_ran(commit.step_id, start, saved))
            start, step = saved, commit.next_step
    if not step or (end <= start and pieces):
        return pieces
    if lost:
        committed = [_ran(step, start, saved)] if saved > start else []
        return [*pieces, *committed, Span(step_id=step, kind="lost", state="failed", start=saved, end=end)]
    state = "running" if still else "succeeded"
    return [*pieces, Span(step_id=step, kind="running", state=state, start=start, end=end, open=still)]


def _ran(step: str, start: datetime, end: datetime) -> Span:
    return Span(step_id=step, kind="running", state="succeeded", start=start, end=max(start, end))


class Scale:
    """Time to x, with long idle folded to a fixed width."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.start = min(span.start for span in spans)
        self.end = max(span.end for span in spans)
        total = max(0.001, (self.end - self.start).total_seconds())
        least = max(FOLD_SECONDS, total * FOLD_SHARE)
        idle = sorted((s for s in spans if s.kind in ("waiting", "parked", "queued") and s.seconds > least),
                      key=lambda span: span.start)  # fmt: skip
        self.folds = _apart(idle)
        folded = sum(fold.seconds for fold in self.folds)
        self.total, self.folded = total, folded
        room = RIGHT - LEFT - FOLDED * len(self.folds)
        self.per_second = max(40.0, room) / max(0.001, total - folded)

    def x(self, at: datetime) -> float:
        """Where an instant is."""
        at = min(max(at, self.start), self.end)
        x = LEFT + (at - self.start).total_seconds() * self.per_second
        for fold in self.folds:
            if at >= fold.end:
                x += FOLDED - fold.seconds * self.per_second
            elif at > fold.start:
                inside = (at - fold.start).total_seconds()
                x += inside / fold.seconds * FOLDED - inside * self.per_second
        return round(x, 1)


def _apart(idle: Sequence[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in idle:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept[:8]


def draw(
    steps: Sequence[str], spans: Sequence[Span], *, clocks: Sequence[tuple[datetime, str, str]] = (),
    resumes: Sequence[tuple[int, datetime, str]] = (), now: datetime,
) -> Drawing | None:  # fmt: skip
    """Lay a run's spans out. None for a run that has no history yet."""
    if not spans:
        return None
    scale = Scale(spans)
    order = list(dict.fromkeys([*steps, *(span.step_id for span in spans if span.step_id)]))
    rows = {step: Row(step_id=step, y=TOP + 8 + ROW * n) for n, step in enumerate(order)}
    for span in spans:
        if span.step_id in rows:
            _place(rows[span.step_id], span, scale)
    for at, step, label in clocks:
        if step in rows:
            _fired(rows[step], scale.x(at), label)
    for row in rows.values():
        _note(row)
    marks = [Mark(x=scale.x(at), y=0, label=label, number=number) for number, at, label in resumes]
    return Drawing(
        rows=list(rows.values()), ticks=_ticks(scale, now), folds=_folds(scale), resumes=_spread(marks),
        height=TOP + 8 + ROW * len(rows) + 34, total=scale.total, folded=scale.folded,
    )  # fmt: skip


def _place(row: Row, span: Span, scale: Scale) -> None:
    x, end = scale.x(span.start), scale.x(span.end)
    if span.kind in ("running", "lost"):
        row.running += span.seconds
        row.lost += span.kind == "lost"
        row.state = span.state
    elif span.kind == "queued":
        row.queued += span.seconds
    else:
        row.waiting += span.seconds
    title = f"{span.step_id}: {span.kind} {length(span.seconds)}, {moment(span.start)} to {moment(span.end)}"
    fresh = Bar(x=x, width=round(max(NARROWEST, end - x), 1), kind=span.kind, state=span.state, title=title,
                tiny=end - x < NARROWEST)  # fmt: skip
    last = row.bars[-1] if row.bars else None
    alike = last is not None and (last.kind, last.state) == (span.kind, span.state)
    # Thousands of slices stay a few rectangles: closer than a pixel is one, shown as the strongest of its kinds.
    if last and x - (last.x + last.width) < 1 and (alike or (last.tiny and fresh.tiny)):
        row.bars[-1] = _joined(last, fresh, end)
    else:
        row.bars.append(fresh)


def _fired(row: Row, x: float, label: str) -> None:
    """Mark a clock that fired; marks that would hide each other become one that counts them."""
    row.timeouts += 1
    if row.clocks and abs(x - row.clocks[-1].x) < 6:
        number = row.clocks[-1].number + 1
        row.clocks[-1] = Mark(x=row.clocks[-1].x, y=row.y, label=f"{number} timeouts, the last: {label}", number=number)
    else:
        row.clocks.append(Mark(x=x, y=row.y, label=label, number=1))


_STRENGTH = {"queued": 0, "waiting": 1, "parked": 1, "running": 2, "lost": 3}


def _joined(last: Bar, fresh: Bar, end: float) -> Bar:
    strong = max(last, fresh, key=lambda bar: _STRENGTH[bar.kind])
    step, _, rest = fresh.title.partition(":")
    return Bar(x=last.x, width=round(max(last.width, end - last.x), 1), kind=strong.kind, state=strong.state,
               title=f"{step}: several times, the last {rest.strip()}", tiny=last.tiny and fresh.tiny)  # fmt: skip


def _note(row: Row) -> None:
    if not row.bars:
        return
    end = max(bar.x + bar.width for bar in row.bars)
    row.note = length(row.running) if row.running else ""
    row.note_x = round(end + 8, 1)
    if row.note_x > RIGHT - 60:
        row.note = ""


def _ticks(scale: Scale, now: datetime) -> list[Mark]:
    """A few instants along the top, each told once, none where a fold's length stands."""
    marks: list[Mark] = []
    taken = [(scale.x(f.start) + scale.x(f.end)) / 2 for f in scale.folds]
    for n in range(7):
        x = LEFT + (RIGHT - LEFT) * n / 6
        text = moment(_instant(scale, x), now=now)
        label = text.split(", ")[-1] if marks else text
        free = x < RIGHT - 50 and all(not middle - 105 < x < middle + 45 for middle in taken)
        if free and (not marks or marks[-1].label != label):
            marks.append(Mark(x=round(x, 1), y=0, label=label))
    return marks


def _instant(scale: Scale, x: float) -> datetime:
    low, high = scale.start, scale.end
    for _ in range(40):
        middle = low + (high - low) / 2
        if scale.x(middle) < x:
            low = middle
        else:
            high = middle
    return high


def _folds(scale: Scale) -> list[Bar]:
    return [
        Bar(x=scale.x(fold.start), width=round(scale.x(fold.end) - scale.x(fold.start), 1), kind="fold", state="",
            title=f"{length(fold.seconds)} idle")
        for fold in scale.folds
    ]  # fmt: skip


def _spread(marks: list[Mark]) -> list[Mark]:
    """Numbers of resumes that would overlap are left out; the receipts list them all."""
    kept = marks[:1]
    for before, mark in pairwise(marks):
        if mark.x - kept[-1].x >= 18 or before is mark:
            kept.append(mark)
    return kept
