"""What a tool's function is given first; the engine provides the real object."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import httpx


class Call(Protocol):
    """What a tool's function receives first: the facts of one attempt to act."""

    @property
    def key(self) -> str:
        """The key the other side deduplicates on; the same on every attempt."""

    @property
    def attempt(self) -> int:
        """1 for the first attempt of this call."""

    @property
    def timeout(self) -> float:
        """Seconds this attempt may take."""

    @property
    def resource(self) -> str:
        """The business thing acted on; "" only for `read` tools."""

    @property
    def run_id(self) -> str:
        """Identifier of the run that calls."""

    @property
    def tenant(self) -> str:
        """Whose run it is."""

    @property
    def deadline(self) -> datetime:
        """When this attempt must be over."""

    def check(self) -> None:
        """Raise NotSent if the run was stopped or this attempt's time is over; for long tools, before sending."""

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """One httpx request, with the key as `Idempotency-Key` and this call's timeout.

        Just before the bytes go out it looks once more whether they still may; if not, or if
        no connection can be made, raises NotSent. Status 429 and 503 raise RetryLater, other 4xx
        raise Refused. Whatever else goes wrong is raised as httpx raises it, and leaves the
        outcome unknown. `options` are those of httpx.request.
        """
