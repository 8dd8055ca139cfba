"""What step and tool code may ask of `run` and `call`; the engine provides the real objects."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from durableops.authoring.called import Call as Call
from durableops.authoring.outcomes import Answer as Answer
from durableops.authoring.outcomes import ChildOutcome as ChildOutcome
from durableops.authoring.outcomes import ReceivedFile as ReceivedFile
from durableops.authoring.policies import OnTimeout as OnTimeout

if TYPE_CHECKING:
    from pathlib import Path

    from durableops.authoring.asking import Choice, Decider
    from durableops.authoring.definitions import ToolDefinition, WorkflowDefinition
    from durableops.authoring.forms import Form

OnFailure = Literal["raise", "continue"]
"""When child runs fail: raise ChildrenFailed in the step, or return their outcomes."""

OnError = Literal["raise", "return"]
"""When some of many calls have no result: raise CallsFailed, or return the errors in their places."""

OnRefusal = Literal["cancel", "return"]
"""When a person says no: end the run as cancelled, or return the answer to the step."""

FileClass = Literal["deliverable", "input", "temp_file", "raw_prompt"]
"""What a file is, which says how long it is kept and who may see it."""

Readers = Literal["payloads", "members"]
"""Who may read a file: those who see payloads, or every member of the tenant."""

type Content = bytes | str | Path | IO[bytes] | Iterable[bytes]
"""What a file may be made of."""

Level = Literal["debug", "info", "warning", "error"]
Cursor = int | str | Sequence[int | str]
"""Where a page begins: a byte position, a key, or the columns of a keyset. Never an offset."""


class Spending(Protocol):
    """What was reserved of the run's budget, until it is settled."""

    def settle(self, *, tokens: int | None = None, money: Decimal | float | None = None) -> None:
        """Say what it really cost. What is not said counts as it was reserved."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a `read_page` function returns: some items and where the next page begins."""

    items: Sequence[Any]
    """The items of this page, in an order that does not change between reads."""

    next_cursor: Cursor | None
    """Where the next page begins; None if this is the last."""


class _Facts(Protocol):
    """What a step can read about its run."""

    @property
    def id(self) -> str:
        """Identifier of the run."""

    @property
    def tenant(self) -> str:
        """Whose run it is."""

    @property
    def workflow(self) -> str:
        """Name of the workflow."""

    @property
    def step_id(self) -> str:
        """Identifier of the step being run."""

    @property
    def attempt(self) -> int:
        """1 for the first; grows after a failure or a lost worker, not after a wait."""

    @property
    def entry(self) -> int:
        """1 for the first; grows whenever the step's function is called from its top."""

    @property
    def state(self) -> Any:
        """The State, as committed last. Change it freely: it is committed with the step."""

    @property
    def input(self) -> Any:
        """The State the run was started with; changing it changes nothing."""

    @property
    def cursor(self) -> Cursor | None:
        """Where `pages` will go on; None at the beginning."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What the starter attached to the run, for people and searches."""


class Run(_Facts, Protocol):
    """What a plain step receives.

    A step that waits, fails or loses its worker is entered again from its top. Calls, waits
    and decisions are then found by their name and `key`, and answer with what they answered
    before; every other line of the step may run repeatedly.
    """

    def call(self, tool: ToolDefinition, /, *, resource: str = "", key: str = "", **request: Any) -> Any:
        """Call a tool once per (step, tool, resource, key) and return its result.

        `resource` is the business thing acted on, required unless the tool is `read` or
        declares which argument it is. `key` tells several calls for one resource apart.
        Raises CallFailed, Refused, EffectConflict or DuplicateName.
        """

    def call_many(
        self,
        tool: ToolDefinition,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[Any]:
        """Call a tool for each item (its `resource`, `key` and request) and return all results.

        All intents are committed before the first is sent, results come in the items' order.
        Once every call has an outcome, raises CallsFailed if some have no result; with
        `on_error="return"` an error stands in the list instead.
        """

    def pages(
        self, read_page: Callable[[Any], Page | None], /, *, start: Cursor | None = None
    ) -> Iterator[Sequence[Any]]:
        """Read page after page and commit the cursor after each; resumes at the last one.

        `read_page(cursor)` gets `start` first, then each page's `next_cursor`; it returns None
        when there is nothing left.
        """

    def decide(
        self, name: str, inputs: Mapping[str, Any], fn: Callable[..., Any], /, *, key: str = "", prompt: Any = None
    ) -> Any:
        """Return `fn(**inputs)`, recorded with a hash of the inputs; asked again, the record.

        `prompt` (a text, or messages as JSON) is kept apart from the decision, as by `prompt()`.
        """

    def replan(self, steps: Iterable[str], /, *, why: str = "") -> None:
        """Say which of the workflow's steps follow this one, in order; holds from this step's commit on.

        For plans made by a model, taken from `decide` so that every entry says the same. Each step stands in it at
        most once, none that is committed; what it leaves out is not run, and after an empty one the run ends. It is
        stored and shown as a new version, and migrations speak for it as for a declared plan. Raises PlanRefused.
        """

    def prompt(self, name: str, content: Any, /, *, key: str = "") -> None:
        """Keep what was said to a model, or by it, word by word: encrypted, for few eyes, and for less long.

        `content` is a text or plain JSON. It travels with the run's next commit.
        """

    def wait_for(
        self,
        event: str,
        /,
        *,
        correlation: str = "",
        key: str = "",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        look_back: timedelta = timedelta(0),
    ) -> Any:
        """Wait for an event and return its payload.

        One that arrived after the run was created answers at once; `look_back` reaches that much further back.
        """

    def wait_for_file(
        self,
        name: str,
        /,
        *,
        key: str = "",
        question: str = "",
        accept: Iterable[str] = (),
        max_bytes: int | None = None,
        data_class: Literal["input", "temp_file"] = "input",
        readers: Readers = "payloads",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
    ) -> ReceivedFile | None:
        """Wait until a person brings a file, in the console or by a link that works once, and return what it is.

        It is kept with the run under `name`; open it with `open_artifact(name, content_hash=…)`.
        `accept` names endings (`.csv`) and types (`image/*`).
        """

    def poll(
        self,
        tool: ToolDefinition,
        /,
        *,
        every: timedelta,
        until: Callable[[Any], bool],
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        resource: str = "",
        key: str = "",
        **request: Any,
    ) -> Any:
        """Call a tool every so often until `until(result)` is true, and return that result.

        Each turn is a record of its own. Raises WaitTimeout.
        """

    def sleep_until(self, when: datetime, /, *, key: str = "") -> None:
        """Go on at an instant; the worker is free meanwhile."""

    def sleep(self, duration: float | timedelta, /, *, key: str = "") -> None:
        """Go on after so many seconds; the worker is free meanwhile."""

    def approval(
        self,
        name: str,
        /,
        *,
        key: str = "",
        question: str = "",
        facts: Mapping[str, Any] | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        on_refusal: OnRefusal = "cancel",
        choices: Iterable[Choice | str] = (),
        form: Form | None = None,
        by: Decider | Iterable[Decider] = "reviewer",
        four_eyes: bool = False,
        remind: timedelta | None = None,
        escalate: timedelta | None = None,
        escalate_to: Decider = "admin",
    ) -> Answer | None:
        """Ask a person, showing `question` and `facts`, and return what they decided.

        A refusal ends the run as cancelled, unless `on_refusal="return"`. `default` is
        returned only after a timeout with `on_timeout="continue"`. `choices` stand beside the plain yes and no;
        `form` (a pydantic model, or names and types) is filled in with a yes. `by` says which roles
        decide, `four_eyes` that whoever started the run does not. Nobody decides: every `remind` the
        Inbox says so, and after `escalate` also those of `escalate_to` may decide. Ask again, a second
        or third round, under another `key`.
        """

    def children(
        self,
        workflow: WorkflowDefinition | type | str,
        inputs: Iterable[Mapping[str, Any]],
        /,
        *,
        key: str = "",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        on_failure: OnFailure = "raise",
    ) -> Sequence[ChildOutcome]:
        """Start one run per input, wait for all, and return their outcomes in that order.

        When `timeout` comes first, those that are still open are cancelled.
        """

    def spend(
        self, *, tokens: int | None = None, money: Decimal | float | None = None
    ) -> AbstractContextManager[Spending]:
        """Reserve of the run's budget before something is spent; settle what it cost inside the `with` block.

        Waits while others of the run may give something back; leaves the step when the budget is spent.
        """

    def artifact(
        self,
        name: str,
        data: Content,
        /,
        *,
        data_class: FileClass = "deliverable",
        content_type: str = "application/octet-stream",
        readers: Readers = "payloads",
    ) -> str:
        """Keep a file with the run and return its content hash; the same bytes under one name are kept once.

        It is never held in memory: give a Path, an open file or pieces of bytes for a large one. `data_class` says
        how long it is kept; a `temp_file` or `raw_prompt` is encrypted, and people need a right of their own to see
        it. `readers="members"` lets everybody of the tenant read it, not only those who see payloads.
        """

    def open_artifact(self, name: str, /, *, content_hash: str = "") -> IO[bytes]:
        """Open a file that this run kept, the newest of this name unless `content_hash` says which.

        Raises ArtifactNotFound, or ArtifactGone when retention has removed it.
        """

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Say how far the step is; shown to people, never relied on."""

    def log(self, message: str, /, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the run's log."""


class AsyncRun(_Facts, Protocol):
    """What an `async def` step receives: as `Run`, with everything that waits awaited."""

    async def call(self, tool: ToolDefinition, /, *, resource: str = "", key: str = "", **request: Any) -> Any:
        """See Run.call."""

    async def call_many(
        self,
        tool: ToolDefinition,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        concurrency: int = 8,
        on_error: OnError = "raise",
    ) -> list[Any]:
        """See Run.call_many."""

    def pages(
        self,
        read_page: Callable[[Any], Page | Awaitable[Page | None] | None],
        /,
        *,
        start: Cursor | None = None,
    ) -> AsyncIterator[Sequence[Any]]:
        """See Run.pages; use `async for`. `read_page` may be a coroutine function."""

    async def decide(
        self, name: str, inputs: Mapping[str, Any], fn: Callable[..., Any], /, *, key: str = "", prompt: Any = None
    ) -> Any:
        """See Run.decide; `fn` may be a coroutine function."""

    async def replan(self, steps: Iterable[str], /, *, why: str = "") -> None:
        """See Run.replan."""

    def prompt(self, name: str, content: Any, /, *, key: str = "") -> None:
        """See Run.prompt."""

    async def wait_for(
        self,
        event: str,
        /,
        *,
        correlation: str = "",
        key: str = "",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        look_back: timedelta = timedelta(0),
    ) -> Any:
        """See Run.wait_for."""

    async def wait_for_file(
        self,
        name: str,
        /,
        *,
        key: str = "",
        question: str = "",
        accept: Iterable[str] = (),
        max_bytes: int | None = None,
        data_class: Literal["input", "temp_file"] = "input",
        readers: Readers = "payloads",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
    ) -> ReceivedFile | None:
        """See Run.wait_for_file."""

    async def poll(
        self,
        tool: ToolDefinition,
        /,
        *,
        every: timedelta,
        until: Callable[[Any], bool],
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        resource: str = "",
        key: str = "",
        **request: Any,
    ) -> Any:
        """See Run.poll."""

    async def sleep_until(self, when: datetime, /, *, key: str = "") -> None:
        """See Run.sleep_until."""

    async def sleep(self, duration: float | timedelta, /, *, key: str = "") -> None:
        """See Run.sleep."""

    async def approval(
        self,
        name: str,
        /,
        *,
        key: str = "",
        question: str = "",
        facts: Mapping[str, Any] | None = None,
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        on_refusal: OnRefusal = "cancel",
        choices: Iterable[Choice | str] = (),
        form: Form | None = None,
        by: Decider | Iterable[Decider] = "reviewer",
        four_eyes: bool = False,
        remind: timedelta | None = None,
        escalate: timedelta | None = None,
        escalate_to: Decider = "admin",
    ) -> Answer | None:
        """See Run.approval."""

    async def children(
        self,
        workflow: WorkflowDefinition | type | str,
        inputs: Iterable[Mapping[str, Any]],
        /,
        *,
        key: str = "",
        timeout: timedelta | None = None,
        on_timeout: OnTimeout = "raise",
        default: Any = None,
        on_failure: OnFailure = "raise",
    ) -> Sequence[ChildOutcome]:
        """See Run.children."""

    def spend(
        self, *, tokens: int | None = None, money: Decimal | float | None = None
    ) -> AbstractAsyncContextManager[Spending]:
        """See Run.spend; with `async with`."""

    async def artifact(
        self,
        name: str,
        data: Content,
        /,
        *,
        data_class: FileClass = "deliverable",
        content_type: str = "application/octet-stream",
        readers: Readers = "payloads",
    ) -> str:
        """See Run.artifact."""

    async def open_artifact(self, name: str, /, *, content_hash: str = "") -> IO[bytes]:
        """See Run.open_artifact; reading from it is plain."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """See Run.progress."""

    def log(self, message: str, /, *, level: Level = "info", **fields: Any) -> None:
        """See Run.log."""
