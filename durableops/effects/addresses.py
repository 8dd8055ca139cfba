"""Addresses that others gave us to send to: which of them may be used at all, and which hosts may be connected to.

Whoever may name an address must not be able to reach our own network with it: not by name, not by number, not by a name
that means another host a moment later, not by an IPv6 spelling of an IPv4 address. So the text is judged when it is
saved, and the number when a connection is made to it; nothing is resolved between that look and the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import urlsplit

from durableops.conf import get_conf
from durableops.errors import InputRefused, NotSent

MAX_URL_CHARACTERS = 2000
_NAT64 = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = IPv6Network("::/96")

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network


class AddressRefused(NotSent):
    """The host is, or has become, one that must not be connected to. Nothing was sent."""

    code = "call.address_refused"


@dataclass(frozen=True, kw_only=True)
class Target:
    """An address in its parts, read once: whoever connects uses these and reads no text again."""

    scheme: str
    host: str
    """Lower case; IPv6 without its brackets."""
    port: int
    path: str
    """With the query."""

    @property
    def shown(self) -> str:
        """What people see of it in errors: a path may be a secret."""
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def read(url: str, *, allow_http: bool) -> Target:
    """Read a webhook's address. Raises InputRefused for one that cannot be used, wherever its host may be."""
    if (
        not url
        or len(url) > MAX_URL_CHARACTERS
        or not url.isascii()
        or not url.isprintable()
        or set(url) & set(' \\"<>')
    ):
        raise _refused(f"it is not 1 to {MAX_URL_CHARACTERS} printable ASCII characters without spaces and quotes")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise _refused(str(error)) from None
    allowed = ("https", "http") if allow_http else ("https",)
    if parts.scheme not in allowed:
        raise _refused(f"it does not begin with {' or '.join(f'{scheme}://' for scheme in allowed)}")
    if not host or "%" in host:
        raise _refused("it names no host")
    if parts.username is not None or parts.password is not None:
        raise _refused("it carries a name or password; webhooks are signed, and addresses are shown to people")
    if parts.fragment:
        raise _refused("it has a fragment, which is never sent")
    if port == 0:
        raise _refused("its port is 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme=parts.scheme, host=host, port=port or (443 if parts.scheme == "https" else 80), path=path)


def shown_host(url: str) -> str:
    """What lists show of an address: its host, and the port if it is not the usual one."""
    try:
        target = read(url, allow_http=True)
    except InputRefused:
        return "(an address that cannot be read)"
    usual = 443 if target.scheme == "https" else 80
    return target.host if target.port == usual else f"{target.host}:{target.port}"


def resolve(host: str, port: int) -> list[str]:
    """The numbers a host has now, each of which may be connected to. Raises NotSent, AddressRefused when one may not.

    One that may not spoils all: whoever gives a name such numbers is up to something, or has a mistake to mend.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent(f"the name {host!r} does not resolve ({error}).") from error
    numbers = list(dict.fromkeys(str(row[4][0]) for row in found))
    if not _is_allowed_name(host):
        for number in numbers:
            if why := why_not(ipaddress.ip_address(number)):
                raise AddressRefused(f"{host!r} is {why}; such addresses are refused. DURABLEOPS_WEBHOOK_ALLOW lists "
                                     "those that may be used all the same.")  # fmt: skip
    return numbers


def why_not(address: Address) -> str:
    """Why this number must not be connected to; empty when it may be."""
    for meant in _meanings(address):
        if any(meant in network for network in _allowed_networks() if network.version == meant.version):
            continue
        if meant.is_loopback:
            return "this very machine"
        if meant.is_link_local:
            return "an address of this machine's own link, where clouds keep their credentials"
        if meant.is_multicast:
            return "a multicast address"
        if meant.is_unspecified or meant.is_reserved or not meant.is_global:
            return "an address of a private or reserved network"
        if isinstance(meant, IPv6Address) and meant.is_site_local:
            return "an address of a private or reserved network"
    return ""


def _meanings(address: Address) -> Iterator[Address]:
    """What it leads to: itself, and every IPv4 address in it. One that is translated on its way means only that."""
    if isinstance(address, IPv4Address):
        yield address
        return
    compatible = address in _IPV4_COMPATIBLE and address not in (IPv6Address("::"), IPv6Address("::1"))
    translated = address in _NAT64
    if address.ipv4_mapped is None and not translated:
        yield address
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if compatible or translated:
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    yield from (one for one in inner if one is not None)


def _is_allowed_name(host: str) -> bool:
    return host.lower().rstrip(".") in _allowed(get_conf().webhook_allow)[0]


def _allowed_networks() -> tuple[Network, ...]:
    return _allowed(get_conf().webhook_allow)[1]


@lru_cache(maxsize=8)
def _allowed(text: str) -> tuple[frozenset[str], tuple[Network, ...]]:
    """The names and networks of the setting. Raises ValueError for an entry that is neither."""
    names, networks = set(), []
    for entry in filter(None, (part.strip().lower() for part in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            if "/" in entry or not entry.replace("-", "").replace(".", "").isalnum():
                raise ValueError(f"{entry!r} is neither a network such as 10.1.0.0/16 nor a host's name") from None
            names.add(entry)
    return frozenset(names), tuple(networks)


def check_setting() -> None:
    """Raise ValueError if DURABLEOPS_WEBHOOK_ALLOW cannot be read."""
    _allowed(get_conf().webhook_allow)


def _refused(why: str) -> InputRefused:
    return InputRefused(f"the address is not accepted: {why}.", path="/url")
