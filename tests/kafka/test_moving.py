"""Groups that go from plain consumers to nodes, and back, at their committed offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as PlainConsumer

from pyddmq import Consumer, PulledMessage
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import SECONDS, committed, send_plainly
from tests.patient import until

pytestmark = pytest.mark.long

KEYS = 5
SENT = 40


def plain(address: str, group: str, topic: str, count: int) -> list[int]:
    """Read so many as a plain consumer of the group does, commit, and leave; offsets of one partition."""
    consumer = PlainConsumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    try:
        while len(found) < count:
            message: Any = consumer.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.offset())
        # The position behind the last one, without a text beside it.
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    return found


def work(node: NodeProcess, group: str, *, fails: Callable[[PulledMessage], bool], until_done: set[int]) -> list[int]:
    """Pull and answer until these offsets succeeded; what was handed out, each once, in that order."""
    seen: list[int] = []
    done: set[int] = set()
    with Consumer(node.consumers, group, batch_size=16, timeout_ms=20_000) as consumer:
        while not until_done <= done:
            for message in consumer.pull(patience_ms=1000):
                if message.offset not in seen:
                    seen.append(message.offset)
                if fails(message):
                    consumer.fail(message, "not yet")
                else:
                    consumer.ack(message)
                    done.add(message.offset)
            consumer.flush()
    return seen


def test_group_goes_to_nodes_and_back(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """At the first unfinished offset each time: nothing is left out; what was finished above it comes to plain ones."""
    name, group = topic(1), f"moving-{uuid4().hex[:8]}"
    send_plainly(address, name, [{"key": b"k%d" % (each % KEYS), "value": b"v"} for each in range(SENT)])
    assert plain(address, group, name, 10) == list(range(10))
    node = NodeProcess(tmp_path, "one", address=address, topic=name, group=group)
    try:
        # A key, of which 12 is the first, fails all the time; the others finish.
        stuck = set(range(12, SENT, KEYS))
        done = set(range(10, SENT)) - stuck
        seen = work(node, group, fails=lambda message: message.offset in stuck, until_done=done)
        assert set(seen) == done | {12}
        assert seen[:2] == [10, 11]
        node.stop()
        assert node.process.returncode == 0, node.log()
    finally:
        node.kill()
    offset, text = committed(address, group, name)
    assert offset == 12
    assert text is not None
    assert text.startswith("p1;12;c;")
    assert plain(address, group, name, 10) == list(range(12, 22))
    assert committed(address, group, name)[1] in ("", None)
    node = NodeProcess(tmp_path, "two", address=address, topic=name, group=group)
    try:
        assert sorted(work(node, group, fails=lambda _: False, until_done=set(range(22, SENT)))) == list(
            range(22, SENT)
        )
        until(lambda: committed(address, group, name)[0] == SENT, "the end to be committed")
    finally:
        node.kill()
