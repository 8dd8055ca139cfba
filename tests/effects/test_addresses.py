"""Which addresses webhooks may go to: judged as text when saved, and as numbers when connected to (C148)."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from durableops.checks import check_webhook_allow
from durableops.conf import override_conf
from durableops.effects import addresses
from durableops.effects.addresses import AddressRefused
from durableops.errors import InputRefused, NotSent


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example/in", "https://"),
        ("ftp://hooks.example/in", "https://"),
        ("file:///etc/passwd", "https://"),
        ("//hooks.example/in", "https://"),
        ("hooks.example", "https://"),
        ("https://", "names no host"),
        ("https:///in", "names no host"),
        ("https://ann:secret@hooks.example/", "name or password"),
        ("https://ann@hooks.example/", "name or password"),
        ("https://hooks.example/#top", "fragment"),
        ("https://hooks.example:0/", "port is 0"),
        ("https://hooks.example:99999/", "Port"),
        ("https://hooks.example:x/", "Port"),
        ("https://hooks.example\\@10.0.0.1/", "printable"),
        ("https://hooks.example/a b", "printable"),
        ("https://hooks.example/\r\nX: y", "printable"),
        ("https://hooks.example/\x00", "printable"),
        ("https://hööks.example/", "printable"),
        ("https://[fe80::1%25eth0]/", "names no host"),
        ("https://[::1/", "Invalid IPv6"),
        ("https://" + "a" * 3000, "2000"),
        ("", "2000"),
    ],
)
def test_address_that_cannot_be_used_is_refused_as_text(url: str, why: str):
    with pytest.raises(InputRefused, match=why):
        addresses.read(url, allow_http=False)


def test_address_is_read_into_its_parts_once():
    target = addresses.read("https://Hooks.Example:8443/in/T000?x=1", allow_http=False)
    assert (target.scheme, target.host, target.port, target.path) == ("https", "hooks.example", 8443, "/in/T000?x=1")
    assert target.shown == "https://hooks.example:8443"
    assert addresses.read("http://[::1]/", allow_http=True).port == 80


FORBIDDEN = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
    "169.254.169.254", "169.254.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254",
    "ff02::1", "fec0::1", "2001:db8::1", "100::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::127.0.0.1", "::a00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "2002:c0a8:101::", "2001:0:7f00:1::5", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("number", FORBIDDEN)
def test_number_inside_is_refused_in_every_spelling(number: str):
    assert addresses.why_not(ipaddress.ip_address(number)) != ""


@pytest.mark.parametrize("number", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_number_outside_is_allowed(number: str):
    assert addresses.why_not(ipaddress.ip_address(number)) == ""


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "localhost."])
def test_host_that_means_this_machine_in_another_spelling_is_refused(host: str):
    with pytest.raises((AddressRefused, NotSent)):
        addresses.resolve(host, 443)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let names resolve to these numbers, one answer after the other. Returns what was asked."""
    asked: list[str] = []
    left = list(answers)

    def getaddrinfo(host: str, port: int, **more: Any) -> list[Any]:
        asked.append(host)
        if not left:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port)) for number in left.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_name_with_one_number_inside_is_refused_altogether(monkeypatch: pytest.MonkeyPatch):
    resolving(monkeypatch, ["93.184.216.34", "169.254.169.254"])
    with pytest.raises(AddressRefused, match="credentials"):
        addresses.resolve("hooks.example", 443)


def test_name_that_resolves_outside_gives_its_numbers_once_each(monkeypatch: pytest.MonkeyPatch):
    resolving(monkeypatch, ["93.184.216.34", "93.184.216.34", "1.1.1.1"])
    assert addresses.resolve("hooks.example", 443) == ["93.184.216.34", "1.1.1.1"]


def test_name_that_does_not_resolve_is_not_sent_to(monkeypatch: pytest.MonkeyPatch):
    resolving(monkeypatch)
    with pytest.raises(NotSent, match="does not resolve"):
        addresses.resolve("hooks.example", 443)


def test_setting_allows_a_network_and_a_name_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    with override_conf(webhook_allow="10.1.0.0/16, hooks.internal, fd00::/8"):
        assert addresses.why_not(ipaddress.ip_address("10.1.2.3")) == ""
        assert addresses.why_not(ipaddress.ip_address("::ffff:10.1.2.3")) == ""
        assert addresses.why_not(ipaddress.ip_address("fd00::1")) == ""
        assert addresses.why_not(ipaddress.ip_address("10.2.0.1")) != ""
        resolving(monkeypatch, ["192.168.0.1"], ["192.168.0.1"])
        assert addresses.resolve("Hooks.Internal", 443) == ["192.168.0.1"]
        with pytest.raises(AddressRefused):
            addresses.resolve("other.internal", 443)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "a/b", "10.1.2.3/8", "*.internal"])
def test_setting_that_cannot_be_read_is_complained_about_at_the_start(text: str):
    with override_conf(webhook_allow=text):
        [complaint] = check_webhook_allow(None)
        assert text in complaint.msg
