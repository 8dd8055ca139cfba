"""The rest of what a step may ask: pages, decisions, children. Each is a generator of ops."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from durableops.authoring.context import Page
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints import codec
from durableops.checkpoints.states import encode_state
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import prompts, stored_states
from durableops.engine.checks import check_may_go_on, flush_if_stale, give_way
from durableops.engine.hand import Hand
from durableops.engine.ops import Aside, Ask, Commit, Compute, Logic
from durableops.engine.records import ensure_loaded
from durableops.engine.start import check_new
from durableops.engine.waits import Suspend, answered, known_wait, wait_row
from durableops.errors import ChildrenFailed, CursorRegression, Fatal, WorkflowNotFound
from runs.fenced import CheckpointRow
from runs.states import TERMINAL


@dataclass(frozen=True, kw_only=True)
class ChildOutcome:
    """How one child run ended."""

    run_id: str
    state: str
    result: Any
    error: str


END = {"end": True}
"""Cursor of a loop whose last page is committed, so that a resume after it does not begin again."""


def next_page(hand: Hand, read_page: Callable[[Any], Any], start: Any) -> Logic[Page | None]:
    """Read the page at the committed cursor; None when there is nothing left."""
    check_may_go_on(hand)
    if not hand.in_page:
        hand.use("pages", "")
        hand.in_page = True
    at = start if hand.cursor is None else hand.cursor
    if at == END:
        return None
    page = yield Compute(read_page, (at,))
    if page is not None and not isinstance(page, Page):
        raise Fatal(f"read_page returned {type(page).__name__}; return a Page or None.")
    return page


def commit_page(hand: Hand, page: Page) -> Logic[None]:
    """Commit the page's results, the state and the next cursor, as one checkpoint."""
    cursor = list(page.next_cursor) if isinstance(page.next_cursor, tuple) else page.next_cursor
    _refuse_regression(hand.cursor, cursor)
    after = END if cursor is None else cursor
    state = encode_state(hand.state, max_bytes=get_conf().payload_max_bytes)
    row = CheckpointRow(
        kind="page",
        step_id=hand.step.id,
        next_step=hand.step.id,
        state=stored_states.to_store(hand, state),
        cursor=json.dumps(after),
        effects_through=hand.newest_effect,
        entry=hand.entry,
        attempt=hand.attempt,
        elapsed=monotonic() - hand.page_at,
    )
    yield Commit(hand.write(checkpoint=row))
    hand.state_json, hand.cursor = state, after
    hand.effects_through = hand.newest_effect
    hand.page_at = monotonic()
    hand.failed_attempts = 0
    hand.effects.clear()
    hand.used = {place for place in hand.used if place[0] != "call"}
    way = yield from give_way(hand)
    if way is not None:
        hand.leaving = way
        raise way


def _refuse_regression(old: Any, new: Any) -> None:
    """A cursor that does not grow would read the same rows for ever, or some of them twice."""
    if old is None or new is None:
        return
    try:
        grows = new > old
    except TypeError:
        grows = False
    if not grows:
        raise CursorRegression(
            f"the next cursor is {new!r} after {old!r}; cursors must grow: use a key or byte position, never an offset."
        )


def decide(
    hand: Hand, name: str, inputs: Mapping[str, Any], function: Callable[..., Any], *, key: str, prompt: Any = None
) -> Logic[Any]:
    """Return the recorded decision for these inputs, or make and commit it before anything relies on it."""
    check_may_go_on(hand)
    yield from flush_if_stale(hand)
    codec.check_key(name, what="name of a decision")
    hand.use("decide", name, key)
    yield from ensure_loaded(hand)
    limit = get_conf().payload_max_bytes
    input_hash = codec.hash_hex(codec.canonical(dict(inputs), what=f"inputs of {name!r}", max_bytes=limit))
    recorded = hand.decisions.get((name, key, input_hash))
    if recorded is not None:
        return codec.loads(recorded, what=f"decision {name!r}")
    earlier = sorted(known for (of, under, known) in hand.decisions if (of, under) == (name, key))
    if earlier:
        hand.event(
            "decision_changed",
            reason=f"decision {name!r} is asked with other inputs: a new one is made, the earlier one stays.",
            data={"name": name, "key": key, "inputs": input_hash, "before": earlier},
        )
    if prompt is not None:
        # Checked before the model is asked: what cannot be kept fails before it costs anything.
        kept = yield Aside(partial(prompts.row, name, prompt, key=key))
    value = yield Compute(function, (), dict(inputs))
    text = codec.dumps(value, what=f"decision {name!r}", max_bytes=limit)
    if prompt is not None:
        hand.prompt(kept)
    hand.decide({"name": name, "author_key": key, "input_hash": input_hash, "result": text})
    yield Commit(hand.write())
    return codec.loads(text)


def children(
    hand: Hand,
    workflow: WorkflowDefinition | type | str,
    inputs: Iterable[Mapping[str, Any]],
    *,
    key: str,
    timeout: timedelta | None,
    on_timeout: str,
    default: Any,
    on_failure: str,
) -> Logic[Any]:
    """Start one run for each input, all or none, wait for every one, and return how they ended."""
    if on_failure not in ("raise", "continue"):
        raise Fatal(f"on_failure is {on_failure!r}; give 'raise' or 'continue'.")
    name = workflow if isinstance(workflow, str) else _name_of(workflow)
    known = yield from known_wait(hand, "children", name, key, on_timeout)
    if known is None:
        new = [check_new(name, dict(given)) for given in inputs]
        if not new:
            return []
        row = wait_row("children", name, key, expires=timeout, on_timeout=on_timeout, turns=len(new))
        raise Suspend(row, children=new)
    if known.state == "expired":
        return answered("children", name, known, default)
    found: list[ChildOutcome] = yield Ask(lambda database: _outcomes(database.read(_CHILDREN, [known.id])))
    if any(child.state not in TERMINAL for child in found):
        # Opened anew if it was closed: a child that was retried after its parent had been told is waited for again.
        raise Suspend(wait_row("children", name, key, turns=len(found)))
    failed = [child for child in found if child.state != "succeeded"]
    if failed and on_failure == "raise":
        raise ChildrenFailed(
            f"{len(failed)} of {len(found)} child runs of {name!r} did not succeed; the first, {failed[0].run_id}, "
            f"{failed[0].state}: {failed[0].error}",
            failed=[child.run_id for child in failed],
        )
    return found


_CHILDREN = """
SELECT r.id, r.state, c.output, r.error_message FROM runs_run r
LEFT JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = r.head_seq AND c.kind = 'finish'
WHERE r.parent_wait_id = %s ORDER BY r.child_index"""


def _outcomes(rows: list[tuple[UUID, str, str | None, str]]) -> list[ChildOutcome]:
    return [
        ChildOutcome(run_id=str(run_id), state=state, result=codec.loads(output or "null"), error=error)
        for run_id, state, output, error in rows
    ]


def _name_of(workflow: Any) -> str:
    name = getattr(workflow, "name", None)
    if not isinstance(name, str):
        raise WorkflowNotFound(f"{workflow!r} is no workflow; give the decorated class or its name.")
    return name
