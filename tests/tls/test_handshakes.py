"""Handshakes in virtual time: bounds, refusals, resumption; a peer that misbehaves costs nobody else anything."""

from __future__ import annotations

import ssl

import pytest

from proxy.port.server import CONNECTIONS_REFUSED
from proxy.tls.channel import HANDSHAKE_BYTES_MAX
from proxy.tls.failures import ALERT
from proxy.tls.port import FAILED, HANDSHAKES
from tests.insides import opened_of
from tests.tls.conftest import Certificates
from tests.tls.world import Speaking, TlsWorld

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_carry_calls(certificates: Certificates, version: ssl.TLSVersion) -> None:
    """And the connection says that it is encrypted, and whose certificate was shown."""
    world = TlsWorld(certificates, ask="optional")
    client = world.open("consumer", world.context("client", version))
    opened_of(world.node).store.put("orders", b"x" * 100_000)
    [message] = world.pull(client.raw).value.messages
    assert message.value == b"x" * 100_000
    [connection] = world.node.consumer.connections
    assert connection.is_encrypted
    assert connection.certificate is not None
    assert connection.certificate.subject == "CN=worker-1,O=Test"
    assert connection.certificate.names == ("DNS:localhost", "URI:spiffe://test/worker-1")
    assert connection.certificate.not_after_ms == certificates.client.not_after_ms
    assert world.counted(HANDSHAKES, "TLSv1.2" if version is VERSIONS[0] else "TLSv1.3") == 1


def test_without_a_certificate_there_is_none(certificates: Certificates) -> None:
    """`optional` takes a client that shows none."""
    world = TlsWorld(certificates, ask="optional")
    assert world.pull(world.connect("consumer")).error is None
    [connection] = world.node.consumer.connections
    assert (connection.is_encrypted, connection.certificate) == (True, None)


@pytest.mark.parametrize("ask", ["optional", "required"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("foreign", "unknown_ca"), ("expired", "expired"), ("early", "not_yet_valid"), ("server", "bad_certificate")],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_certificate_that_is_wrong_is_refused(
    certificates: Certificates, version: ssl.TLSVersion, name: str, reason: str, ask: str
) -> None:
    """Also where none is needed; the client gets an alert, the counter the reason, and nobody a connection."""
    world = TlsWorld(certificates, ask=ask)
    client = world.open("consumer", world.context(name, version))
    assert client.error is not None
    assert "ALERT" in str(client.error.reason)
    assert (client.lost, world.counted(FAILED, reason)) == (True, 1)
    assert not world.node.consumer.connections
    assert world.port.shaking == 0


def test_no_certificate_where_one_is_required(certificates: Certificates) -> None:
    """The client is told by an alert."""
    world = TlsWorld(certificates, ask="required")
    client = world.open()
    assert client.error is not None
    assert "CERTIFICATE_REQUIRED" in str(client.error.reason)
    assert world.counted(FAILED, "no_certificate") == 1


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_are_refused(certificates: Certificates) -> None:
    """1.1 and older are not spoken, 1.2 is not where the configuration says 1.3."""
    world = TlsWorld(certificates)
    context = world.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    client = world.open("consumer", context)
    assert client.error is not None
    assert "PROTOCOL_VERSION" in str(client.error.reason)
    assert world.counted(FAILED, "version") == 1
    newer = TlsWorld(certificates, "minimumVersion: '1.3'")
    refused = newer.open("consumer", newer.context(version=VERSIONS[0]))
    assert refused.error is not None
    assert newer.counted(FAILED, "version") == 1
    assert newer.open("consumer", newer.context(version=VERSIONS[1])).ready


def test_ciphers_without_forward_secrecy_are_refused(certificates: Certificates) -> None:
    """With TLS 1.2; 1.3 has none."""
    world = TlsWorld(certificates)
    context = world.context(version=VERSIONS[0])
    context.set_ciphers("ECDHE+AES+SHA256:!AESGCM:!CHACHA20:@SECLEVEL=0")
    assert world.open("consumer", context).error is not None
    assert world.counted(FAILED, "cipher") == 1


def test_connection_counts_before_its_handshake(certificates: Certificates) -> None:
    """Silent ones take the places of their address, and those of others are free."""
    world = TlsWorld(certificates, node=", maxConnections: 8, maxConnectionsPerAddress: 5")
    silent = [world.clear(b"", host="10.0.0.9") for _ in range(6)]
    assert [each.lost for each in silent] == [False] * 5 + [True]
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "address") == 1
    assert world.open("consumer").ready


def test_thousand_half_open_handshakes(certificates: Certificates) -> None:
    """All of them said hello, or nothing: a healthy client is served meanwhile, and they are closed in time."""
    world = TlsWorld(certificates)
    healthy = world.open("consumer")
    context = world.context()
    half = [Speaking(world.connect_raw(), context) for _ in range(500)]
    for each in half:
        each.silent = False
        world.network.connect(each, ("127.0.0.1", 9714), host="10.0.0.7")
        each.silent = True
    quiet = [world.clear(b"", host="10.0.0.8", wait=0) for _ in range(500)]
    world.run(0.5)
    assert world.port.shaking == 1000
    opened_of(world.node).store.put("orders", b"x")
    assert [each.value for each in world.pull(healthy.raw).value.messages] == [b"x"]
    world.run(9)
    assert not any(each.lost for each in half)
    world.run(90)
    assert all(each.lost for each in half)
    assert all(each.lost for each in quiet)
    assert (world.port.shaking, world.counted(FAILED, "timeout")) == (0, 1000)
    assert len(world.node.consumer.connections) == 1
    assert world.pull(healthy.raw).error is None


def test_endless_hello_is_cut(certificates: Certificates) -> None:
    """Nothing is kept of a client that sends without ever shaking hands."""
    world = TlsWorld(certificates)
    client = world.clear(b"")
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xf0" + b"x" * (0x4000 - 4)
    for _ in range(HANDSHAKE_BYTES_MAX // len(record) + 1):
        client.transport.write(record)
    world.run(0.5)
    assert client.lost
    assert world.counted(FAILED, "too_long") + world.counted(FAILED, "other") == 1


@pytest.mark.parametrize(
    ("sent", "reason", "reported"),
    [
        (b"\x00\x00\x00\x10\x80\x01", "plain_text", ALERT),
        (b"GET / HTTP/1.1\r\n\r\n", "http", b"HTTP/1.1 400 Bad Request"),
    ],
)
def test_plain_text_on_a_tls_port(certificates: Certificates, sent: bytes, reason: str, reported: bytes) -> None:
    """The client is told in what it is likely to understand, and the connection closed."""
    world = TlsWorld(certificates)
    client = world.clear(sent)
    assert client.received.startswith(reported)
    assert (client.ended, world.counted(FAILED, reason)) == (True, 1)
    assert not world.node.consumer.connections


def test_tls_on_a_plain_port(certificates: Certificates) -> None:
    """A client that says hello there gets an alert, not a reset."""
    world = TlsWorld(certificates)
    speaking = Speaking(world.connect_raw(), world.context())
    world.network.connect(speaking, ("127.0.0.1", 9713))
    world.run(0.1)
    assert speaking.error is not None
    assert "UNEXPECTED_MESSAGE" in str(speaking.error.reason)
    assert world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "consumer", "tls") == 1


def test_no_session_is_taken_up_where_certificates_are_asked_for(certificates: Certificates) -> None:
    """TLS 1.2 keeps sessions in the server, and Python cannot turn that off: such a client is closed and forgotten."""
    world = TlsWorld(certificates, ask="required")
    for version in VERSIONS:
        context = world.context("client", version)
        first = world.open("consumer", context)
        assert world.pull(first.raw).error is None
        session = first.engine.session
        assert version is VERSIONS[0] or session is None or not session.has_ticket
        again = world.open("consumer", context, session=session)
        if version is VERSIONS[0]:
            assert (again.lost, world.counted(FAILED, "resumed")) == (True, 1)
            again = world.open("consumer", context, session=session)
        assert (again.lost, again.engine.session_reused) == (False, False)
        assert world.pull(again.raw).error is None


def test_end_by_close_notify_is_an_end_of_file(certificates: Certificates) -> None:
    """A client that sends no more gets the answers to what it asked, a parked pull an empty one."""
    world = TlsWorld(certificates)
    client = world.open("consumer", world.context(version=VERSIONS[1]))
    client.write(world.pull_frame(client.raw, linger_ms=30_000))
    world.run(0.1)
    client.say_end()
    world.run(0.5)
    [reply] = client.raw.replies
    assert not reply.value.messages
    assert client.lost
    assert not world.node.consumer.connections


def test_nothing_is_kept_of_what_comes_after_close_notify(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has said its end and reads no reply may send for as long as the reply waits."""
    made: list[ssl.MemoryBIO] = []
    make = ssl.MemoryBIO

    def kept() -> ssl.MemoryBIO:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(ssl, "MemoryBIO", kept)
    world = TlsWorld(certificates)
    client = world.open()
    for _ in range(4):
        opened_of(world.node).store.put("orders", b"x" * 1_000_000)
    client.below.pause_reading()
    for _ in range(4):
        client.write(world.pull_frame(client.raw, linger_ms=1000))
    world.run(0.1)
    client.say_end()
    for _ in range(50):
        client.below.write(bytes(16_384))
        world.run(0.01)
    assert world.node.consumer.connections
    assert max(each.pending for each in made) <= 16_384


def test_broken_record_ends_its_connection_alone(certificates: Certificates) -> None:
    """What is behind a wrong sum is nobody's."""
    world = TlsWorld(certificates)
    client, other = world.open(), world.open()
    client.below.write(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
    world.run(0.5)
    assert (client.lost, other.lost) == (True, False)
    assert world.pull(other.raw).error is None
