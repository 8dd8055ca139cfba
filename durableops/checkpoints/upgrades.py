"""Working out what a run becomes under a newer version: pure functions, asked as often as anybody wants to know.

A chain of migrations is applied to what the run stands on. What comes out is checked against the code that would go on
with it; whatever does not fit refuses the whole. Nothing is written here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durableops.authoring.definitions import MigrationDefinition, WorkflowDefinition
from durableops.authoring.migrated import KEEP, Migrated, Position
from durableops.checkpoints import codec
from durableops.checkpoints.compatibility import may_wait
from durableops.checkpoints.made_plans import MadePlan, made
from durableops.checkpoints.states import decode_state, encode_state
from durableops.errors import CompatibilityError, DurableOpsError, MigrationRefused, PlanRefused

UNREAD = ("time", "poll", "children")
"""Waits whose names code makes for itself; they follow their step."""


@dataclass(frozen=True, kw_only=True)
class SeenWait:
    """A wait of the step where a run stands, in its present line."""

    id: int
    kind: str
    name: str
    state: str


@dataclass(frozen=True, kw_only=True)
class SeenEffect:
    """The effects of one tool in one step that fare alike."""

    id: int
    step_id: str
    tool: str
    safety: str
    unsettled: bool
    may_be_asked: bool = True
    """Whether a step that is entered may ask for it again; of a committed step none is."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything a migration begins from."""

    version: int
    state: str
    """JSON text, byte for byte."""
    step_id: str
    cursor: Any
    waits: tuple[SeenWait, ...] = ()
    """Open and answered."""
    effects: tuple[SeenEffect, ...] = ()
    """Whatever the run has called so far."""
    committed: tuple[str, ...] = ()
    """Ids of the steps that are committed."""
    planned: tuple[str, ...] | None = None
    """What is ahead by the plan the run made for itself, from the present step on; None for the declared one."""


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """What the run would be."""

    state: str
    """JSON text."""
    step_id: str
    cursor: Any
    steps: Mapping[str, str]
    """Old step id to new one, where they differ."""
    waits: Mapping[int, str | None]
    """Id of a wait to its new name; None gives it up."""
    decisions: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[tuple[str, str], tuple[str, str] | None] = field(default_factory=dict)
    """(Step, tool) to new (step, tool), where they differ; None leaves settled calls behind."""
    planned: MadePlan | None = None
    """The plan the run made for itself, in the words of the target."""
    functions: tuple[dict[str, Any], ...] = ()
    """Provenance: from, to, name and fingerprint of each migration."""


def upgrade(seen: Snapshot, chain: Sequence[MigrationDefinition], target: WorkflowDefinition) -> Upgraded:
    """Apply a chain of migrations and check the result against the target. Raises MigrationRefused."""
    if not chain:
        raise MigrationRefused(
            f"there is no migration of {target.name!r} from version {seen.version} to {target.version}; declare one."
        )
    said = [Migrated(state=codec.loads(seen.state, what="state"), at=seen.step_id)]
    names = _Names(seen)
    for each in chain:
        position = Position(
            step=names.step, cursor=names.cursor, waits=tuple(names.waits.values()), planned=names.planned,
            unsettled=names.unsettled,
        )  # fmt: skip
        one = _ask(each, dict(said[-1].state), position)
        names.follow(one)
        said.append(one)
    state = _checked_state(said[-1].state, target)
    _check_position(seen, names, target)
    effects = _effects(seen, names, target)
    return Upgraded(
        state=state,
        step_id=names.step,
        cursor=names.cursor,
        steps={old: new for old, new in names.steps.items() if old != new},
        waits=_waits(seen, names, target),
        decisions=names.decisions,
        effects=effects,
        planned=_planned(seen, names, target),
        functions=tuple(
            {"from": e.from_version, "to": e.to_version, "name": e.function.__name__, "source": e.fingerprint}
            for e in chain
        ),
    )


def reshaped(seen: Snapshot, target: WorkflowDefinition, *, state: Mapping[str, Any], step_id: str) -> Upgraded:
    """What the run would be with the state and the step a person gives. Raises MigrationRefused.

    As a migration that a person is: waits that the step there does not ask for are given up, calls that belong nowhere
    any more stay behind, and while one has no outcome that would be left behind, it is refused.
    """
    moved = step_id != seen.step_id
    tools = {step.id: {tool.name: tool.safety for tool in step.tools} for step in target.steps}
    waits: dict[str, str | None] = {
        wait.name: None for wait in seen.waits if moved or not may_wait(target.waits, step_id, wait.kind, wait.name)
    }
    effects: dict[str, str | None] = {}
    for effect in seen.effects:
        if not (effect.may_be_asked or effect.unsettled):
            continue
        place = f"{effect.step_id}/{effect.tool}"
        fits = tools.get(effect.step_id, {}).get(effect.tool) == effect.safety
        leaves = moved and effect.step_id == seen.step_id
        effects[place] = place if fits and not (leaves and effect.unsettled) else None
    names = _Names(seen)
    names.follow(Migrated(state=state, at=step_id, waits=waits, effects=effects))
    if names.planned is not None and step_id not in names.planned:
        # A step that the run's own plan does not have: from there on the declared order holds.
        done = {*seen.committed, step_id}
        names.planned = (step_id, *(s.id for s in target.steps[_index(target, step_id) :] if s.id not in done))
    text = _checked_state(state, target)
    _check_position(seen, names, target)
    return Upgraded(
        state=text, step_id=names.step, cursor=names.cursor, steps={}, waits=_waits(seen, names, target),
        effects=_effects(seen, names, target), planned=_planned(seen, names, target),
    )  # fmt: skip


def state_of(text: str, chain: Sequence[MigrationDefinition], *, position: Position) -> str:
    """A recorded state alone, brought forward: the input a run was started with. Raises MigrationRefused."""
    state: Mapping[str, Any] = codec.loads(text, what="input")
    for each in chain:
        state = _ask(each, dict(state), position).state
    return codec.dumps(dict(state), what="input")


def _ask(migration: MigrationDefinition, state: dict[str, Any], position: Position) -> Migrated:
    """What a migration says; asked twice, for it must say the same each time."""
    name = f"migration {migration.function.__name__!r} ({migration.from_version} to {migration.to_version})"
    try:
        answers = [migration(copy.deepcopy(state), position) for _ in range(2)]
    except DurableOpsError as error:
        raise MigrationRefused(f"{name} refuses: {error.detail}") from error
    except Exception as error:  # the author's code
        raise MigrationRefused(f"{name} failed: {type(error).__name__}: {error}") from error
    if answers[0] != answers[1]:
        raise MigrationRefused(f"{name} says something else each time; it must be pure: no time, chance or outside.")
    [said, _] = answers
    if isinstance(said, Migrated):
        return said
    if not isinstance(said, dict):
        raise MigrationRefused(f"{name} returned {type(said).__name__}; return the new state as a dict, or Migrated.")
    return Migrated(state=said)


class _Names:
    """What things are called, and where the run stands, after so many migrations."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen
        self.steps = {step: step for step in (*seen.committed, seen.step_id, *(e.step_id for e in seen.effects))}
        self.step = seen.step_id
        self.cursor = seen.cursor
        self.waits: dict[int, tuple[str, str]] = {wait.id: (wait.kind, wait.name) for wait in seen.waits}
        self.dropped: set[int] = set()
        self.decisions: dict[str, str] = {}
        self.effects: dict[int, tuple[str, str] | None] = {e.id: (e.step_id, e.tool) for e in seen.effects}
        self.spoken_for = {e.id for e in seen.effects}
        self.moved = False
        self.planned = seen.planned

    @property
    def unsettled(self) -> tuple[tuple[str, str], ...]:
        found = [self.effects[e.id] for e in self._seen.effects if e.unsettled]
        return tuple(dict.fromkeys(place for place in found if place is not None))

    def follow(self, said: Migrated) -> None:
        self.steps = {old: said.steps.get(new, new) for old, new in self.steps.items()}
        natural = said.steps.get(self.step, self.step)
        self.moved = self.moved or (said.at is not None and said.at != natural)
        self.step = natural if said.at is None else said.at
        if self.planned is not None:
            mapped = tuple(said.steps.get(each, each) for each in self.planned)
            self.planned = mapped if said.planned is None else tuple(said.planned)
        if said.cursor is not KEEP:
            self.cursor = said.cursor
        elif self.moved:
            self.cursor = None
        for pk, (kind, name) in list(self.waits.items()):
            if name in said.waits:
                new = said.waits[name]
                if new is None:
                    self.dropped.add(pk)
                    del self.waits[pk]
                else:
                    self.waits[pk] = (kind, new)
        fresh = {old: new for old, new in said.decisions.items() if old not in self.decisions.values()}
        self.decisions = fresh | {old: said.decisions.get(new, new) for old, new in self.decisions.items()}
        self._follow_effects(said)

    def _follow_effects(self, said: Migrated) -> None:
        for pk, place in self.effects.items():
            if place is None:
                continue
            step, tool = place
            named = next((key for key in (f"{step}/{tool}", tool) if key in said.effects), None)
            if named is None:
                self.spoken_for.discard(pk)
                self.effects[pk] = (said.steps.get(step, step), tool)
                continue
            answer = said.effects[named]
            if answer is None:
                self.effects[pk] = None
                continue
            new_step, _, new_tool = answer.rpartition("/")
            self.effects[pk] = (new_step or said.steps.get(step, step), new_tool)


def _checked_state(state: Mapping[str, Any], target: WorkflowDefinition) -> str:
    try:
        text = codec.dumps(dict(state), what="migrated state")
        return encode_state(decode_state(target.state, text))
    except CompatibilityError as error:
        raise MigrationRefused(f"the migrated state does not fit version {target.version}: {error.detail}") from error
    except DurableOpsError as error:
        raise MigrationRefused(f"the migrated state cannot be stored: {error.detail}") from error


def _check_position(seen: Snapshot, names: _Names, target: WorkflowDefinition) -> None:
    ids = [step.id for step in target.steps]
    if names.step not in ids:
        raise MigrationRefused(
            f"the run stands at step {names.step!r}, which version {target.version} does not have; name its new id in "
            "`steps`, or where it goes on in `at`."
        )
    if names.step in {names.steps.get(step, step) for step in seen.committed if step != seen.step_id}:
        raise MigrationRefused(f"step {names.step!r} is committed and never runs again; a person may move a run there.")


def _index(target: WorkflowDefinition, step_id: str) -> int:
    try:
        return target.index(step_id)
    except KeyError:
        raise MigrationRefused(f"version {target.version} has no step {step_id!r}.") from None


def _planned(seen: Snapshot, names: _Names, target: WorkflowDefinition) -> MadePlan | None:
    """The run's own plan under the target, which begins where the run stands."""
    if names.planned is None:
        return None
    if names.step not in names.planned:
        raise MigrationRefused(
            f"the run made a plan of its own, {', '.join(names.planned) or 'of no step'}, which does not have step "
            f"{names.step!r}, where it would go on; say in `planned` which steps are ahead."
        )
    ahead = names.planned[names.planned.index(names.step) :]
    done = [names.steps.get(step, step) for step in seen.committed if step != seen.step_id]
    try:
        return made(target, ahead, done=done)
    except PlanRefused as refused:
        raise MigrationRefused(
            f"the run made a plan of its own, and {refused.detail} Name new ids in `steps`, or say in `planned` which "
            "steps are ahead."
        ) from refused


def _waits(seen: Snapshot, names: _Names, target: WorkflowDefinition) -> dict[int, str | None]:
    for pk, (kind, name) in names.waits.items():
        was = next(wait for wait in seen.waits if wait.id == pk)
        if names.moved and was.state == "open":
            raise MigrationRefused(
                f"the run waits for {kind} {name!r} in a step it would leave; give the wait up in `waits` (None)."
            )
        if not names.moved and not may_wait(target.waits, names.step, kind, name):
            raise MigrationRefused(
                f"the run waits for {kind} {name!r}, which step {names.step!r} of version {target.version} does not "
                "ask for; name what it is called now in `waits`, or None to give it up."
            )
    kept = {pk: name for pk, (_, name) in names.waits.items()} if not names.moved else {}
    return {**kept, **dict.fromkeys(names.dropped)}


def _effects(
    seen: Snapshot, names: _Names, target: WorkflowDefinition
) -> dict[tuple[str, str], tuple[str, str] | None]:
    """Where effects went. Refused where a call without an outcome is not spoken for, or lands where it cannot be."""
    found: dict[tuple[str, str], tuple[str, str] | None] = {}
    tools = {step.id: {tool.name: tool.safety for tool in step.tools} for step in target.steps}
    for effect in seen.effects:
        place = names.effects[effect.id]
        known = None if place is None else tools.get(place[0], {}).get(place[1])
        call = f"a call of {effect.tool!r} in step {effect.step_id!r}"
        if effect.unsettled and (effect.id not in names.spoken_for or place is None):
            raise MigrationRefused(
                f"{call} has no outcome; say in `effects` which tool takes it up (itself, if nothing changed), or let "
                "it be settled first."
            )
        if (
            effect.safety != "read"
            and (effect.may_be_asked or effect.unsettled)
            and place is not None
            and (known is None if not effect.unsettled else known != effect.safety)
        ):
            raise MigrationRefused(
                f"{call} would belong to {place[1]!r} in step {place[0]!r}, which version {target.version} does not "
                f"have as {effect.safety!r}: it would be sent again. Say in `effects` where it belongs, or None to "
                "leave a settled one behind."
            )
        if place != (effect.step_id, effect.tool):
            found[effect.step_id, effect.tool] = place
    return found
