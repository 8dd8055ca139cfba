"""Webhooks go only where they may: no address inside, no name that changes its meaning, no redirect."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from durableops.conf import override_conf
from durableops.engine.once import Once
from durableops.engine.relaying import guarded
from durableops.errors import InputRefused
from runs.models import (
    OutboxMessage,
    WebhookEndpoint,
)
from tests.engine.relaying.conftest import states, subscribed
from tests.engine.relaying.web_receiver import receiving

pytestmark = [
    pytest.mark.engine, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("this_machine_is_allowed")
]  # fmt: skip


# Only where it may go (C148).


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://localhost:6379/",
        "http://10.0.0.7/",
        "http://ann:pw@93.184.216.34/",
    ],
)
def test_address_inside_is_refused_when_it_is_saved(engine, url):  # C148
    with override_conf(webhook_allow=""), pytest.raises(InputRefused):
        subscribed(engine, url)
    assert not WebhookEndpoint.objects.exists()


def test_address_inside_is_refused_when_it_is_sent_to_even_if_it_was_saved(engine, make_relay, shipped):  # C148
    with receiving() as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        with override_conf(webhook_allow=""):
            make_relay().drain()
        assert receiver.got == []
    message = OutboxMessage.objects.get()
    assert (states(run), message.error_class, message.sendings) == (["pending"], "AddressRefused", 0)


def test_name_that_means_another_host_a_moment_later_reaches_nobody(engine, make_relay, shipped, monkeypatch):  # C148
    """Outside when it is saved, this machine when it is sent: what is connected to is what was checked."""
    real, answers = socket.getaddrinfo, ["93.184.216.34"]

    def getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host != "hooks.example":
            return real(host, port, *args, **more)
        number = answers.pop(0) if answers else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with receiving() as receiver, override_conf(webhook_allow=""):
        port = receiver.url.split(":")[2].split("/")[0]
        subscribed(engine, f"http://hooks.example:{port}/in")
        run = engine.run("ship")
        make_relay().drain()
        assert receiver.got == []
    assert states(run) == ["pending"]
    assert OutboxMessage.objects.get().error_class == "AddressRefused"


def test_name_is_resolved_once_for_a_connection(engine, make_relay, shipped, monkeypatch):
    real, asked = socket.getaddrinfo, []

    def getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host != "hooks.example":
            return real(host, port, *args, **more)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with receiving() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        subscribed(engine, f"http://hooks.example:{port}/in")
        asked.clear()
        run = engine.run("ship")
        make_relay().drain()
    assert asked == ["hooks.example"]
    assert receiver.got[0].headers["host"] == f"hooks.example:{port}"
    assert states(run) == ["delivered"]


def test_redirect_into_our_own_network_is_not_followed(engine, make_relay, shipped):  # C148
    with receiving() as inside, receiving() as outside:
        outside.script = [(302, {"location": inside.url}, b"")]
        subscribed(engine, outside.url)
        engine.run("ship")
        make_relay().drain()
        assert len(outside.got) == 1
        assert inside.got == []


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for this name, and the file of the one who signed it: itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file


@pytest.mark.parametrize(("named", "arrives"), [("hooks.example", True), ("other.example", False)])
def test_certificate_is_for_the_name_although_a_number_is_connected_to(
    engine, make_relay, shipped, monkeypatch, tmp_path, settings, named, arrives
):
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host != "hooks.example":
            return real(host, port, *args, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    settings.PRODUCTION = True
    context, file = certificate(tmp_path, named)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr(guarded, "_pool", Once(guarded._pool._make))
    with receiving(tls=context) as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        subscribed(engine, f"https://hooks.example:{port}/in")
        run = engine.run("ship")
        make_relay().drain()
        guarded._pool().close()
        assert len(receiver.got) == int(arrives)
    assert states(run) == ["delivered" if arrives else "pending"]


def test_unencrypted_address_is_refused_in_production(engine, settings):
    settings.PRODUCTION = True
    with pytest.raises(InputRefused, match="https://"):
        subscribed(engine, "http://hooks.example/")
