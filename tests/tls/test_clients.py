"""Clients over TLS: what works, and what a client is told of everything that does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pyddmq import (
    AsyncConsumer,
    AsyncProducer,
    ClientMisuse,
    Consumer,
    NotThrift,
    OutgoingMessage,
    Producer,
    Tls,
    TlsFailed,
)
from tests.insides import stream_of
from tests.patient import PATIENCE_MS
from tests.running_node import RunningNode
from tests.tls.authority import HOUR
from tests.tls.conftest import Certificates


@pytest.fixture(scope="module")
def node(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that asks for certificates, and requires them of consumers."""
    yaml = certificates.yaml(ask="optional").replace(
        "consumer: {port: 0}", "consumer: {port: 0, clientCertificates: required}"
    )
    with RunningNode(yaml, tmp_path_factory.mktemp("node")) as running:
        yield running


def by_thread(address: str, tls: Tls | None) -> None:
    """Pull once by the synchronous client, and never again."""
    with Consumer(address, "billing", tls=tls, linger_ms=1, timeout_ms=PATIENCE_MS, submit_tries=1) as consumer:
        consumer.pull()


def by_loop(address: str, tls: Tls | None) -> None:
    """Pull once by the client of asyncio."""

    async def pull() -> None:
        async with AsyncConsumer(
            address, "billing", tls=tls, linger_ms=1, timeout_ms=PATIENCE_MS, submit_tries=1
        ) as consumer:
            await consumer.pull()

    asyncio.run(pull())


Pull = Callable[[str, Tls | None], None]
either = pytest.mark.parametrize("pull", [by_thread, by_loop])


def test_publish_pull_and_ack(node: RunningNode, certificates: Certificates) -> None:
    """Over TLS all is as without it, for the synchronous client."""
    with Producer(node.producer_tls, tls=certificates.tls(), timeout_ms=PATIENCE_MS) as producer:
        producer.send("orders", b"x" * 100_000)
        assert producer.send_soon(OutgoingMessage(topic="orders", body=b"soon")).result().attempts == 1
    with Consumer(node.consumer_tls, "billing", tls=certificates.tls("client"), timeout_ms=PATIENCE_MS) as consumer:
        for body in (b"x" * 100_000, b"soon"):
            [message] = consumer.pull()
            assert message.body == body
            consumer.ack(message)


def test_publish_pull_and_ack_with_asyncio(node: RunningNode, certificates: Certificates) -> None:
    """And for the client of asyncio."""

    async def run() -> None:
        tls = certificates.tls("client")
        async with AsyncProducer(node.producer_tls, tls=tls, timeout_ms=PATIENCE_MS) as producer:
            await producer.send("orders", b"y")
        async with AsyncConsumer(node.consumer_tls, "billing", tls=tls, timeout_ms=PATIENCE_MS) as consumer:
            [message] = await consumer.pull()
            assert message.body == b"y"
            consumer.ack(message)

    asyncio.run(run())


@either
def test_ca_that_is_not_trusted(node: RunningNode, certificates: Certificates, pull: Pull) -> None:
    """Nothing is sent, and nobody tries again."""
    with pytest.raises(TlsFailed, match="no trusted CA issued its certificate; pass the file of its CA") as failed:
        pull(node.consumer_tls, certificates.tls("client", ca=certificates.foreign_ca))
    assert (failed.value.retriable, failed.value.sent) == (False, False)


@either
def test_certificate_of_another_name(node: RunningNode, certificates: Certificates, pull: Pull) -> None:
    """The host of the address, or the name that is given."""
    tls = certificates.tls("client")
    other = Tls(ca=tls.ca, certificate=tls.certificate, key=tls.key, server_name="elsewhere")
    with pytest.raises(TlsFailed, match="its certificate has another name"):
        pull(node.consumer_tls, other)
    pull(node.consumer_tls, Tls(ca=tls.ca, certificate=tls.certificate, key=tls.key, server_name="localhost"))


@either
def test_certificate_is_missing(node: RunningNode, certificates: Certificates, pull: Pull) -> None:
    """With TLS 1.3 the client hears of it with its first answer only; the call took no effect."""
    with pytest.raises(TlsFailed, match="the node requires a client certificate; pass one") as failed:
        pull(node.consumer_tls, certificates.tls())
    assert not failed.value.sent


@either
@pytest.mark.parametrize(
    "case", [("foreign", "no CA that the node trusts issued it"), ("expired", "it has expired"), ("early", "valid")]
)
def test_certificate_is_refused(
    node: RunningNode, certificates: Certificates, pull: Pull, case: tuple[str, str]
) -> None:
    """The client is told why, as far as an alert goes."""
    name, said = case
    with pytest.raises(TlsFailed, match=f"the node refuses the client's certificate: .*{said}"):
        pull(node.consumer_tls, certificates.tls(name))


@either
def test_plain_client_on_a_tls_port(node: RunningNode, pull: Pull) -> None:
    """It is told what to write."""
    address = node.consumer_tls.removeprefix("tls://")
    with pytest.raises(NotThrift, match=f"it speaks TLS; write tls://{address}"):
        pull(address, None)


@either
def test_tls_client_on_a_plain_port(node: RunningNode, certificates: Certificates, pull: Pull) -> None:
    """The node tells it by an alert."""
    with pytest.raises(TlsFailed, match="the port does not speak TLS; remove tls://"):
        pull(f"tls://{node.consumer}", certificates.tls())


@either
@pytest.mark.parametrize(
    "case",
    [(-3 * HOUR, -HOUR, "its certificate has expired"), (HOUR, 3 * HOUR, "is not valid yet; check the clocks")],
    ids=["expired", "early"],
)
def test_node_certificate_out_of_its_time(
    certificates: Certificates, tmp_path: Path, pull: Pull, case: tuple[timedelta, timedelta, str]
) -> None:
    """Before or after: the clocks may be the reason."""
    begins, ends, said = case
    files = certificates.authority.issue("node", begins=begins, ends=ends).write(tmp_path, "node")
    with listening(files) as address, pytest.raises(TlsFailed, match=said):
        pull(f"tls://{address}", certificates.tls())


@contextlib.contextmanager
def listening(files: tuple[str, str]) -> Iterator[str]:
    """A TLS server by itself, for one connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                plain, _ = server.accept()
                with plain, context.wrap_socket(plain, server_side=True) as secured:
                    secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_connection_that_the_node_closed_is_opened_anew(node: RunningNode, certificates: Certificates) -> None:
    """It is noticed before anything is sent into it, tickets of TLS 1.3 are no end."""
    with Producer(node.producer_tls, tls=certificates.tls(), timeout_ms=PATIENCE_MS, resends=0) as producer:
        for _ in range(3):
            producer.send("orders", b"z", key="again")
        for connection in node.call(lambda: list(node.node.producer.connections)):
            node.call(connection.close)
        stream = stream_of(producer)
        while not stream.has_ended():
            threading.Event().wait(0.002)
        assert producer.send("orders", b"z", key="again").attempts == 1


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (Tls(ca="/no/such/file"), "the CA in /no/such/file cannot be used: no such file"),
        (Tls(ca=__file__), "cannot be used"),
        (Tls(certificate="/no/such/file"), "the client certificate in /no/such/file cannot be used: no such file"),
        (Tls(key="/no/such/file"), "a TLS key without its certificate"),
        (Tls(server_name="node..example"), "'node..example' is not a valid server_name"),
    ],
)
def test_file_that_cannot_be_used(tls: Tls, said: str) -> None:
    """Is the caller's mistake, named with its file."""
    with pytest.raises(ClientMisuse, match=said):
        tls.context()


def test_settings_of_tls_are_for_its_addresses(certificates: Certificates) -> None:
    """Nothing is sent in clear because a word was forgotten."""
    with pytest.raises(ClientMisuse, match=r"write tls://127\.0\.0\.1:9713"):
        Consumer("127.0.0.1:9713", "billing", tls=certificates.tls())
