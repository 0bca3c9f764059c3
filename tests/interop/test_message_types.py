"""Message types of topics go both ways: RocketMQ sees ours, and this broker those that its tools set."""

from __future__ import annotations

import pytest

from broker.format.message_type import MessageType
from tests.interop.conftest import Surroundings
from tests.interop.contents import open_store
from tests.interop.sides import settings_for

pytestmark = pytest.mark.long

OURS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


def test_types_are_seen_by_rocketmq_and_its_changes_here(rocket: Surroundings) -> None:
    """Each type of ours is that type there; one that its tools set or change is in force here."""
    root = rocket.folder / "store"
    store = open_store(root)
    for name in (*OURS, "silent"):
        store.create_topic(name, 2)
    store.topic_changes.set_types({name: MessageType(name) for name in OURS})
    store.close()
    with rocket.broker("broker", settings_for(root)) as broker, rocket.client() as client:

        def seen(topic: str) -> tuple[str, dict[str, str]]:
            [answer] = client.ask(do="type", broker=broker.address, topic=topic)
            return answer["type"], answer["attributes"]

        assert [seen(name) for name in OURS] == [(name, {"message.type": name}) for name in OURS]
        assert seen("silent") == ("NORMAL", {})
        client.ask(do="topic", broker=broker.address, topic="NORMAL", queues=2, type="DELAY")
        client.ask(do="topic", broker=broker.address, topic="theirs", queues=2, type="FIFO")
        broker.stop()
    store = open_store(root)
    found = {name: topic.message_type.value for name, topic in store.topics.items() if name in {*OURS, "theirs"}}
    assert found == {**{name: name for name in OURS}, "NORMAL": "DELAY", "theirs": "FIFO"}
    assert store.topics["silent"].message_type is MessageType.MIXED
    store.close()
