"""The names authors import; everything else is reached through the submodules."""

from __future__ import annotations

from durableops.authoring.asking import Choice
from durableops.authoring.context import AsyncRun, Call, Page, Run
from durableops.authoring.decorators import migration, step, tool, workflow
from durableops.authoring.migrated import Migrated, Position
from durableops.authoring.policies import Budget, Retry
from durableops.authoring.probing import DidNotHappen, Happened, Unknown
from durableops.authoring.state import Secret, State
from durableops.authoring.undoing import DoneEffect
from durableops.authoring.webhooks import webhook
from durableops.errors import (
    CallFailed,
    CallsFailed,
    CallTimeout,
    ChildrenFailed,
    ControlSignal,
    DefinitionError,
    DuplicateName,
    DurableOpsError,
    EffectConflict,
    EffectGivenUp,
    EffectInDoubt,
    Fatal,
    InputRefused,
    NotSent,
    PayloadRefused,
    PlanRefused,
    Refused,
    RetryLater,
    WaitTimeout,
)

__all__ = [
    "AsyncRun",
    "Budget",
    "Call",
    "CallFailed",
    "CallTimeout",
    "CallsFailed",
    "ChildrenFailed",
    "Choice",
    "ControlSignal",
    "DefinitionError",
    "DidNotHappen",
    "DoneEffect",
    "DuplicateName",
    "DurableOpsError",
    "EffectConflict",
    "EffectGivenUp",
    "EffectInDoubt",
    "Fatal",
    "Happened",
    "InputRefused",
    "Migrated",
    "NotSent",
    "Page",
    "PayloadRefused",
    "PlanRefused",
    "Position",
    "Refused",
    "Retry",
    "RetryLater",
    "Run",
    "Secret",
    "State",
    "Unknown",
    "WaitTimeout",
    "migration",
    "step",
    "tool",
    "webhook",
    "workflow",
]
