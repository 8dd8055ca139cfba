"""The `run` that step code receives: thin faces over the logic, one for plain steps and one for `async def` steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any

from durableops.authoring.definitions import ToolDefinition
from durableops.authoring.policies import Budget
from durableops.checkpoints.failures import safe_text
from durableops.checkpoints.states import decode_state
from durableops.engine import budgets, calls, files, logic, made_plans, prompts, waits
from durableops.engine.budgets import Reserved
from durableops.engine.checks import check_may_go_on, flush_if_stale
from durableops.engine.drivers import AsyncDriver, SyncDriver
from durableops.engine.hand import Hand
from durableops.engine.ops import Logic
from durableops.errors import Fatal
from durableops.masking import mask, mask_text

LEVELS = ("debug", "info", "warning", "error")
MESSAGE_CHARACTERS = 4000
FIELD_CHARACTERS = 1000
NOTE_CHARACTERS = 200
NO_LOOK_BACK = timedelta(0)


class _Facts:
    """What a step can read about its run."""

    def __init__(self, hand: Hand, input_json: Callable[[], str]) -> None:
        self._hand = hand
        self._input_json = input_json

    @property
    def hand(self) -> Hand:
        """For the engine's own workflows."""
        return self._hand

    @property
    def id(self) -> str:
        return str(self._hand.run_id)

    @property
    def tenant(self) -> str:
        return self._hand.claimed.tenant

    @property
    def workflow(self) -> str:
        return self._hand.definition.name

    @property
    def step_id(self) -> str:
        return self._hand.step.id

    @property
    def attempt(self) -> int:
        return self._hand.attempt

    @property
    def entry(self) -> int:
        return self._hand.entry

    @property
    def state(self) -> Any:
        return self._hand.state

    @property
    def input(self) -> Any:
        return decode_state(self._hand.definition.state, self._input_json())

    @property
    def cursor(self) -> Any:
        cursor = self._hand.cursor
        return None if cursor == logic.END else cursor

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._hand.claimed.labels)

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        check_may_go_on(self._hand)
        self._hand.progress(
            int(done), None if total is None else int(total), safe_text(mask_text(note))[:NOTE_CHARACTERS]
        )

    def prompt(self, name: str, content: Any, /, *, key: str = "") -> None:
        check_may_go_on(self._hand)
        prompts.keep(self._hand, name, content, key=key)

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        check_may_go_on(self._hand)
        if level not in LEVELS:
            raise Fatal(f"log level is {level!r}; give one of {', '.join(LEVELS)}.")
        self._hand.log(
            level,
            safe_text(mask_text(str(message)), limit=MESSAGE_CHARACTERS),
            mask({safe_text(name): _plain(value) for name, value in fields.items()}),
        )


class Spending:
    """Implements durableops.authoring.context.Spending."""

    def __init__(self, made: Reserved | None) -> None:
        self._made = made

    def settle(self, **actual: Any) -> None:
        if self._made is not None:
            self._made.settle(**actual)


class SyncRun(_Facts):
    """Implements durableops.authoring.context.Run."""

    def __init__(self, hand: Hand, driver: SyncDriver, input_json: Callable[[], str]) -> None:
        super().__init__(hand, input_json)
        self._driver = driver

    def _do(self, piece: Logic[Any]) -> Any:
        return self._driver.run(piece)

    def perform(self, piece: Logic[Any]) -> Any:
        """A piece of logic of the engine's own workflows."""
        return self._do(piece)

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        super().progress(done, total, note)
        self._do(flush_if_stale(self._hand))

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        super().log(message, level=level, **fields)
        self._do(flush_if_stale(self._hand))

    def call(self, tool: ToolDefinition, /, *, resource: str = "", key: str = "", **request: Any) -> Any:
        return self._do(calls.call(self._hand, tool, resource=resource, key=key, request=request))

    def call_many(
        self,
        tool: ToolDefinition,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        concurrency: int = 8,
        on_error: str = "raise",
    ) -> Any:
        return self._do(calls.call_many(self._hand, tool, items, concurrency=concurrency, on_error=on_error))

    def pages(self, read_page: Callable[[Any], Any], /, *, start: Any = None) -> Iterator[Any]:
        while (page := self._do(logic.next_page(self._hand, read_page, start))) is not None:
            yield page.items
            self._do(logic.commit_page(self._hand, page))
        self._hand.in_page = False

    def decide(
        self, name: str, inputs: Mapping[str, Any], fn: Callable[..., Any], /, *, key: str = "", prompt: Any = None
    ) -> Any:
        return self._do(logic.decide(self._hand, name, inputs, fn, key=key, prompt=prompt))

    def replan(self, steps: Iterable[Any], /, *, why: str = "") -> None:
        self._do(made_plans.replan(self._hand, steps, why=why))

    def wait_for(self, event: str, /, **options: Any) -> Any:
        return self._do(_wait_for(self._hand, event, **options))

    def wait_for_file(self, name: str, /, **options: Any) -> Any:
        return self._do(waits.wait_for_file(self._hand, name, **options))

    def poll(self, tool: ToolDefinition, /, **options: Any) -> Any:
        return self._do(_poll(self._hand, tool, **options))

    def sleep_until(self, when: datetime, /, *, key: str = "") -> None:
        self._do(waits.sleep_until(self._hand, when, key=key))

    def sleep(self, duration: float | timedelta, /, *, key: str = "") -> None:
        self._do(waits.sleep(self._hand, duration, key=key))

    def approval(self, name: str, /, **options: Any) -> Any:
        return self._do(_approval(self._hand, name, **options))

    def children(self, workflow: Any, inputs: Iterable[Mapping[str, Any]], /, **options: Any) -> Any:
        return self._do(_children(self._hand, workflow, inputs, **options))

    @contextmanager
    def spend(self, **amounts: Any) -> Iterator[Spending]:
        made = self._do(budgets.reserve(self._hand, Budget.amounts(amounts)))
        try:
            yield Spending(made)
        finally:
            if made is not None:
                self._do(budgets.settle(self._hand, made))

    def artifact(self, name: str, data: Any, /, **options: Any) -> Any:
        return self._do(_artifact(self._hand, name, data, **options))

    def open_artifact(self, name: str, /, *, content_hash: str = "") -> Any:
        return self._do(files.open_artifact(self._hand, name, content_hash=content_hash))


class AsyncRun(_Facts):
    """Implements durableops.authoring.context.AsyncRun."""

    def __init__(self, hand: Hand, driver: AsyncDriver, input_json: Callable[[], str]) -> None:
        super().__init__(hand, input_json)
        self._driver = driver

    async def _do(self, piece: Logic[Any]) -> Any:
        return await self._driver.run(piece)

    async def call(self, tool: ToolDefinition, /, *, resource: str = "", key: str = "", **request: Any) -> Any:
        return await self._do(calls.call(self._hand, tool, resource=resource, key=key, request=request))

    async def call_many(
        self,
        tool: ToolDefinition,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        concurrency: int = 8,
        on_error: str = "raise",
    ) -> Any:
        return await self._do(calls.call_many(self._hand, tool, items, concurrency=concurrency, on_error=on_error))

    async def pages(self, read_page: Callable[[Any], Any], /, *, start: Any = None) -> AsyncIterator[Any]:
        while (page := await self._do(logic.next_page(self._hand, read_page, start))) is not None:
            yield page.items
            await self._do(logic.commit_page(self._hand, page))
        self._hand.in_page = False

    async def decide(
        self, name: str, inputs: Mapping[str, Any], fn: Callable[..., Any], /, *, key: str = "", prompt: Any = None
    ) -> Any:
        return await self._do(logic.decide(self._hand, name, inputs, fn, key=key, prompt=prompt))

    async def replan(self, steps: Iterable[Any], /, *, why: str = "") -> None:
        await self._do(made_plans.replan(self._hand, steps, why=why))

    async def wait_for(self, event: str, /, **options: Any) -> Any:
        return await self._do(_wait_for(self._hand, event, **options))

    async def wait_for_file(self, name: str, /, **options: Any) -> Any:
        return await self._do(waits.wait_for_file(self._hand, name, **options))

    async def poll(self, tool: ToolDefinition, /, **options: Any) -> Any:
        return await self._do(_poll(self._hand, tool, **options))

    async def sleep_until(self, when: datetime, /, *, key: str = "") -> None:
        await self._do(waits.sleep_until(self._hand, when, key=key))

    async def sleep(self, duration: float | timedelta, /, *, key: str = "") -> None:
        await self._do(waits.sleep(self._hand, duration, key=key))

    async def approval(self, name: str, /, **options: Any) -> Any:
        return await self._do(_approval(self._hand, name, **options))

    async def children(self, workflow: Any, inputs: Iterable[Mapping[str, Any]], /, **options: Any) -> Any:
        return await self._do(_children(self._hand, workflow, inputs, **options))

    @asynccontextmanager
    async def spend(self, **amounts: Any) -> AsyncIterator[Spending]:
        made = await self._do(budgets.reserve(self._hand, Budget.amounts(amounts)))
        try:
            yield Spending(made)
        finally:
            if made is not None:
                await self._do(budgets.settle(self._hand, made))

    async def artifact(self, name: str, data: Any, /, **options: Any) -> Any:
        return await self._do(_artifact(self._hand, name, data, **options))

    async def open_artifact(self, name: str, /, *, content_hash: str = "") -> Any:
        return await self._do(files.open_artifact(self._hand, name, content_hash=content_hash))


def _wait_for(
    hand: Hand,
    event: str,
    *,
    correlation: str = "",
    key: str = "",
    timeout: timedelta | None = None,
    on_timeout: str = "raise",
    default: Any = None,
    look_back: timedelta = NO_LOOK_BACK,
) -> Logic[Any]:
    return waits.wait_for(
        hand,
        "event",
        event,
        correlation=correlation,
        key=key,
        timeout=timeout,
        on_timeout=on_timeout,
        default=default,
        look_back=look_back,
    )


def _approval(
    hand: Hand,
    name: str,
    *,
    key: str = "",
    question: str = "",
    facts: Mapping[str, Any] | None = None,
    timeout: timedelta | None = None,
    on_timeout: str = "raise",
    default: Any = None,
    on_refusal: str = "cancel",
    form: Any = None,
    **how: Any,
) -> Logic[Any]:
    return waits.approval(
        hand,
        name,
        key=key,
        question=question,
        facts=facts,
        timeout=timeout,
        on_timeout=on_timeout,
        default=default,
        on_refusal=on_refusal,
        form=form,
        **how,
    )


def _children(
    hand: Hand,
    workflow: Any,
    inputs: Iterable[Mapping[str, Any]],
    *,
    key: str = "",
    timeout: timedelta | None = None,
    on_timeout: str = "raise",
    default: Any = None,
    on_failure: str = "raise",
) -> Logic[Any]:
    return logic.children(
        hand, workflow, inputs, key=key, timeout=timeout, on_timeout=on_timeout, default=default, on_failure=on_failure
    )


def _poll(
    hand: Hand,
    tool: ToolDefinition,
    *,
    every: timedelta,
    until: Callable[[Any], Any],
    timeout: timedelta | None = None,
    on_timeout: str = "raise",
    default: Any = None,
    resource: str = "",
    key: str = "",
    **request: Any,
) -> Logic[Any]:
    return waits.poll(
        hand, tool, every=every, until=until, timeout=timeout, on_timeout=on_timeout, default=default,
        resource=resource, key=key, request=request,
    )  # fmt: skip


def _artifact(
    hand: Hand,
    name: str,
    data: Any,
    *,
    data_class: str = "deliverable",
    content_type: str = "application/octet-stream",
    readers: str = "payloads",
) -> Logic[str]:
    return files.artifact(hand, name, data, data_class=data_class, content_type=content_type, readers=readers)


def _plain(value: Any) -> Any:
    """A log field as JSON: scalars as they are, the rest as text."""
    if value is None or isinstance(value, bool | int):
        return value
    return safe_text(str(value), limit=FIELD_CHARACTERS)
