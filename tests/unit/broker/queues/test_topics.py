"""Topics and their file."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from broker.errors import DiskFull, MessageRefused, StoreFailed
from broker.format.message_type import MessageType
from broker.queues.topics import SYSTEM_TOPICS, check_name, dead_letter_topic, is_system, kind_of
from conf import is_system_topic
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, open_store

PATH = f"{ROOT}/config/topics.json"


def table(disk: SimDisk) -> dict[str, Any]:
    """The file's content."""
    file = disk.open(PATH)
    content: dict[str, Any] = json.loads(file.read(0, file.size()))
    return content


def test_topic_file_has_rocketmqs_shape() -> None:
    """Every field that RocketMQ writes is there."""
    disk = SimDisk()
    open_store(disk, clock=ManualClock(123_000)).create_topic("t", 8)
    assert table(disk) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 123_000},
        "topicConfigTable": {
            "t": {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": 8,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "t",
                "topicSysFlag": 0,
                "writeQueueNums": 8,
            }
        },
    }


def test_queue_counts_only_rise_and_survive() -> None:
    """A smaller count changes nothing (D6)."""
    disk = SimDisk()
    store = open_store(disk)
    assert len(store.create_topic("t", 4).queues) == 4
    topic = store.create_topic("t", 2)
    assert len(topic.queues) == 4
    assert store.create_topic("t", 6) is topic
    store.close()
    assert len(open_store(disk).topics["t"].queues) == 6


def test_foreign_fields_and_topics_are_kept() -> None:
    """What RocketMQ wrote beside our fields stays."""
    disk = SimDisk()
    open_store(disk).close()
    entry = {"perm": 4, "order": True, "topicName": "old", "readQueueNums": 2, "writeQueueNums": 3, "extra": 1}
    disk.make_folder(f"{ROOT}/config")
    disk.open(PATH, create=True).write(0, [json.dumps({"topicConfigTable": {"old": entry}, "more": [1]}).encode()])
    store = open_store(disk)
    assert len(store.topics["old"].queues) == 3
    store.create_topic("new", 1)
    content = table(disk)
    assert content["more"] == [1]
    assert content["topicConfigTable"]["old"] == {
        **entry,
        "attributes": {},
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
    }


@pytest.mark.parametrize("name", ["", "a b", "ü", "a" * 128, "t/u", "..", "t\n"])
def test_names_outside_rocketmqs_rules_are_refused(name: str) -> None:
    """Also nothing that could leave the store's folder."""
    with pytest.raises(MessageRefused, match="not allowed"):
        open_store(SimDisk()).create_topic(name, 1)


@pytest.mark.parametrize("queues", [0, -1, 1025])
def test_queue_count_out_of_range_is_refused(queues: int) -> None:
    """1 to 1024 queues."""
    with pytest.raises(ValueError, match="1 to 1024"):
        open_store(SimDisk()).create_topic("t", queues)


def test_system_topics_are_told() -> None:
    """Clients may not publish to RocketMQ's own topics nor to dead letters (D34)."""
    store = open_store(SimDisk())
    assert store.create_topic(dead_letter_topic("g"), 1).system
    assert store.create_topic("mine", 1, system=True).system
    assert not store.create_topic("plain", 1).system
    assert all(map(is_system, ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%g", "%DLQ%g")))
    check_name(dead_letter_topic("g" * 120))


@pytest.mark.parametrize(
    "name",
    [*sorted(SYSTEM_TOPICS), "rmq_sys_wheel_timer", "RMQ_SYS_NEW", "%RETRY%g", "%DLQ%g", "permits", "rmq", "xrmq_sys_"],
)
def test_broker_and_configuration_agree_on_system_topics(name: str) -> None:
    """A topic that YAML may list is one that clients may publish to, and the reverse (D34)."""
    assert is_system(name) == is_system_topic(name)
    assert is_system(name) == (name not in {"permits", "rmq", "xrmq_sys_"})


def test_topic_that_cannot_be_written_is_not_made() -> None:
    """Memory grows only once the file says so; a full disk is not a failed store."""
    disk = SimDisk()
    store = open_store(disk)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFull):
        store.create_topic("t", 1)
    assert "t" not in store.topics
    assert store.failed is None
    disk.capacity_bytes = None
    disk.fail("sync")
    with pytest.raises(StoreFailed):
        store.create_topic("t", 1)
    assert "t" not in store.topics
    with pytest.raises(StoreFailed):
        store.create_topic("t", 1)


def test_types_are_rocketmqs_attribute_and_survive() -> None:
    """A type is written as RocketMQ writes it, beside other attributes, in one write for all topics."""
    disk = SimDisk()
    store = open_store(disk)
    for name in ("a", "b", "c"):
        store.create_topic(name, 1)
    assert store.topics["a"].message_type is MessageType.MIXED
    counter = table(disk)["dataVersion"]["counter"]
    store.topic_changes.set_types({"a": MessageType.FIFO, "b": MessageType.MIXED})
    store.topic_changes.set_types({"a": MessageType.FIFO, "b": MessageType.MIXED})
    assert table(disk)["dataVersion"]["counter"] == counter + 1
    found = {name: entry["attributes"] for name, entry in table(disk)["topicConfigTable"].items()}
    assert found == {"a": {"message.type": "FIFO"}, "b": {"message.type": "MIXED"}, "c": {}}
    store.create_topic("a", 5)
    disk.kill()
    store = open_store(disk)
    assert [topic.message_type.value for topic in store.topics.values()] == ["FIFO", "MIXED", "MIXED"]
    assert len(store.topics["a"].queues) == 5


def test_type_of_a_deleted_topic_is_forgotten() -> None:
    """A topic made again under the name takes everything."""
    store = open_store(SimDisk())
    store.create_topic("t", 1)
    store.topic_changes.set_types({"t": MessageType.DELAY})
    store.topic_changes.delete("t")
    assert store.create_topic("t", 1).message_type is MessageType.MIXED


def test_type_that_cannot_be_written_is_not_in_force() -> None:
    """A full disk refuses it and an unknown topic is an error: nothing changes; a failed write stops the store."""
    disk = SimDisk()
    store = open_store(disk)
    topic = store.create_topic("t", 1)
    with pytest.raises(KeyError):
        store.topic_changes.set_types({"t": MessageType.FIFO, "other": MessageType.FIFO})
    disk.fail("write", error=errno.ENOSPC, path_part="topics.json")
    with pytest.raises(DiskFull):
        store.topic_changes.set_types({"t": MessageType.FIFO})
    assert topic.message_type is MessageType.MIXED
    disk.fail("write", path_part="topics.json")
    with pytest.raises(StoreFailed):
        store.topic_changes.set_types({"t": MessageType.FIFO})
    assert topic.message_type is MessageType.MIXED


def test_kinds_of_topics_stand_apart() -> None:
    """A group's retries and dead letters are not to be taken for the broker's own works."""
    names = ("t", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX")
    assert [kind_of(name) for name in names] == ["user", "retries", "dead letters", "system"]
