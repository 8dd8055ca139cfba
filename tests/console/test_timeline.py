"""The drawing of a run: pure, bounded, honest about what was lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from durableops.console.timeline import FOLDED, LEFT, RIGHT, Commit, Move, draw, spans_of

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def move(seconds, event, to_state, step="a"):
    return Move(at=at(seconds), event=event, to_state=to_state, step_id=step)


def test_running_is_cut_where_steps_were_committed():
    moves = [move(0, "start", "queued"), move(1, "claim", "running"), move(9, "succeed", "succeeded", "b")]
    spans = spans_of(moves, [Commit(at=at(4), step_id="a", next_step="b")], now=at(9))
    assert [(s.step_id, s.kind, s.seconds) for s in spans] == [
        ("a", "queued", 1),
        ("a", "running", 3),
        ("b", "running", 5),
    ]


def test_only_what_was_not_committed_counts_as_lost():
    moves = [move(0, "claim", "running"), move(10, "lose_worker", "queued"), move(11, "claim", "running")]
    pages = [Commit(at=at(n), step_id="a", next_step="a", page=True) for n in (2, 4, 7)]
    spans = spans_of(moves, pages, now=at(12))
    assert [(s.kind, s.state, s.seconds) for s in spans] == [
        ("running", "succeeded", 7), ("lost", "failed", 3), ("queued", "queued", 1), ("running", "running", 1)
    ]  # fmt: skip


def test_long_idle_is_folded_to_a_fixed_width_and_its_length_is_written():
    moves = [move(0, "claim", "running"), move(10, "suspend", "waiting"), move(30 * 86400 + 10, "wake", "queued"),
             move(30 * 86400 + 11, "claim", "running")]  # fmt: skip
    drawing = draw(["a"], spans_of(moves, [], now=at(30 * 86400 + 21)), now=at(0))
    assert drawing is not None
    assert [(fold.width, fold.title) for fold in drawing.folds] == [(FOLDED, "30 d idle")]
    first, last = drawing.rows[0].bars[0], drawing.rows[0].bars[-1]
    assert abs(first.width - last.width) < 2
    assert round(last.x + last.width) == RIGHT


def test_thousands_of_slices_are_a_few_rectangles_inside_the_drawing():
    moves = []
    for n in range(1500):
        moves += [move(2 * n, "claim", "running"), move(2 * n + 1, "hand_back", "queued")]
    drawing = draw(["a"], spans_of(moves, [], now=at(3000)), now=at(3000))
    assert drawing is not None
    bars = drawing.rows[0].bars
    assert all(bar.x >= LEFT and bar.x + bar.width <= RIGHT + 3 for bar in bars)
    assert len(bars) == 1
    assert bars[0].kind == "running"


def test_lost_slice_is_seen_among_thousands():
    moves = []
    for n in range(1500):
        moves += [
            move(2 * n, "claim", "running"),
            move(2 * n + 1, "lose_worker" if n == 700 else "hand_back", "queued"),
        ]
    drawing = draw(["a"], spans_of(moves, [], now=at(3000)), now=at(3000))
    assert drawing is not None
    assert "lost" in [bar.kind for bar in drawing.rows[0].bars]


def test_hundreds_of_timeouts_are_counted_and_drawn_as_few_marks():
    moves = [move(0, "claim", "running"), move(1000, "succeed", "succeeded")]
    fired = [(at(n), "a", "no answer") for n in range(500)]
    drawing = draw(["a"], spans_of(moves, [], now=at(1000)), clocks=fired, now=at(1000))
    assert drawing is not None
    assert drawing.rows[0].timeouts == 500
    assert len(drawing.rows[0].clocks) < 100


def test_a_run_without_history_has_no_drawing():
    assert draw(["a"], spans_of([], [], now=at(0)), now=at(0)) is None


def test_clocks_that_disagree_make_no_negative_bars():
    moves = [move(5, "claim", "running"), move(3, "suspend", "waiting"), move(3, "wake", "queued")]
    drawing = draw(["a"], spans_of(moves, [Commit(at=at(4), step_id="a", next_step="a")], now=at(4)), now=at(4))
    assert drawing is not None
    assert all(bar.width >= 0 for row in drawing.rows for bar in row.bars)
