"""The options of a tool that belong to some classes only, or that few tools need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from durableops.authoring.definitions import LargeResult, OnPoison, ToolDefinition
from durableops.authoring.policies import OnCallTimeout
from durableops.authoring.undoing import DoneEffect


class ToolOptions(TypedDict, total=False):
    """What `@tool` takes besides its first options. Each may be left out."""

    destination: str
    """For `outbox`: where its messages go, as lanes and back-off see it; by default the tool's name."""

    on_poison: OnPoison
    """For `outbox`: whether a message that cannot be delivered holds those behind it (`hold`) or not (`skip`)."""

    deliver_within: timedelta | None
    """For `outbox`: how long after its commit a message may still be sent; None is for ever."""

    system: str
    """For `legacy`: the system whose queue its calls stand in, over all tenants; by default the tool's name."""

    probe: Callable[..., Any] | None
    """For `keyed` and `legacy`: `probe(call, **request)` asks the other side whether a call in doubt happened, and
    returns Happened, DidNotHappen or Unknown."""

    remind_after: timedelta | None
    """For `keyed` and `legacy`: how long a call may be in doubt before somebody is reminded; None is the setting."""

    escalate_after: timedelta | None
    """The same, before it is escalated."""

    compensate: ToolDefinition | None
    """The tool that undoes it."""

    undo_request: Callable[[DoneEffect], Mapping[str, Any]] | None
    """Makes that tool's request of the effect; None gives it the effect's `downstream_id` and `result`."""

    instructions: str
    """How a person undoes it, or what they should know when the tool could not."""

    four_eyes: bool
    """Whether a second person has to agree before it counts as undone."""

    secret: Sequence[str]
    """Arguments and fields of the result that nobody shall see: masked in what people are shown, and encrypted in the
    recorded result."""

    large_result: LargeResult
    """Whether a result over the payload limit fails the step (`refuse`) or is kept as a file of the run (`artifact`);
    it is given back whole."""

    on_timeout: OnCallTimeout
    """What becomes of a call that gets no answer in time: `retry` as `retry` says (the default), `fail` at once,
    `cancel` the run, `continue` with `default` (`read` only), or `ask` a person whether to try again."""

    default: Any
    """The answer of a call that timed out, with on_timeout="continue"."""
