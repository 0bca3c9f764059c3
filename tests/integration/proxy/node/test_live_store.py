"""A node on real sockets, and its store read beside it: what was answered is there soon after, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from lag.spark.sources.store_files import StoreFiles
from tests.insides import opened_of
from tests.patient import Producer, until
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics:
  orders: {queues: 1}
groups: []
"""


def bodies(root: Path) -> list[bytes]:
    """Bodies of the messages of `orders` that a reader sees now, in order."""
    files = StoreFiles(str(root))
    first, end = files.range("orders", 0)
    tail = files.tail_of("orders", 0, first, end)
    return [bytes(each.record[each.body_at : each.body_end]) for each in files.read("orders", 0, first, end, tail=tail)]


def test_what_was_answered_is_read_beside_the_node(tmp_path: Path) -> None:
    """A moment later: without a checkpoint between, behind one, and after the stop."""
    sent = []
    with RunningNode(YAML, tmp_path / "data") as node:
        with Producer(node.producer) as producer:
            for number in range(60):
                sent.append(b"%d" % number)
                producer.send("orders", sent[-1])
                if number % 7 == 0:
                    until(lambda: bodies(tmp_path / "data") == sent, "the last message is not read beside the node")
                if number == 30:
                    node.call(opened_of(node.node).store.checkpoint)
        assert StoreFiles(str(tmp_path / "data")).visible_end() is not None
    assert StoreFiles(str(tmp_path / "data")).visible_end() is None
    assert bodies(tmp_path / "data") == sent
