"""A node whose disk refuses: what clients are told, by code, while it lasts and after it."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from broker.errors import StoreUnwritable
from pyddmq import PulledMessage, PullRefused, SendRefused, Unreachable
from pyddmq.codes import PullCode, ResultCode
from pyddmq.testing import SimDisk, SimFile
from tests.integration.proxy.node.test_node import Raw
from tests.patient import LINGER_MS, Consumer, Producer, until
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_idl

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 1, timeout: 60000}
"""


def fail_an_ack(node: RunningNode, disk: SimDisk, error: int) -> PullRefused:
    """Have the write of an ack fail: its connection ends without an answer (D5). Returns what the next pull is told."""
    with Producer(node.producer) as producer:
        producer.send("orders", b"one")
        producer.send("orders", b"two")
    consumer = Consumer(node.consumer, "billing", submit_tries=1)
    [message] = _first(consumer)
    for _ in range(1000):  # A fault is for one write; a full disk is tried again ten times a second.
        node.call(lambda: disk.fail("write", error=error, path_part="/acks/"))
    consumer.ack(message)
    with pytest.raises(Unreachable):
        consumer.flush()
    with pytest.raises(PullRefused) as caught:
        consumer.pull()
    with suppress(Unreachable):
        # It has a result that the node cannot record, and keeps it.
        consumer.close()
    assert consumer.unsent == 1
    return caught.value


def _first(consumer: Consumer) -> list[PulledMessage]:
    return [next(consumer.messages())]


def test_full_journal_refuses_pulls_until_there_is_space(tmp_path: Path) -> None:
    """ACKS_REFUSED while acks cannot be recorded, which may be tried again; by itself all goes on afterwards."""
    disk = SimDisk()
    with RunningNode(YAML, tmp_path, disk=disk) as node:
        refusal = fail_an_ack(node, disk, errno.ENOSPC)
        assert (refusal.code, refusal.retriable) == (PullCode.ACKS_REFUSED, True)
        node.call(disk.heal)
        with Consumer(node.consumer, "billing") as consumer:
            # `run` and iterating wait out a refusal that may be tried again.
            assert next(consumer.messages()).body in (b"one", b"two")


def test_failed_journal_refuses_pulls_for_good(tmp_path: Path) -> None:
    """STORE_FAILED after a write error: trying again does not help, and the sentence says what does."""
    disk = SimDisk()
    with RunningNode(YAML, tmp_path, disk=disk) as node:
        refusal = fail_an_ack(node, disk, errno.EIO)
        assert (refusal.code, refusal.retriable) == (PullCode.STORE_FAILED, False)
        assert "restart" in refusal.text
        assert node.node.state == "failed"


def test_failed_log_refuses_publishes_and_serves_pulls(tmp_path: Path) -> None:
    """With the journal sound, what is stored is still handed out and acked; publishes get code 10."""
    disk = SimDisk()
    with RunningNode(YAML, tmp_path, disk=disk) as node:
        with Producer(node.producer, resends=0) as producer:
            producer.send("orders", b"one")
            node.call(lambda: disk.fail("write", path_part="/commitlog/"))
            with pytest.raises(SendRefused) as refused:
                producer.send("orders", b"two")
            assert refused.value.code == ResultCode.FAIL_UNKNOWN
        with Consumer(node.consumer, "billing") as consumer:
            [message] = _first(consumer)
            consumer.ack(message)
            assert consumer.flush() is True
        assert node.node.state == "failed"


def test_ack_that_waited_behind_a_parked_pull_is_not_answered_after_a_failure(tmp_path: Path) -> None:
    """Its entry is written and can no longer be made durable, so the connection ends without the `submit`'s true."""
    disk = SimDisk()
    with RunningNode(YAML, tmp_path, disk=disk) as node:
        with Producer(node.producer) as producer:
            producer.send("orders", b"one")
        raw = Raw(node.consumer)
        with raw.socket:
            raw.socket.sendall(raw.pull(1, "billing", LINGER_MS))
            reply = raw.reply()
            assert reply is not None
            node.call(lambda: disk.fail("sync", path_part="/acks/"))
            result = consumer_idl.ConsumeResult(context=reply.value.context, successOffsets=[0], failOffsets=[])
            raw.socket.sendall(raw.pull(2, "billing", LINGER_MS) + raw.codec.call("submit", 3, result=result))
            until(lambda: node.node.state == "failed", "the node to fail")
            raw.socket.shutdown(socket.SHUT_WR)
            assert raw.reply() is None


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "grant this user write permission there"), (errno.EROFS, "mount the file system writable")],
)
def test_start_on_a_store_that_may_not_be_opened_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    """Restored by another user, say, or mounted for reading."""
    disk = SimDisk()
    with RunningNode(YAML, tmp_path, disk=disk):
        pass

    def denied(path: str, *, create: bool = False) -> SimFile:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(disk, "open", denied)
    with pytest.raises(StoreUnwritable, match=advice) as caught, RunningNode(YAML, tmp_path, disk=disk):
        pass
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("path", "number", "advice"),
    [
        ("/lock", errno.EACCES, "grant this user write permission there"),
        ("/lock", errno.EROFS, "mount the file system writable"),
        ("/pyddmq/store.json", errno.EMFILE, "raise the limit of open files"),
        ("/pyddmq/store.json", errno.ENOSPC, "free some space there"),
        ("/acks/", errno.ENOSPC, "free some space there"),
    ],
)
def test_start_that_cannot_write_says_what_to_do(tmp_path: Path, path: str, number: int, advice: str) -> None:
    """Whichever file it is, the start ends with the directory and what would help."""
    disk = SimDisk()
    for _ in range(1000):
        for operation in ("write", "create", "allocate"):
            disk.fail(operation, error=number, path_part=path)
    with pytest.raises(StoreUnwritable, match=advice) as caught, RunningNode(YAML, tmp_path, disk=disk):
        pass
    assert str(tmp_path) in str(caught.value)
