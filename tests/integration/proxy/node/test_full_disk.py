"""A node on a file system of its own that is really full: a small tmpfs, where mounting one is allowed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.opening import checkpointer
from broker.retention import RetentionLimits
from pyddmq import SendRefused
from pyddmq.codes import ResultCode
from tests.conftest import need, need_program
from tests.insides import opened_of
from tests.patient import Consumer, Producer, until
from tests.running_node import RunningNode

MIB = 1 << 20
YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000, retentionDiskRatio: null}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], timeout: 60000, retryIntervals: [], maxPullBatchSize: 1}
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = [need_program("mount"), "-t", "tmpfs", "-o", "size=20m", "pyddmq-test", str(place)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    need(made.returncode == 0, f"the right to mount a tmpfs ({made.stderr.strip()})")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def publish_until_full(producer: Producer) -> int:
    """Send until it is refused, as it must be with code 10; how many were taken."""
    for taken in range(100):
        try:
            producer.send("orders", bytes(400_000), key=f"k{taken}")
        except SendRefused as error:
            refusal = error
            break
    assert refusal.code == ResultCode.FAIL_UNKNOWN
    assert refusal.text.startswith("disk full")
    return taken


def fill(path: Path) -> None:
    """Take every byte that is left."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_full_file_system_refuses_publishes_and_nothing_else(disk: Path) -> None:
    """Pulls, acks and dead letters go on with no byte free; with space again publishes do, without a restart."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(4 * MIB))
    with RunningNode(YAML, disk / "data") as node, Producer(node.producer, resends=0) as producer:
        taken = publish_until_full(producer)
        assert taken > 5
        fill(disk / "rest")
        got: list[int] = []
        with Consumer(node.consumer, "billing") as consumer:
            while len(got) < taken:
                for message in consumer.pull():
                    got.append(message.offset)
                    if len(got) == 1:
                        consumer.fail(message)
                    else:
                        consumer.ack(message)
            assert consumer.flush() is True
        assert sorted(got) == list(range(taken))
        letters = opened_of(node.node).store.topics["%DLQ%billing"].queues[0]
        until(lambda: node.call(lambda: letters.max_offset) == 1, "the dead letter")
        assert node.node.failure is None
        with pytest.raises(SendRefused):
            producer.send("orders", bytes(400_000))
        ballast.unlink()
        assert publish_until_full(producer) >= 2
    with RunningNode(YAML, disk / "data") as node:
        assert node.call(lambda: opened_of(node.node).store.topics["%DLQ%billing"].queues[0].max_offset) == 1


def test_full_file_system_gets_room_from_an_old_file(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a byte for a checkpoint: what is set aside makes room for it, old files go, publishes are taken again."""
    with RunningNode(YAML, disk / "data") as node, Producer(node.producer, resends=0) as producer:
        store = opened_of(node.node).store
        assert publish_until_full(producer) > 5
        fill(disk / "rest")
        files = len(list((disk / "data" / "commitlog").iterdir()))
        monkeypatch.setattr(checkpointer, "INTERVAL_SECONDS", 0.0)
        limits = RetentionLimits(log_bytes=3 * MIB)
        node.call(lambda: setattr(store.retention, "limits", limits))
        until(lambda: node.call(lambda: store.retention.log_bytes) <= 3 * MIB, "old files to go")
        until(lambda: node.call(lambda: store.segment_space.reserve_bytes) == MIB, "the spare file")
        assert len(list((disk / "data" / "commitlog").iterdir())) < files
        assert publish_until_full(producer) >= 1
        assert node.node.failure is None
