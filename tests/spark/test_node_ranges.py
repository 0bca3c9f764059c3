"""Ranges of a node's queues: what lies in one and does not come is lost data, or nobody's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.retention import RetentionLimits
from lag.spark.sources.node import NodeClient
from lag.spark.sources.node_ranges import DataLost, NodeOptions, NodePart, cut, messages_of
from pyddmq import Producer
from tests.insides import opened_of
from tests.patient import until
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 131072, retentionDiskRatio: null, maxMessageBytes: 16384, queueFileUnits: 1000}
topics: {permits: {queues: 2}, empty: {queues: 1}}
groups:
  - group: spark
    topics: [{topic: permits, actions: [LowLevel]}, {topic: empty, actions: [LowLevel]}]
  - {group: tagged, topics: [{topic: permits, actions: [LowLevel], tags: [odd]}]}
  - {group: pulled, topics: [{topic: permits}]}
"""
QIDS = ("pyddmq_broker-0_0", "pyddmq_broker-0_1")
SEGMENT_BYTES = 131_072


def expire(node: RunningNode) -> int:
    """Let the node's retention take all but the last files; returns the first offset that queue 0 still has."""
    retention = opened_of(node.node).store.retention
    node.call(lambda: setattr(retention, "limits", RetentionLimits(log_bytes=2 * SEGMENT_BYTES)))
    until(lambda: node.call(lambda: retention.log_bytes) <= 2 * SEGMENT_BYTES, "old files to go")
    with NodeClient(node.consumer) as client:
        return client.standings("spark")["permits"][QIDS[0]].start


def fill(node: RunningNode, count: int) -> None:
    """Send so many large messages to the queues in turn."""
    with Producer(node.producer) as producer:
        for number in range(count):
            producer.send("permits", b"x" * 8_000, key="k", partition_id=number % 2)


def test_what_retention_took_is_told_or_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Between planning and reading: an error, or by failOnDataLoss a warning and what is left; a queue that is gone."""
    with RunningNode(YAML, tmp_path) as node:
        fill(node, 80)
        start = expire(node)
        assert 0 < start < 40
        options = NodeOptions.of({"node": node.consumer, "group": "spark", "topic": "permits", "patience": "1"})
        part = NodePart(options, "permits", QIDS[0], 0, 40)
        with options.client() as client:
            with pytest.raises(DataLost, match=f"begins at {start}: offsets 0 to {start - 1} are lost"):
                list(messages_of(client, part))
            warned = replace(part, options=replace(options, fail_on_data_loss=False))
            assert [each[4] for found in messages_of(client, warned) for each in found] == list(range(start, 40))
            with pytest.raises(DataLost, match=r"queue 7 .* no longer exists: offsets 0 to 39 are lost"):
                list(messages_of(client, replace(part, qid="pyddmq_broker-0_7")))
            with pytest.raises(DataLost, match="ends at 40: offsets 50 to 59 are lost"):
                list(messages_of(client, replace(part, first=50, end=60)))
        assert [each.message for each in caplog.records if each.name == "pyddmq_spark"] == [
            f"permits queue 0 of {node.consumer} now begins at {start}: offsets 0 to {start - 1} are lost"
        ]


def test_gaps_that_tags_make_are_no_loss(tmp_path: Path) -> None:
    """What the group never gets is passed over, at the begin of a range too."""
    with RunningNode(YAML, tmp_path) as node:
        fill(node, 4)
        options = NodeOptions.of({"node": node.consumer, "group": "tagged", "topic": "permits", "patience": "1"})
        with options.client() as client:
            assert list(messages_of(client, NodePart(options, "permits", QIDS[0], 0, 2))) == []


def test_ranges_are_cut_into_parts_of_about_one_size() -> None:
    """Without gap or overlap, none larger than asked; an empty range has none."""
    options = NodeOptions.of({"node": "h:1", "group": "g", "partitionMessages": "7"})
    for first, end in ((3, 3), (3, 4), (3, 10), (3, 11), (0, 700), (5, 4)):
        parts = list(cut(NodePart(options, "t", "q_0", first, end)))
        assert [offset for part in parts for offset in range(part.first, part.end)] == list(range(first, end))
        assert all(0 < part.end - part.first <= 7 for part in parts)
