"""The guard's plan of a bulk action: the plans of its runs together, and for each the hash it is compared by later.

Worked out in portions, so that no statement holds a hundred thousand runs, and no process their states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from durableops.authoring import registry
from durableops.checkpoints.codec import canonical, hash_hex
from durableops.engine import guard, migrating
from durableops.engine.bulk.verbs import BulkVerb
from durableops.engine.guard import About, Line, Plan
from durableops.errors import MigrationRefused
from runs.models import Bulk, BulkItem
from runs.transitions import Cursor

PORTION = 200
MOST_REASONS = 5

_NOTE = """
UPDATE runs_bulk_item i SET facts = x.hash FROM unnest(%s::uuid[], %s::text[]) AS x(id, hash)
WHERE i.bulk_id = %s AND i.run_id = x.id"""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What a bulk action would do as things are now."""

    plan: Plan
    hashes: dict[UUID, str]
    """Of each run's own plan. A run that cannot have it done has one that no plan will have."""


def look(cursor: Cursor, bulk: Bulk, verb: BulkVerb) -> Looked:
    """Work it out. Raises WorkflowNotFound for a migration to a version that is not known here."""
    lines: dict[tuple[str, str, str], Line] = {}
    hashes: dict[UUID, str] = {}
    cannot: Counter[str] = Counter()
    for runs in _portions(bulk):
        about, refused = _about(cursor, bulk, verb, runs)
        found, facts = guard.look(cursor, verb.guard, about)
        for line in found:
            key = (line.category, line.tool, line.safety)
            lines[key] = _together(lines[key], line) if key in lines else line
        hashes |= facts | {run_id: guard.hash_of("cannot", [why]) for run_id, why in refused.items()}
        cannot.update(refused.values())
    told = dict(cannot.most_common(MOST_REASONS))
    if (more := cannot.total() - sum(told.values())) > 0:
        told["other reasons"] = more
    shown = sorted(lines.values(), key=lambda line: (line.category, line.tool, line.safety))
    return Looked(plan=Plan(verb=verb.guard, lines=shown, hash="", cannot=told), hashes=hashes)


def note(cursor: Cursor, bulk: Bulk, looked: Looked) -> None:
    """Keep it with the action and each of its runs: what was shown, and what each is compared with."""
    bulk.plan = looked.plan.as_json()
    # Of the runs, too: another choice of runs that adds up to the same is another plan.
    each = "\n".join(f"{run_id} {facts}" for run_id, facts in sorted(looked.hashes.items()))
    bulk.plan_hash = hash_hex(f"{canonical(bulk.plan)}\n{each}")
    cursor.execute(_NOTE, [list(looked.hashes), list(looked.hashes.values()), bulk.pk])
    bulk.save(update_fields=["plan", "plan_hash"])


def changed(bulk: Bulk, looked: Looked) -> int:
    """How many of its runs are not as was noted any more. Those that retention has removed are left to their turn."""
    noted = BulkItem.objects.filter(bulk=bulk).values_list("run_id", "facts")
    return sum(looked.hashes.get(run_id, facts) != facts for run_id, facts in noted.iterator())


def _portions(bulk: Bulk) -> Iterator[Sequence[UUID]]:
    ids = list(BulkItem.objects.filter(bulk=bulk).order_by("seq").values_list("run_id", flat=True))
    return (ids[at : at + PORTION] for at in range(0, len(ids), PORTION))


def _about(
    cursor: Cursor, bulk: Bulk, verb: BulkVerb, runs: Sequence[UUID]
) -> tuple[list[About], dict[UUID, str]]:  # fmt: skip
    """The runs with what their plans depend on, and those that cannot have it done, with the reason."""
    if verb.guard != "migrate":
        return [About(run_id=run_id) for run_id in runs], {}
    target = registry.workflow(bulk.arguments["workflow"], bulk.arguments["version"])
    found, refused = [], {}
    for run_id, becomes in migrating.previews(cursor, runs, target).items():
        if isinstance(becomes, MigrationRefused):
            refused[run_id] = becomes.detail
        else:
            found.append(guard.becoming(run_id, "migrate", target.version, becomes))
    return found, refused


def _together(one: Line, other: Line) -> Line:
    samples = sorted({*one.samples, *other.samples})
    return Line(
        category=one.category, tool=one.tool, safety=one.safety, calls=one.calls + other.calls,
        runs=one.runs + other.runs, samples=tuple(dict.fromkeys(samples[:1] + samples[-1:])),
    )  # fmt: skip
