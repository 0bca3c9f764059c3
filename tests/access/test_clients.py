"""The clients of pyddmq bring their token by themselves, over real sockets: sync, asyncio, and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli.app import run
from pyddmq import (
    AccessRefused,
    AsyncConsumer,
    AsyncProducer,
    ClientMisuse,
    Consumer,
    OutgoingMessage,
    Producer,
    PullRefused,
    TopicNotAllowed,
)
from pyddmq.client.tokens import SigningIn, token_of
from tests.access.world import token_file
from tests.running_node import RunningNode

YAML = """
node: {producerPort: 0, consumerPort: 0, adminPort: 0, segmentBytes: 1048576, maxMessageBytes: 500000}
access:
  tokens: %s
  rules:
    - {principals: [shop], produce: [orders], consume: [billing], transact: [deals]}
topics: {orders: {queues: 1}}
groups: [{group: billing, topics: [{topic: orders}]}]
"""
FAR_MS = 1 << 50


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RunningNode, str]]:
    """A node with rules, and the token of one principal."""
    monkeypatch.delenv("PYDDMQ_TOKEN", raising=False)
    monkeypatch.delenv("PYDDMQ_TOKEN_FILE", raising=False)
    file, tokens = token_file(tmp_path, {"shop": FAR_MS})
    with RunningNode(YAML % file, tmp_path / "data") as node:
        yield node, tokens["shop"]


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_synchronous_clients_bring_their_token(secured: tuple[RunningNode, str], protocol: str) -> None:
    """By an argument; without one they are nobody, and a wrong one is told as such and not tried again."""
    node, token = secured
    producer, consumer = node.producer, node.consumer
    with Producer(producer, token=token, protocol=protocol) as sender:  # type: ignore[arg-type]
        assert sender.send("orders", b"1").offset == 0
        soon = sender.send_soon(OutgoingMessage(topic="orders", body=b"2"))
        assert soon.result(20).offset == 1
    with Consumer(consumer, "billing", token=token, protocol=protocol, linger_ms=2000) as client:  # type: ignore[arg-type]
        messages = client.pull()
        for each in messages:
            client.ack(each)
    assert [each.body for each in messages] == [b"1", b"2"]
    with Producer(producer) as nobody, pytest.raises(TopicNotAllowed):
        nobody.send("orders", b"x")
    with Consumer(consumer, "billing", linger_ms=20) as nobody_else, pytest.raises(PullRefused):
        nobody_else.pull()
    with Producer(producer, token=token + "0") as wrong, pytest.raises(AccessRefused, match="wrong or expired"):
        wrong.send("orders", b"x")


def test_clients_of_asyncio_bring_their_token(secured: tuple[RunningNode, str]) -> None:
    """Likewise."""
    node, token = secured

    async def both() -> list[bytes]:
        async with AsyncProducer(node.producer, token=token) as sender:
            await sender.send("orders", b"1")
        async with AsyncConsumer(node.consumer, "billing", token=token, linger_ms=2000) as client:
            messages = await client.pull()
            for each in messages:
                client.ack(each)
        async with AsyncProducer(node.producer, token="junk") as wrong:
            with pytest.raises(AccessRefused):
                await wrong.send("orders", b"x")
        return [each.body for each in messages]

    assert asyncio.run(both()) == [b"1"]


def test_token_comes_from_the_environment_or_a_file(
    secured: tuple[RunningNode, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Never from a command line; the file wins over the variable, an argument over both."""
    node, token = secured
    file = tmp_path / "token"
    file.write_text(token + "\n")
    send = ["send", "orders", "hello", "--producer", node.producer]
    assert run(send) != 0
    assert run([*send, "--token-file", str(file)]) == 0
    monkeypatch.setenv("PYDDMQ_TOKEN", token)
    assert run(send) == 0
    monkeypatch.setenv("PYDDMQ_TOKEN", "junk")
    assert run(send) != 0
    monkeypatch.setenv("PYDDMQ_TOKEN_FILE", str(file))
    assert run(send) == 0
    assert run(["pull", "billing", "--consumer", node.consumer, "--count", "3"]) == 0
    assert token not in "".join(capsys.readouterr())
    assert token_of("") is None
    file.write_text("")
    with pytest.raises(ClientMisuse, match="is empty"):
        token_of(None)


def test_token_never_goes_over_a_network_as_it_is() -> None:
    """The client does not even send it, whatever a node would say to it."""
    signing_in = SigningIn("h:1", "secret", "binary")
    assert signing_in.token(("127.0.0.1", 1), is_encrypted=False) == "secret"
    assert signing_in.token(("::1", 1, 0, 0), is_encrypted=False) == "secret"
    assert signing_in.token(("10.0.0.1", 1), is_encrypted=True) == "secret"
    for peer in (("10.0.0.1", 1), ("::ffff:10.0.0.1", 1, 0, 0), ("node", 1)):
        with pytest.raises(ClientMisuse, match="only over TLS or to loopback addresses") as caught:
            signing_in.token(peer, is_encrypted=False)
        assert "secret" not in str(caught.value)
