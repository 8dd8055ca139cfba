"""May a run that was recorded under one plan go on under today's? A pure function with a written rule.

The rule: version, schema version, schema hash and plan hash are all equal, the step where the run stands still exists,
and what it waits for is still asked for. Anything else is told as a list of exact differences, and parks the run for a
person unless a migration speaks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints import plan_differences, schema_differences
from durableops.checkpoints.difference import Difference

ReasonCode = Literal[
    "workflow_unknown", "version_changed", "schema_changed", "plan_changed", "step_unknown", "wait_gone",
    "state_unreadable", "plan_unreadable", "migration_refused", "needs_review",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedPlan:
    """What gives code its meaning for a run: recorded with its checkpoints, and asked of the code that is there."""

    workflow: str
    version: int
    schema_version: int
    schema_hash: str
    plan_hash: str
    plan: Mapping[str, Any]
    """As WorkflowDefinition.plan gave it."""
    schema: Any = field(default_factory=dict)
    """As WorkflowDefinition.schema gave it; empty when it was not recorded."""
    waits: Mapping[str, Any] = field(default_factory=dict)
    """As WorkflowDefinition.waits gave it; empty when it was not recorded."""

    @classmethod
    def of(cls, definition: WorkflowDefinition) -> RecordedPlan:
        """What is recorded for runs of this definition."""
        return cls(
            workflow=definition.name,
            version=definition.version,
            schema_version=definition.schema_version,
            schema_hash=definition.schema_hash,
            plan_hash=definition.plan_hash,
            plan=definition.plan,
            schema=definition.schema,
            waits=definition.waits,
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """Ids of its steps, in order."""
        return tuple(str(step["id"]) for step in self.plan.get("steps", ()))


@dataclass(frozen=True)
class Continue:
    """The run may go on as it is."""


@dataclass(frozen=True, kw_only=True)
class Park:
    """The run must not go on by itself; nothing of it was touched."""

    reason_code: ReasonCode
    reason: str
    """A sentence: what is, what was wanted, what to do."""

    differences: tuple[Difference, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The same for every run that is parked for the same: what groups them."""
        seen = [self.reason_code, *(asdict(each) for each in self.differences)]
        text = json.dumps(seen if self.differences else [self.reason_code, self.reason], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def compare(
    recorded: RecordedPlan,
    present: RecordedPlan | None,
    *,
    at_step: str | None = None,
    awaited: Iterable[tuple[str, str]] = (),
) -> Continue | Park:
    """Decide whether a run goes on.

    `present` is the code's plan of the recorded version, else of the version that would take the run over, else None.
    `at_step` is the step the run goes on with, `awaited` the (kind, name) of what it waits for there.
    """
    if present is None or present.workflow != recorded.workflow:
        return Park(
            reason_code="workflow_unknown",
            reason=f"there is no workflow {recorded.workflow!r} in this process; deploy the app that declares it.",
            differences=(
                Difference(kind="workflow", subject=recorded.workflow, recorded=recorded.workflow, present=""),
            ),
        )
    found = (*_versions(recorded, present), *_schemas(recorded, present), *_plans(recorded, present))
    gone = _position(present, at_step) or _waits_gone(present, at_step, awaited)
    if found:
        return _park(recorded, present, (*found, *gone))
    if gone:
        code: ReasonCode = "step_unknown" if gone[0].kind == "position" else "wait_gone"
        return Park(reason_code=code, reason=f"{_told(gone)}. {_REMEDY}", differences=gone)
    return Continue()


_REMEDY = "Restore the code under this version number, or decide how the run goes on."


def _park(recorded: RecordedPlan, present: RecordedPlan, differences: tuple[Difference, ...]) -> Park:
    name = repr(recorded.workflow)
    if recorded.version != present.version:
        return Park(
            reason_code="version_changed",
            reason=(
                f"the run is of workflow {name} version {recorded.version}, and the code has version "
                f"{present.version} ({_told(differences[1:]) or 'which means the same'}). Migrate it, keep a worker "
                "with its version, or decide how it goes on."
            ),
            differences=differences,
        )
    is_schema = differences[0].kind in schema_differences.KINDS
    what = "its state's schema changed" if is_schema else "its plan changed"
    return Park(
        reason_code="schema_changed" if is_schema else "plan_changed",
        reason=(
            f"the run was recorded under workflow {name} version {recorded.version}, and {what} since "
            f"({_told(differences)}). {_REMEDY}"
        ),
        differences=differences,
    )


def _told(differences: Sequence[Difference]) -> str:
    return "; ".join(map(str, differences[:5])) + ("; ..." if len(differences) > 5 else "")


def _versions(recorded: RecordedPlan, present: RecordedPlan) -> tuple[Difference, ...]:
    if recorded.version == present.version:
        return ()
    was, now = str(recorded.version), str(present.version)
    return (Difference(kind="version", subject=recorded.workflow, recorded=was, present=now),)


def _schemas(recorded: RecordedPlan, present: RecordedPlan) -> tuple[Difference, ...]:
    found = []
    if recorded.schema_version != present.schema_version:
        was, now = str(recorded.schema_version), str(present.schema_version)
        found.append(Difference(kind="schema_version", subject=recorded.workflow, recorded=was, present=now))
    if recorded.schema_hash != present.schema_hash:
        found += schema_differences.between(recorded.schema, present.schema) or [
            Difference(
                kind="schema",
                subject=recorded.workflow,
                recorded=recorded.schema_hash[:12],
                present=present.schema_hash[:12],
            )
        ]
    return tuple(found)


def _plans(recorded: RecordedPlan, present: RecordedPlan) -> tuple[Difference, ...]:
    if recorded.plan_hash == present.plan_hash:
        return ()
    found = plan_differences.between(recorded.plan, present.plan)
    if not found:  # another format, or the recorded hash is not that of the recorded plan
        was, now = recorded.plan_hash[:12], present.plan_hash[:12]
        found = [Difference(kind="plan", subject=recorded.workflow, recorded=was, present=now)]
    return tuple(found)


def _position(present: RecordedPlan, at_step: str | None) -> tuple[Difference, ...]:
    if at_step is None or at_step in present.steps:
        return ()
    return (Difference(kind="position", subject=at_step, recorded=at_step, present=""),)


def _waits_gone(
    present: RecordedPlan, at_step: str | None, awaited: Iterable[tuple[str, str]]
) -> tuple[Difference, ...]:
    """What the run waits for and the code certainly does not ask for any more."""
    return tuple(
        Difference(kind="wait_gone", subject=f"{at_step}/{name}", recorded=kind, present="")
        for kind, name in awaited
        if at_step is not None and not may_wait(present.waits, at_step, kind, name)
    )


def may_wait(waits: Mapping[str, Any], step_id: str, kind: str, name: str) -> bool:
    """Whether a step may ask for this, as far as its code was read; times, polls and children are not read."""
    seen = waits.get(step_id)
    if kind not in ("event", "approval", "file") or not seen or not seen.get("complete"):
        return True
    return [kind, name] in seen["names"]
