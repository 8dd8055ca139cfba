"""One POST to an address that somebody else named: resolved once, checked, and connected to by that very number.

No redirect is followed, no proxy is asked, no more than a little of the answer is read, and all of it has to be over in
time. What the other side answered is not kept: its text may be anything.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpcore
import httpx

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.effects import addresses
from durableops.effects.addresses import Target
from durableops.engine.once import Once
from durableops.errors import CallTimeout, NotSent

MOST_BYTES = 64 * 1024
"""So much of an answer is read, to be able to use the connection again; of a longer one, the connection is dropped."""
KEPT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is taken from an answer."""

    status: int
    retry_after: str


def post(target: Target, *, headers: Mapping[str, str], body: bytes, timeout: float) -> Answer:
    """Send once. Raises NotSent when nothing left, CallTimeout, and OSError or httpcore's errors otherwise."""
    end = monotonic() + timeout
    url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    sent = {"host": _host_header(target), **headers}
    limits = dict.fromkeys(("connect", "read", "write", "pool"), timeout)
    try:
        with _pool().stream(
            "POST", url, headers=list(sent.items()), content=body, extensions={"timeout": limits}
        ) as response:
            _read(response, end)
            found = {name.lower(): value for name, value in response.headers}
            return Answer(status=response.status, retry_after=found.get(b"retry-after", b"").decode("ascii", "ignore"))
    except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
        raise NotSent(f"no connection to {target.shown} ({error or type(error).__name__}).") from error
    except httpcore.TimeoutException as error:
        raise CallTimeout(f"{target.shown} did not answer within {timeout:g} s.") from error


def _read(response: httpcore.Response, end: float) -> None:
    """Read the answer to its end, if that is near. The library's timeouts begin anew with each byte; ours does not."""
    seen = 0
    stream: Iterable[bytes] = response.iter_stream()
    for chunk in stream:
        seen += len(chunk)
        if monotonic() > end:
            raise CallTimeout("the answer came too slowly.")
        if seen > MOST_BYTES:
            return


def _host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    usual = 443 if target.scheme == "https" else 80
    return host if target.port == usual else f"{host}:{target.port}"


class _Backend(httpcore.NetworkBackend):
    """Connects to the numbers that were checked, and to nothing else. The name is still what certificates are for."""

    def __init__(self) -> None:
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        last: Exception | None = None
        for number in addresses.resolve(host, port):
            try:
                return self._plain.connect_tcp(number, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                last = error
        raise last or httpcore.ConnectError(f"{host} has no address")

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.NetworkStream:
        raise NotSent("webhooks are never sent to sockets of this machine.")


@Once
def _pool() -> httpcore.ConnectionPool:
    # One for the process, made at first use. Certificates as httpx finds them: certifi's, or SSL_CERT_FILE.
    context: ssl.SSLContext = httpx.create_ssl_context()
    return httpcore.ConnectionPool(
        ssl_context=context,
        network_backend=_Backend(),
        max_connections=None,
        max_keepalive_connections=max(32, get_conf().relay_concurrency),
        keepalive_expiry=KEPT_SECONDS,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    )
