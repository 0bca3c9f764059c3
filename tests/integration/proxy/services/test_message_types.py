"""Topics that declare what they take: told by configuration or by hand, kept, and refused on publish with a code."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from broker.format.message_type import MessageType
from broker.runtime.disk import RealDisk, RealFile
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.topics import TopicAlteration, TopicBody
from pyddmq import OutgoingMessage, SendRefused
from pyddmq.codes import ResultCode
from tests.insides import opened_of
from tests.integration.broker.store.test_topic_changes import run
from tests.patient import Producer
from tests.running_node import RunningNode

YAML = """
topics:
  any: {queues: 2}
  normal: {queues: 2, messageType: NORMAL}
  fifo: {queues: 2, messageType: FIFO, maxTps: 1000}
  delayed: {queues: 2, messageType: DELAY}
  halves: {queues: 2, messageType: TRANSACTION}
"""


def alter(node: RunningNode, topic: str, message_type: MessageType | None, queues: int | None = None) -> object:
    """POST /api/topics/alter."""
    return run(node, "alter_topic", TopicAlteration(topic=topic, message_type=message_type, queues=queues))


def code_of(node: RunningNode, topic: str, **message: object) -> tuple[int, str]:
    """Result code of a send and its text; 0 when it is stored."""
    with Producer(node.producer) as producer:
        try:
            producer.send(topic, b"x", **message)  # type: ignore[arg-type]
        except SendRefused as error:
            return int(error.code), str(error)
        return 0, ""


def stored(node: RunningNode, topic: str) -> int:
    """How many messages a topic has."""

    def count() -> int:
        found = opened_of(node.node).store.topics.get(topic)
        return 0 if found is None else sum(queue.max_offset for queue in found.queues)

    return node.call(count)


@pytest.mark.parametrize(
    ("topic", "message", "code", "text"),
    [
        ("any", {"hash_id": 3}, 0, ""),
        ("normal", {}, 0, ""),
        ("normal", {"key": "k"}, 0, ""),
        ("normal", {"partition_id": -2}, 0, ""),
        ("normal", {"hash_id": -3}, 11, "normal is of the type NORMAL: it accepts no ordered messages"),
        ("normal", {"partition_id": 0}, 11, "remove hashId and partitionId"),
        ("fifo", {"key": "k"}, 0, ""),
        ("fifo", {"hash_id": 3}, 0, ""),
        ("fifo", {"partition_id": 1}, 0, ""),
        ("fifo", {}, 11, "set a key, a hashId or a partitionId"),
        ("delayed", {"key": "k"}, 19, "accepts only delayed messages"),
        ("delayed", {"delay_level": 0}, 19, "set a delay"),
        ("delayed", {"delay_level": 18}, 0, ""),
        ("normal", {"delay_level": 18}, 18, "accepts no delayed messages"),
        ("fifo", {"key": "k", "delay_level": 18}, 18, "remove the delay"),
        ("halves", {"delay_level": 18}, 11, "accepts only messages of transactions"),
        ("halves", {"key": "k"}, 11, "accepts only messages of transactions"),
    ],
)
def test_publish_of_another_kind_is_refused_with_its_code(
    tmp_path: Path, topic: str, message: dict[str, object], code: int, text: str
) -> None:
    """Nothing of it is stored, and it is counted under its code."""
    with RunningNode(YAML, tmp_path) as node:
        found, said = code_of(node, topic, **message)
        waiting = SCHEDULE_TOPIC if message.get("delay_level") else topic
        assert (found, stored(node, waiting)) == (code, 0 if code else 1)
        assert text in said
        assert node.node.runtime.metrics.value("pyddmq_sends_refused_total", str(code)) == (1 if code else 0)


def test_batch_with_one_message_of_another_kind_is_refused_whole(tmp_path: Path) -> None:
    """The refusal names the message; the tokens of the topic's limit are given back."""
    with RunningNode(YAML, tmp_path) as node, Producer(node.producer) as producer:
        good = OutgoingMessage(topic="fifo", body=b"x", key="k")
        with pytest.raises(SendRefused, match=r"message 1 of 3: topic fifo is of the type FIFO") as refusal:
            producer.send_batch([good, OutgoingMessage(topic="fifo", body=b"x"), good])
        assert refusal.value.code == ResultCode.FAIL_ILLEGAL_MSG
        mixed = [good, OutgoingMessage(topic="normal", body=b"x"), OutgoingMessage(topic="any", body=b"x", hash_id=1)]
        assert [receipt.offset for receipt in producer.send_batch(mixed)] == [0, 0, 0]
        assert [stored(node, topic) for topic in ("fifo", "normal", "any")] == [1, 1, 1]


def test_type_is_kept_over_restart_and_changed_by_reload(tmp_path: Path) -> None:
    """What the configuration says of a type counts at once; taken out of it, the type stays (D6)."""
    with RunningNode(YAML, tmp_path) as node:
        code_of(node, "fifo", key="k")
        assert node.reload(YAML.replace("FIFO", "NORMAL")).changes == ("topic fifo: changes at once: messageType",)
        assert code_of(node, "fifo")[0] == 0
        assert code_of(node, "fifo", hash_id=1)[0] == 11
        assert node.reload(YAML.replace("messageType: FIFO, ", "")).accepted
        assert code_of(node, "fifo", hash_id=1)[0] == 11
        assert stored(node, "fifo") == 2
    saved = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert saved["fifo"]["attributes"] == {"message.type": "NORMAL"}
    assert saved["any"]["attributes"] == {}
    with RunningNode("topics: {fifo: {}}", tmp_path) as node:
        assert code_of(node, "fifo", hash_id=1)[0] == 11


class FillingDisk(RealDisk):
    """Has no room for the topic file while it is `full`."""

    full = False

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """As the real one."""
        if self.full and path.endswith("config/topics.json.new"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create)


def test_refused_reload_leaves_types_alone(tmp_path: Path) -> None:
    """Where the disk has no room for a type, the configuration in force stays, its types with it."""
    disk = FillingDisk()
    with RunningNode(YAML, tmp_path, disk=disk) as node:
        disk.full = True
        changed = YAML.replace("NORMAL", "MIXED").replace("FIFO", "NORMAL")
        assert "no space" in node.reload(changed).problems[0]
        assert code_of(node, "fifo")[0] == 11
        assert code_of(node, "normal", hash_id=1)[0] == 11
        disk.full = False
        assert node.reload(changed).accepted
        assert (code_of(node, "fifo")[0], code_of(node, "normal", hash_id=1)[0]) == (0, 0)


def test_type_by_hand_counts_at_once_and_the_configuration_comes_first(tmp_path: Path) -> None:
    """A topic gets its type when it is made and another later; one whose type is configured keeps that."""
    with RunningNode(YAML, tmp_path) as node:
        made = run(node, "create_topic", TopicBody(topic="made", queues=1, message_type=MessageType.FIFO))
        assert made.message_type == "FIFO"
        assert code_of(node, "made")[0] == 11
        alter(node, "made", MessageType.MIXED)
        assert code_of(node, "made")[0] == 0
        alter(node, "made", MessageType.NORMAL, 3)
        assert len(opened_of(node.node).store.topics["made"].queues) == 3
        assert code_of(node, "made", hash_id=1)[0] == 11
        alter(node, "fifo", MessageType.FIFO)
        for topic, message_type, status, text in (
            ("fifo", MessageType.MIXED, 409, "topics.fifo.messageType: FIFO. Change it to MIXED"),
            ("made", None, 400, "Nothing to change"),
            ("nowhere", MessageType.MIXED, 404, "does not exist"),
        ):
            with pytest.raises(ChangeRefused, match=text) as refusal:
                alter(node, topic, message_type)
            assert refusal.value.status == status
    with RunningNode(YAML, tmp_path) as node:
        assert code_of(node, "made", hash_id=1)[0] == 11
