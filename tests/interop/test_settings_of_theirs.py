"""What a RocketMQ keeps elsewhere by its settings is read, or named, when its store comes here."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from broker.opening.foreign import in_layout
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from tests.interop.conftest import Surroundings
from tests.interop.rocketmq import Broker, Client
from tests.interop.test_their_store import foreign_settings

pytestmark = pytest.mark.long

MESSAGES = 6


def send(client: Client, broker: Broker) -> None:
    """Send six messages to a queue."""
    client.make_topic(broker, "t", 1)
    for number in range(MESSAGES):
        body = base64.b64encode(b"%d" % number).decode()
        client.ask(do="send", topic="t", queue=0, messages=[{"body": body, "tags": "", "key": "k", "properties": {}}])


def test_offsets_of_a_rocketmq_with_light_queues_go_both_ways(rocket: Surroundings) -> None:
    """`enableLmq=true`: what its groups committed is read here, and it goes on at what is committed here."""
    root = rocket.folder / "theirs"
    settings = foreign_settings(root, sums=False) | {"enableLmq": "true"}
    with rocket.broker("broker", settings) as broker, rocket.client() as client:
        send(client, broker)
        client.consume("g", "t", deliveries=MESSAGES)
        broker.stop()
    offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=SystemClock())
    assert offsets.get("g", "t", 0) == MESSAGES
    offsets.set("g", "t", 0, MESSAGES - 2)
    assert offsets.save()
    with rocket.broker("again", settings), rocket.client() as client:
        # Its consumers keep no order.
        assert sorted(message.body for message in client.consume("g", "t", deliveries=2)) == [b"4", b"5"]


def test_what_pop_consumers_have_in_rocksdb_is_named(rocket: Surroundings) -> None:
    """With popConsumerKVServiceEnable, while a message is in flight; without it the empty database is passed over."""
    with_it, without = rocket.folder / "with", rocket.folder / "without"
    for root, enabled in ((with_it, True), (without, False)):
        on = str(enabled).lower()
        settings = foreign_settings(root, sums=False)
        settings |= {"timerWheelEnable": "true", "popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": on}
        with rocket.broker(root.name + "-broker", settings) as broker, rocket.client() as client:
            send(client, broker)
            client.pop(broker, "gpop", "t", count=2, invisible_ms=600_000)
            broker.stop()
    assert kinds(with_it) == ["pop_in_rocksdb"]
    assert kinds(without) == []


def kinds(root: Path) -> list[str]:
    """What the layout of a store has that is not read."""
    return [found.kind for found in in_layout(str(root), RealDisk())]
