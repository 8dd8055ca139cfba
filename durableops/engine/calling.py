"""The `call` a tool receives: its key, its time, and a last look before anything goes on the wire."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from durableops.checkpoints.failures import safe_text
from durableops.clock import monotonic, uptime
from durableops.conf import get_conf
from durableops.effects.idempotency import Prepared
from durableops.engine.once import Once
from durableops.errors import CallTimeout, NotSent, Refused, RetryLater
from durableops.masking import mask_text

if TYPE_CHECKING:
    import httpx

# httpx is imported by the first request: it takes a worker half as long again to start, and many never send one.
KEY_HEADER = "Idempotency-Key"
NO_WAIT_STATUS = (408, 425)
RETRY_STATUS = (429, 503)
RESPONSE_CHARACTERS = 500
DECODED_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")


class LiveCall:
    """One attempt. Implements durableops.authoring.context.Call."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        run_id: str,
        tenant: str,
        attempt: int,
        send_before: float,
        gone: Callable[[], bool],
    ) -> None:
        self.key = prepared.key
        self.attempt = attempt
        self.timeout = prepared.tool.timeout
        self.resource = prepared.resource
        self.run_id = run_id
        self.tenant = tenant
        self.prepared = prepared
        self.response: dict[str, Any] | None = None
        """What the other side answered, shortened and masked; None as long as it did not."""
        self._send_before = send_before
        self._started = monotonic()
        self._gone = gone

    def begin(self) -> None:
        """Start this attempt's clock."""
        self._started = monotonic()

    @property
    def deadline(self) -> datetime:
        """When this attempt must be over."""
        return datetime.now(UTC) + timedelta(seconds=self._started + self.timeout - monotonic())

    def check(self) -> None:
        """Raise NotSent when the run was stopped, or when a person may by now have settled this effect."""
        if uptime() > self._send_before:
            raise NotSent(
                f"call {self.key[:12]} of {self.prepared.tool.name} was held up past its time to be sent; nothing left."
            )
        if self._gone():
            raise NotSent(f"call {self.key[:12]} of {self.prepared.tool.name}: the run was stopped; nothing left.")

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Send one request with our key; see the protocol. 429 and 503 raise RetryLater, other 4xx raise Refused.

        A connection that could not be made raises NotSent. Every other failure leaves the outcome unknown and is
        raised as httpx raises it.
        """
        import httpx

        headers = httpx.Headers(options.pop("headers", None))
        headers.setdefault(KEY_HEADER, self.key)
        end = self._started + self.timeout
        options.setdefault("timeout", max(0.001, end - monotonic()))
        self.check()
        try:
            with _client().stream(method, url, headers=headers, **options) as response:
                self.response = {"status": response.status_code}
                read = _read_by(response, end)
                if not self.prepared.tool.secret:
                    self.response["text"] = mask_text(safe_text(read.text[:RESPONSE_CHARACTERS]))
                return _judged(read)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(f"{method} {url.split('?')[0]}: no connection ({error}).") from error


def is_timeout(error: BaseException | None) -> bool:
    """Whether the call took too long, by our clock or by that of the HTTP client, if a tool has loaded it."""
    client = sys.modules.get("httpx")
    return isinstance(error, TimeoutError | CallTimeout) or (
        client is not None and isinstance(error, client.TimeoutException)
    )


def _read_by(response: httpx.Response, end: float) -> httpx.Response:
    """The answer with its body. httpx's timeouts start anew with each byte; the call's does not."""
    import httpx

    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if monotonic() > end:
            raise httpx.ReadTimeout("the answer came too slowly", request=response.request)
    headers = httpx.Headers([(k, v) for k, v in response.headers.raw if k.lower() not in DECODED_HEADERS])
    return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)


def _judged(response: httpx.Response) -> httpx.Response:
    """Tell a definite refusal from an answer that says nothing about what happened."""
    status = response.status_code
    if status in RETRY_STATUS:
        after = retry_after_seconds(response.headers.get("Retry-After", ""))
        raise RetryLater(after, f"the other side answered {status}.", status=status)
    if 400 <= status < 500 and status not in (*NO_WAIT_STATUS, 409):
        raise Refused(f"the other side answered {status}: {response.text[:300]}", status=status)
    response.raise_for_status()
    return response


def retry_after_seconds(text: str) -> float:
    """Seconds of a Retry-After header (RFC 9110, 10.2.3); 0 where it is absent, past or not understood."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text), 10**9)) if len(text) < 12 else 1e9
    try:
        when = datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


@Once
def _client() -> httpx.Client:
    import httpx

    # One for the process: connections are reused, and it is made after the fork. No redirect is followed: a key must
    # not travel to an address nobody named. No limit of its own: each thread that calls has one, and threads are few.
    kept = max(32, get_conf().concurrency)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept)
    return httpx.Client(follow_redirects=False, limits=limits)
