"""The guard: what a verb would send again, by class, and what it would reuse, worked out from the record beforehand.

A plan has a hash over the facts it was made of. A verb that is given the hash works it out anew under the run's lock
and is refused if the facts have changed: the plan that was shown is the plan that is executed. Counting is done by the
database, for one run and for many alike (`bulk.planning`); no effect is loaded. What a settlement would do is worked
out from one effect by `choices`; it is a plan like these, and is insisted on here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from durableops.authoring import registry
from durableops.checkpoints.codec import hash_hex
from durableops.checkpoints.upgrades import Upgraded
from durableops.engine import migrating
from durableops.engine.compensation.owing import FAMILY, UNDOABLE, ways_for
from durableops.engine.compensation.ways import COLUMNS, as_rows
from durableops.errors import PlanChanged, PlanWanted
from runs.transitions import Cursor

MOST_CALLS = 100_000
"""So many calls of one run are looked at; beyond that a plan says "at least"."""
UNSEEN = ""
"""Given instead of a hash by whoever was shown no plan: the verb is done if it is harmless, and else shows its plan."""

# What becomes of a recorded call when its step is entered again in the same run.
_AGAIN = """CASE
    WHEN e.safety = 'outbox' THEN CASE WHEN e.state IN ('queued', 'intended') THEN 'pending' ELSE 'reused' END
    WHEN e.state IN ('withdrawn', 'queued') THEN 'unsent'
    WHEN e.state IN ('succeeded', 'refused') THEN CASE WHEN e.safety = 'read' AND {reads_again} THEN 'read'
        ELSE 'reused' END
    WHEN e.state = 'given_up' THEN 'given_up'
    WHEN e.safety = 'read' THEN 'read'
    WHEN e.safety = 'keyed' AND coalesce(e.window_ends_at > now(), true) THEN 'again'
    ELSE 'doubt' END"""
# A new run has slots of its own: nothing of the old run's record answers, except what the whole tenant shares.
_ANEW = """CASE
    WHEN e.safety = 'read' THEN 'read'
    WHEN e.scope = 'tenant' AND e.state IN ('succeeded', 'refused') THEN 'shared'
    WHEN e.state IN ('withdrawn', 'queued') AND e.safety <> 'outbox' THEN 'unsent'
    ELSE 'anew' END"""
_CATEGORIES = {
    "retry": _AGAIN.format(reads_again="false"),
    "retry_from": _AGAIN.format(reads_again="true"),
    "fork": _ANEW,
    # A migration may leave calls behind: then nothing of the record answers for them.
    "migrate": "CASE WHEN concat(e.step_id, '/', e.tool) = ANY(x.left_behind) THEN 'anew' ELSE "
    + _AGAIN.format(reads_again="false")
    + " END",
}
_SINCE = "e.id > x.through"
# A retry enters one step; where a run has gone back before, the later ones have a past too.
_AHEAD = f"{_SINCE} AND (x.lineage > 1 OR e.step_id = x.step_id)"
_ONLY = {
    "retry": _AHEAD,
    # What was called before the step's first page was committed is asked for again, too, and would find nothing.
    "migrate": f"""({_AHEAD}) OR (concat(e.step_id, '/', e.tool) = ANY(x.left_behind) AND e.id <= (
        SELECT c.effects_through FROM runs_checkpoint c
        WHERE c.run_id = x.id AND c.kind = 'page' AND c.step_id = e.step_id ORDER BY c.seq LIMIT 1))""",
}
_CATEGORIES |= {"edit": _CATEGORIES["migrate"], "move": _CATEGORIES["migrate"], "pin": _CATEGORIES["retry"]}
_ONLY |= {"edit": _ONLY["migrate"], "move": _ONLY["migrate"], "pin": _ONLY["retry"]}
VERBS = ("retry", "retry_from", "fork", "migrate", "pin", "compensate", "cancel")
"""Those whose plan needs nothing but the run and a place; of an edit and a move it comes with what they say."""
AT_CHECKPOINT = ("retry_from", "fork")
"""Those that want to be told at which checkpoint."""

# Whether a message was delivered by now changes nothing about what the verb does; the rest of a plan is its facts.
_FACTS = """
WITH chosen AS (
    SELECT r.id, r.state, r.lineage, r.head_seq, r.fence, r.step_id, c.effects_through AS through, s.more, s.left_behind
    FROM jsonb_to_recordset(%(runs)s::jsonb) AS s(id uuid, more text, left_behind text[])
    JOIN runs_run r ON r.id = s.id
    JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = coalesce(%(seq)s::int, r.head_seq)
), calls AS (
    SELECT x.id, e.category, e.tool, e.safety, count(*) AS calls, min(e.resource) AS first, max(e.resource) AS last
    FROM chosen x CROSS JOIN LATERAL (
        SELECT {category} AS category, e.tool, e.safety, e.resource FROM runs_effect e
        WHERE e.run_id = x.id AND NOT e.left_behind AND ({only}) ORDER BY e.id LIMIT {most}) e
    GROUP BY x.id, e.category, e.tool, e.safety
)"""
_HASHES = """
SELECT x.id, encode(sha256(convert_to(concat_ws('|', '{verb}', %(seq)s::int, x.more, x.state, x.lineage,
    x.head_seq, x.fence,
    (SELECT string_agg(concat_ws(' ', k.category, k.tool, k.safety, k.calls), ',' ORDER BY k.category, k.tool, k.safety)
     FROM (SELECT CASE WHEN safety = 'outbox' AND '{verb}' <> 'fork' THEN 'outbox' ELSE category END AS category,
                  tool, safety, sum(calls) AS calls
           FROM calls WHERE id = x.id GROUP BY 1, 2, 3) k),
    (SELECT string_agg(concat_ws(' ', m.state, m.n), ',' ORDER BY m.state)
     FROM (SELECT state, count(*) AS n FROM runs_compensation WHERE run_id = x.id GROUP BY state) m)
), 'UTF8')), 'hex') FROM chosen x"""
_LINES = """
SELECT category, tool, safety, sum(calls)::bigint, count(DISTINCT id), min(first), max(last) FROM calls
GROUP BY category, tool, safety ORDER BY category, tool, safety"""

_UNDO = (
    FAMILY
    + f""", effects AS (
    SELECT e.tool, e.safety, e.resource, w.how, w.four_eyes, coalesce(c.state, 'new') AS state
    FROM family f JOIN runs_effect e ON e.run_id = f.id
    JOIN jsonb_to_recordset(%(ways)s::jsonb) AS w({COLUMNS}) ON w.of = e.tool
    LEFT JOIN runs_compensation c ON c.effect_id = e.id
    WHERE {UNDOABLE})
SELECT CASE WHEN state IN ('new', 'owed') THEN CASE how WHEN 'tool' THEN 'undo' ELSE 'task' END ELSE 'settled' END,
    tool, safety, count(*), 1, min(resource), max(resource)
FROM effects GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
)
_LEFT = (
    FAMILY
    + """
SELECT CASE WHEN e.safety = 'outbox' THEN 'pending' ELSE 'left' END, e.tool, e.safety, count(*), 1, min(e.resource),
    max(e.resource)
FROM family f JOIN runs_effect e ON e.run_id = f.id
WHERE e.state IN ('queued', 'intended', 'in_doubt') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
)
_UNDO_HASH = """
SELECT encode(sha256(convert_to(concat_ws('|', 'compensate', r.state, r.fence, %(lines)s::text), 'UTF8')), 'hex')
FROM runs_run r WHERE r.id = %(run)s"""

_WAITS = """
SELECT w.kind, count(*) FROM runs_wait w JOIN runs_run r ON r.id = w.run_id AND w.lineage = r.lineage
JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = %(seq)s
WHERE w.run_id = %(run)s AND w.opened_at > c.at GROUP BY w.kind"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """So many calls of one tool that meet the same fate."""

    category: str
    """again, anew, doubt, given_up, left, pending, read, reused, settled, shared, task, undo, unsent."""
    tool: str
    safety: str
    calls: int
    runs: int
    samples: tuple[str, ...]
    """A resource or two of them."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "samples": list(self.samples)}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a verb would do, and the hash of the facts this was made of."""

    verb: str
    lines: Sequence[Line]
    hash: str
    """Empty where nothing depends on it: a cancel is decided by what the run does until it stops."""
    waits: dict[str, int] = field(default_factory=dict)
    """How many waits of each kind are opened anew (`children`: are kept)."""
    cannot: dict[str, int] = field(default_factory=dict)
    """Of many runs: why some cannot have it done as they are, and how many."""

    def of(self, *categories: str) -> list[Line]:
        """The lines of these categories."""
        return [line for line in self.lines if line.category in categories]

    def calls(self, *categories: str) -> int:
        """How many calls there are in these categories."""
        return sum(line.calls for line in self.of(*categories))

    @property
    def is_harmless(self) -> bool:
        """Whether nothing goes out again that may have gone out before, nor anything to undo it."""
        return not self.of("again", "anew", "doubt") and not (self.verb == "compensate" and self.of("undo", "task"))

    def as_json(self) -> dict[str, Any]:
        return {
            "verb": self.verb,
            "plan_hash": self.hash,
            "harmless": self.is_harmless,
            "calls": [line.as_json() for line in self.lines],
            "waits": self.waits,
        } | ({"cannot": self.cannot} if self.cannot else {})


def plan(
    cursor: Cursor, verb: str, run_id: UUID, *, seq: int | None = None, version: int | None = None,
    about: About | None = None,
) -> Plan:  # fmt: skip
    """What the verb would do to this run: at this checkpoint where it takes one, to this version where it migrates.

    `about` is given by whoever has worked out already what it depends on. Raises MigrationRefused and WorkflowNotFound
    for a migration that cannot be made.
    """
    if verb in ("compensate", "cancel"):
        return _undoing(cursor, verb, run_id)
    if about is None:
        about = About(run_id=run_id)
        if verb == "migrate":
            cursor.execute("SELECT workflow FROM runs_run WHERE id = %s", [run_id])
            target = registry.workflow(cursor.fetchone()[0], version)
            about = becoming(run_id, "migrate", target.version, migrating.preview(cursor, run_id, target))
    lines, hashes = look(cursor, verb, [about], seq=seq)
    waits: dict[str, int] = {}
    if verb == "retry_from":
        cursor.execute(_WAITS, {"run": run_id, "seq": seq})
        waits = dict(cursor.fetchall())
    return Plan(verb=verb, lines=lines, hash=hashes.get(run_id, ""), waits=waits)


@dataclass(frozen=True, kw_only=True)
class About:
    """A run a plan is about, and what the plan depends on besides the record."""

    run_id: UUID
    more: str | None = None
    left: tuple[str, ...] = ()
    """Calls that a migration leaves behind: `step/tool`."""


def becoming(run_id: UUID, verb: str, version: int, becomes: Upgraded) -> About:
    """What a plan of a migration, an edit or a move depends on: what the run becomes, and which calls it leaves behind.

    An edit says itself what the state becomes, so its plan is bound to that as well.
    """
    left = tuple(sorted(f"{step}/{tool}" for (step, tool), place in becomes.effects.items() if place is None))
    more = f"{version} at {becomes.step_id} without {', '.join(left)}"
    if verb == "edit":
        more += f" with {hash_hex(becomes.state)}"
    return About(run_id=run_id, more=more, left=left)


def look(
    cursor: Cursor, verb: str, runs: Sequence[About], *, seq: int | None = None
) -> tuple[list[Line], dict[UUID, str]]:  # fmt: skip
    """What a verb would do to these runs together, and for each the hash of the facts it was made of."""
    facts, params = _facts(verb, runs, seq)
    cursor.execute(facts + _LINES, params)
    return [_line(row) for row in cursor.fetchall()], _hashes(cursor, verb, facts, params)


def _facts(verb: str, runs: Sequence[About], seq: int | None) -> tuple[str, dict[str, Any]]:
    given = [{"id": str(one.run_id), "more": one.more, "left_behind": list(one.left)} for one in runs]
    facts = _FACTS.format(category=_CATEGORIES[verb], most=MOST_CALLS + 1, only=_ONLY.get(verb, _SINCE))
    return facts, {"runs": json.dumps(given), "seq": seq}


def _hashes(cursor: Cursor, verb: str, facts: str, params: Mapping[str, Any]) -> dict[UUID, str]:
    cursor.execute(facts + _HASHES.format(verb=verb), params)
    return {row[0]: str(row[1]) for row in cursor.fetchall()}


def check(
    cursor: Cursor, verb: str, run_id: UUID, given: str | None, *, seq: int | None = None, version: int | None = None,
    about: About | None = None,
) -> None:  # fmt: skip
    """Raise PlanChanged, with the plan as it is now, unless the facts are those that were shown.

    Needs the run's row locked. None takes whatever the plan is; UNSEEN takes only one that is harmless.
    """
    if given is None:
        return
    if about is not None and given:
        facts, params = _facts(verb, [about], seq)
        if _hashes(cursor, verb, facts, params).get(run_id) == given:
            return  # a bulk action asks this of thousands: the plan in words is made for a refusal only
    present = plan(cursor, verb, run_id, seq=seq, version=version, about=about)
    cursor.execute("SELECT state FROM runs_run WHERE id = %s", [run_id])
    insist(present, given, run_id=run_id, state=cursor.fetchone()[0])


def insist(
    present: Plan, given: str | None, *, run_id: UUID, state: str, shown: Mapping[str, Any] | None = None
) -> None:
    """Refuse what was not shown. `shown` is the plan as people are told it, where it is more than its calls."""
    if given in (None, present.hash) or (given == UNSEEN and present.is_harmless):
        return
    doing = f"{present.verb.replace('_', ' ')} would do to run {run_id}"
    kind, said, wanted = PlanChanged, f"what {doing} has changed since it was shown", "the plan that was shown"
    if given == UNSEEN:
        kind, said, wanted = PlanWanted, f"{doing} is not harmless and was not looked at", "the hash of its plan"
        said = f"what {said}"
    raise kind(
        f"{said}. Nothing was done; look at the plan as it is now and ask with its hash.",
        run=run_id, state=state, event=present.verb, wanted=wanted, plan=shown or present.as_json(),
    )  # fmt: skip


def hash_of(verb: str, facts: Sequence[object]) -> str:
    """The hash of a plan whose facts are in memory."""
    return hash_hex(repr((verb, *facts)))


def _undoing(cursor: Cursor, verb: str, run_id: UUID) -> Plan:
    """What could be undone of all that a run, and what is below it, did; and what is left open by ending it."""
    cursor.execute(_UNDO, {"run": run_id, "ways": as_rows(ways_for(cursor, run_id))})
    lines = [_line(row) for row in cursor.fetchall()]
    if verb == "cancel":
        cursor.execute(_LEFT, {"run": run_id})
        return Plan(verb=verb, lines=[*lines, *map(_line, cursor.fetchall())], hash="")
    told = "; ".join(f"{line.category} {line.tool} {line.calls}" for line in lines)
    cursor.execute(_UNDO_HASH, {"run": run_id, "lines": told})
    row = cursor.fetchone()
    return Plan(verb=verb, lines=lines, hash="" if row is None else str(row[0]))


def _line(row: tuple[Any, ...]) -> Line:
    category, tool, safety, calls, runs, first, last = row
    samples = tuple(dict.fromkeys(text for text in (first, last) if text))
    return Line(category=category, tool=tool, safety=safety, calls=calls, runs=runs, samples=samples)
