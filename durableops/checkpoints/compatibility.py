"""May a run that was recorded under one plan go on under today's? A pure function with a written rule.

The rule: version, schema version, schema hash and plan hash are all equal, and the step where
the run stands still exists. Anything else parks the run for a person, with the differences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from durableops.authoring.definitions import WorkflowDefinition

ReasonCode = Literal["workflow_unknown", "version_unknown", "schema_changed", "plan_changed", "step_unknown"]
DifferenceKind = Literal[
    "workflow", "version", "schema_version", "schema", "plan",
    "step_added", "step_removed", "step_moved", "step_version",
    "tool_added", "tool_removed", "tool_safety", "position",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordedPlan:
    """What a checkpoint says about the code that wrote it."""

    workflow: str
    version: int
    schema_version: int
    schema_hash: str
    plan_hash: str
    plan: Mapping[str, Any]
    """As WorkflowDefinition.plan gave it."""

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
        )


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as it was recorded."""

    kind: DifferenceKind
    subject: str
    """What differs: a step's id, `step/tool`, or the workflow's name."""

    recorded: str
    present: str

    def as_json(self) -> dict[str, str]:
        """Plain JSON, for events and pages."""
        return asdict(self)

    def __str__(self) -> str:
        kind = self.kind.replace("_", " ")
        return f"{kind} {self.subject}: {self.recorded or '-'} became {self.present or '-'}"


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


def compare(
    recorded: RecordedPlan,
    present: WorkflowDefinition | None,
    *,
    at_step: str | None = None,
    known_versions: Collection[int] = (),
) -> Continue | Park:
    """Decide whether a run goes on.

    `present` is today's definition of the recorded version, or None if this process has none;
    `known_versions` are the versions it does have. `at_step` is the step the run goes on with.
    """
    if present is None or (present.name, present.version) != (recorded.workflow, recorded.version):
        return _unknown(recorded, {*known_versions, *([present.version] if present else [])})
    schema = _schema_differences(recorded, present)
    plan = _plan_differences(recorded, present)
    if schema:
        return _park("schema_changed", recorded, "its state's schema changed", (*schema, *plan))
    if plan:
        return _park("plan_changed", recorded, "its plan changed", plan)
    if at_step is not None and at_step not in {step.id for step in present.steps}:
        gone = Difference(kind="position", subject=at_step, recorded=at_step, present="")
        return _park("step_unknown", recorded, f"there is no step {at_step!r} in it", (gone,))
    return Continue()


def _unknown(recorded: RecordedPlan, known: Collection[int]) -> Park:
    name, version = recorded.workflow, recorded.version
    have = ", ".join(map(str, sorted(known)))
    if not known:
        return Park(
            reason_code="workflow_unknown",
            reason=f"there is no workflow {name!r} in this process; deploy the app that declares it.",
            differences=(Difference(kind="workflow", subject=name, recorded=name, present=""),),
        )
    return Park(
        reason_code="version_unknown",
        reason=(
            f"the run is of workflow {name!r} version {version}, but this process has {have}; "
            "keep a worker with that version, or decide how the run goes on."
        ),
        differences=(Difference(kind="version", subject=name, recorded=str(version), present=have),),
    )


def _park(code: ReasonCode, recorded: RecordedPlan, what: str, differences: tuple[Difference, ...]) -> Park:
    shown = "; ".join(map(str, differences[:5])) + ("; ..." if len(differences) > 5 else "")
    return Park(
        reason_code=code,
        reason=(
            f"the run was recorded under workflow {recorded.workflow!r} version {recorded.version}, and "
            f"{what} since ({shown}). Restore the code under this version number, or decide how it goes on."
        ),
        differences=differences,
    )


def _schema_differences(recorded: RecordedPlan, present: WorkflowDefinition) -> tuple[Difference, ...]:
    state = present.state.__name__
    if recorded.schema_version != present.schema_version:
        was, now = str(recorded.schema_version), str(present.schema_version)
        return (Difference(kind="schema_version", subject=state, recorded=was, present=now),)
    if recorded.schema_hash != present.schema_hash:
        was, now = recorded.schema_hash[:12], present.schema_hash[:12]
        return (Difference(kind="schema", subject=state, recorded=was, present=now),)
    return ()


def _plan_differences(recorded: RecordedPlan, present: WorkflowDefinition) -> tuple[Difference, ...]:
    if recorded.plan_hash == present.plan_hash:
        return ()
    if recorded.plan.get("format") != present.plan["format"]:
        return (_other_hash(recorded, present),)
    old, new = _steps(recorded.plan), _steps(present.plan)
    found = [*_membership(old, new), *_order(old, new)]
    for step_id in old.keys() & new.keys():
        found += _step_differences(step_id, old[step_id], new[step_id])
    if not found:  # the recorded hash is not that of the recorded plan
        return (_other_hash(recorded, present),)
    return tuple(sorted(found, key=lambda each: (each.subject, each.kind)))


def _other_hash(recorded: RecordedPlan, present: WorkflowDefinition) -> Difference:
    was, now = recorded.plan_hash[:12], present.plan_hash[:12]
    return Difference(kind="plan", subject=recorded.workflow, recorded=was, present=now)


def _steps(plan: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(step["id"]): step for step in plan.get("steps", ())}


def _membership(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    removed = [Difference(kind="step_removed", subject=each, recorded=each, present="") for each in old.keys() - new]
    added = [Difference(kind="step_added", subject=each, recorded="", present=each) for each in new.keys() - old]
    return removed + added


def _order(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    was, now = [each for each in old if each in new], [each for each in new if each in old]
    return [
        Difference(kind="step_moved", subject=step, recorded=str(was.index(step) + 1), present=str(place + 1))
        for place, step in enumerate(now)
        if was[place] != step
    ]


def _step_differences(step_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    found = []
    if old.get("version") != new.get("version"):
        was, now = str(old.get("version")), str(new.get("version"))
        found.append(Difference(kind="step_version", subject=step_id, recorded=was, present=now))
    tools, tools_now = _safeties(old), _safeties(new)
    for name in tools.keys() | tools_now.keys():
        was, now = tools.get(name, ""), tools_now.get(name, "")
        if was != now:
            kind: DifferenceKind = "tool_safety" if was and now else "tool_removed" if was else "tool_added"
            found.append(Difference(kind=kind, subject=f"{step_id}/{name}", recorded=was, present=now))
    return found


def _safeties(step: Mapping[str, Any]) -> dict[str, str]:
    return {str(tool["name"]): str(tool["safety"]) for tool in step.get("tools", ())}
