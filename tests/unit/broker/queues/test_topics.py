"""Topics and their file."""

from __future__ import annotations

import errno
import json
from random import Random
from typing import Any

import pytest

from broker.errors import DiskFull, MessageRefused, StoreFailed
from broker.format.message_type import MessageType
from broker.queues.topics import SYSTEM_TOPICS, Topic, Topics, check_name, dead_letter_topic, is_system
from broker.runtime.file_writes import TURN
from broker.runtime.sealed_file import read_whole, sealed_lines, write_whole
from broker.runtime.steps import run_now
from broker.store import Store
from conf import is_system_topic
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, append, open_store

PATH = f"{ROOT}/config/topics.json"
OPENED = f"{ROOT}/pyddmq/topics_opened.json"


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
    assert [Topic(name, system=is_system(name)).kind for name in names] == ["user", "retries", "dead letters", "system"]


def writes(disk: SimDisk) -> int:
    """How often the file was written."""
    count: int = table(disk)["dataVersion"]["counter"]
    return count


def test_many_topics_are_made_and_widened_with_one_write() -> None:
    """A thousand new ones, and one that is widened; all are kept."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("old", 1)
    wanted = {"old": 3, **{f"t{number}": 4 for number in range(1_000)}}
    run_now(store.topic_changes.making(wanted))
    assert writes(disk) == 2
    assert {name: len(topic.queues) for name, topic in store.topics.items()} == wanted
    store.close()
    assert {name: len(topic.queues) for name, topic in open_store(disk).topics.items()} == wanted


def test_topics_that_are_as_wanted_cost_no_write() -> None:
    """Also where one has more queues than is asked for."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 4)
    run_now(store.topic_changes.making({"t": 2}))
    assert (writes(disk), len(store.topics["t"].queues)) == (1, 4)


def test_many_topics_are_made_in_steps() -> None:
    """None of them makes more than some hundred queues, so that a loop can serve others in between."""
    store = open_store(SimDisk())
    steps = store.topic_changes.making({f"t{number}": 4 for number in range(1_000)})
    made, grown = 0, []
    for _ in steps:
        grown.append(len(store.topics) - made)
        made = len(store.topics)
    assert max(grown) <= 64
    assert len(store.topics) == 1_000


@pytest.mark.parametrize("refused", [{"bad name": 1}, {"t": 0}, {"t": 1025}])
def test_one_refused_topic_of_many_changes_nothing(refused: dict[str, int]) -> None:
    """Neither in memory nor on the disk."""
    disk = SimDisk()
    store = open_store(disk)
    with pytest.raises((MessageRefused, ValueError)):
        run_now(store.topic_changes.making({"good": 1, **refused}))
    assert not store.topics
    assert not disk.exists(PATH)


def test_full_disk_makes_none_of_many_topics() -> None:
    """But the broker's own are made: the log names them, and the file has them with its next write."""
    disk = SimDisk()
    store = open_store(disk)
    disk.fail("write", error=errno.ENOSPC, path_part="topics.json")
    with pytest.raises(DiskFull):
        run_now(store.topic_changes.making({"t": 1, "%RETRY%g": 1}))
    assert not store.topics
    disk.fail("write", error=errno.ENOSPC, path_part="topics.json")
    run_now(store.topic_changes.making({"%RETRY%g": 1}))
    assert list(store.topics) == ["%RETRY%g"]
    store.create_topic("t", 1)
    assert sorted(table(disk)["topicConfigTable"]) == ["%RETRY%g", "t"]


def test_change_between_two_steps_keeps_what_is_still_to_come() -> None:
    """A topic made meanwhile neither takes the others out of the file nor gives them fewer queues."""
    disk = SimDisk()
    store = open_store(disk)
    wanted = {f"t{number}": 4 for number in range(200)}
    steps = store.topic_changes.making(wanted)
    next(steps)
    assert len(store.topics) < 200
    store.create_topic("t199", 1)
    store.create_topic("other", 1)
    assert len(store.topics["t199"].queues) == 4
    assert len(table(disk)["topicConfigTable"]) == 201
    list(steps)
    assert {name: len(topic.queues) for name, topic in store.topics.items()} == {**wanted, "other": 1}


def test_topic_deleted_between_two_steps_stays_deleted() -> None:
    """The steps that follow do not widen it again."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t199", 1)
    steps = store.topic_changes.making({f"t{number}": 4 for number in range(200)})
    next(steps)
    store.topic_changes.delete("t199")
    list(steps)
    assert "t199" not in store.topics
    assert "t199" not in table(disk)["topicConfigTable"]


def test_topics_opened_before_one_flush_share_a_write() -> None:
    """It comes before the log's: they are named when their first records are durable."""
    disk = SimDisk()
    store = open_store(disk)
    for number in range(100):
        store.topic_changes.open(f"t{number}", 4)
        append(store, b"x", topic=f"t{number}")
    assert not disk.exists(OPENED)
    store.flush()
    lines = list(sealed_lines(read_whole(disk, OPENED) or b""))
    assert [len(line["topics"]) for line in lines] == [100]
    store.topic_changes.open("t0", 4)
    append(store, b"x", topic="t0")
    store.flush()
    assert list(sealed_lines(read_whole(disk, OPENED) or b"")) == lines
    assert not disk.exists(PATH)


def opened_one_by_one(disk: SimDisk, count: int, clock: ManualClock | None = None) -> Store:
    """A store with topics that were opened for a message each."""
    store = open_store(disk, clock=clock)
    for number in range(count):
        store.topic_changes.open(f"t{number}", 4)
        append(store, b"x", topic=f"t{number}")
        store.flush()
    return store


def test_topics_opened_one_by_one_cost_a_line_each() -> None:
    """However many there are: the file is written by the next checkpoint, and has them all."""
    disk = SimDisk()
    clock = ManualClock()
    store = opened_one_by_one(disk, 100, clock)
    assert not disk.exists(PATH)
    assert len(read_whole(disk, OPENED) or b"") < 100 * 100
    clock.advance(11)
    store.checkpoint()
    assert len(table(disk)["topicConfigTable"]) == 100
    assert not disk.exists(OPENED)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_opened_topics_survive_a_power_loss_with_their_queues(seed: int, torn: bool) -> None:
    """Not only the queue that has a record; a line that was being appended says nothing."""
    disk = SimDisk()
    opened_one_by_one(disk, 2)
    disk.crash(Random(seed), modes=("none",))
    if torn:
        file = disk.open(OPENED)
        file.write(file.size(), [b'{"crc32":"00000000","data":{"ba'])
    again = open_store(disk)
    assert {name: len(topic.queues) for name, topic in again.topics.items()} == {"t0": 4, "t1": 4}
    assert len(table(disk)["topicConfigTable"]) == 2
    assert not disk.exists(OPENED)


def test_opened_topics_stay_beside_a_file_that_another_program_changed() -> None:
    """It knew nothing of them, and so did not delete them."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("a", 4)
    store.close()
    opened_one_by_one(disk, 1).abandon()
    content = table(disk)
    content["topicConfigTable"]["b"] = {**content["topicConfigTable"]["a"], "topicName": "b"}
    write_whole(disk, PATH, json.dumps(content).encode())
    assert sorted(open_store(disk).topics) == ["a", "b", "t0"]


def test_what_was_appended_to_an_earlier_version_of_the_file_is_over() -> None:
    """A stop came before it was removed; since then another program has deleted the topic."""
    disk = SimDisk()
    store = opened_one_by_one(disk, 1)
    old = read_whole(disk, OPENED)
    assert old is not None
    store.close()
    write_whole(disk, OPENED, old)
    content = table(disk)
    del content["topicConfigTable"]["t0"]
    write_whole(disk, PATH, json.dumps(content).encode())
    assert "t0" not in open_store(disk).topics


def test_topic_file_is_written_in_steps_and_changes_meanwhile_are_kept() -> None:
    """Each step is of about a thousand topics; one that is made meanwhile is for the next write."""
    disk = SimDisk()
    open_store(disk).close()
    topics = Topics(ROOT, disk=disk, clock=ManualClock(), queue_file_units=100)
    for number in range(5_000):
        topics.grow(f"t{number}", 1)
    writing = topics.writing()
    turns = [next(writing) is TURN for _ in range(8)]
    topics.grow("late", 1)
    topics.unsaved.add("late")
    assert all(turns)
    for _ in writing:
        pass
    assert len(table(disk)["topicConfigTable"]) == 5_000
    assert topics.unsaved == {"late"}
    again = Topics(ROOT, disk=disk, clock=ManualClock(), queue_file_units=100)
    assert sum(1 for _ in again.loading()) == 5_000 // 128
    assert len(again.by_name) == 5_000


def test_topic_file_comes_before_the_records_that_name_a_topic() -> None:
    """A stop between the two leaves a topic without messages, and never the reverse."""
    disk = SimDisk()
    store = open_store(disk)
    store.topic_changes.open("t", 4)
    append(store, b"x")
    disk.fail("write", error=errno.EIO, path_part="topics_opened.json")
    store.flush()
    assert store.failed is not None
    assert store.end == 0


def test_opened_topic_without_a_record_is_written_with_the_next_change_or_the_close() -> None:
    """`create_topic` for it says that it is durable, and so it is."""
    disk = SimDisk()
    store = open_store(disk)
    store.topic_changes.open("t", 4)
    store.create_topic("t", 4)
    assert list(table(disk)["topicConfigTable"]) == ["t"]
    store.topic_changes.open("u", 4)
    store.close()
    assert sorted(table(disk)["topicConfigTable"]) == ["t", "u"]


def test_full_disk_postpones_the_file_of_an_opened_topic() -> None:
    """Its message is taken, and a start finds both in the log."""
    disk = SimDisk()
    store = open_store(disk)
    store.topic_changes.open("t", 4)
    append(store, b"x", queue_id=2)
    disk.fail("write", error=errno.ENOSPC, path_part="topics_opened.json")
    store.flush()
    assert store.failed is None
    assert not disk.exists(PATH)
    store.close()
    assert len(open_store(disk).topics["t"].queues) >= 3


def test_topic_of_an_earlier_life_is_opened_durably() -> None:
    """Its note that it was deleted has to go before its queues are used."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 4)
    store.topic_changes.delete("t")
    before = writes(disk)
    store.topic_changes.open("t", 4)
    assert writes(disk) == before + 1
    assert not store.topic_changes.served
