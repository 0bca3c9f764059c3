"""Clients over TLS: what works, and what a client is told of everything that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyddmq import Consumer, Producer
from tests.running_node import RunningNode
from tests.tls.conftest import Certificates


@pytest.fixture(params=["1.2", "1.3"])
def node(request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path) -> Iterator[RunningNode]:
    """A node that asks for certificates."""
    with RunningNode(certificates.yaml(ask="optional"), tmp_path) as running:
        yield running


def test_publish_pull_and_ack(node: RunningNode, certificates: Certificates) -> None:
    """Over TLS all is as without it."""
    with Producer(node.producer_tls, tls=certificates.tls()) as producer:
        producer.send("orders", b"x" * 100_000)
    with Consumer(node.consumer_tls, "billing", tls=certificates.tls("client")) as consumer:
        [message] = consumer.pull()
        assert message.body == b"x" * 100_000
        consumer.ack(message)
