"""One attempt to deliver one message: by the handler that its tool is."""

from __future__ import annotations

from collections.abc import Callable

from durableops import failpoints
from durableops.authoring.definitions import ToolDefinition
from durableops.checkpoints import codec, secrets
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared
from durableops.engine.calling import LiveCall
from durableops.engine.drivers import invoke
from durableops.engine.ops import Attempt, Invoke
from runs.relaying import Taken


class Delivery:
    """A message in a relay's hand, on its way."""

    def __init__(self, taken: Taken, tool: ToolDefinition, *, claimed_at: float, gone: Callable[[], bool]) -> None:
        self.taken = taken
        self.tool = tool
        self.limit = monotonic() + tool.timeout + get_conf().step_grace_seconds
        """Monotonic clock: nobody waits for it longer than this."""
        self.is_given_up = False
        self._claimed_at = claimed_at
        self._gone = gone

    def attempt(self) -> Attempt:
        """Make the attempt, on the thread that calls this."""
        try:
            what = f"message of {self.tool.name}"
            request = codec.loads(secrets.open_fields(self.taken.body, self.tool.secret, what=what), what=what)
            failpoints.reach(failpoints.Point.RELAY_BEFORE_SEND, self.taken.resource)
            made = self._send(request)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome of this attempt
            return Attempt(error=error)
        failpoints.reach(failpoints.Point.RELAY_AFTER_SEND, self.taken.resource)
        return made

    def _send(self, request: dict[str, object]) -> Attempt:
        return invoke(Invoke(self.tool, self._call(request), request))

    def _call(self, request: dict[str, object]) -> LiveCall:
        taken = self.taken
        prepared = Prepared(
            tool=self.tool, request=request, resource=taken.resource, author_key=taken.author_key, slot=taken.slot,
            key=taken.key, request_hash=taken.request_hash,
        )  # fmt: skip
        # A relay that stood still for a lease may have been declared dead, and its lane may be another's by now.
        left = get_conf().lease_seconds if taken.seconds_left is None else taken.seconds_left
        return LiveCall(
            prepared,
            run_id=str(taken.run_id),
            tenant=taken.tenant,
            attempt=taken.attempts,
            send_before=self._claimed_at + min(left, get_conf().lease_seconds),
            gone=lambda: self.is_given_up or self._gone(),
        )
