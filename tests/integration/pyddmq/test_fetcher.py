"""`Fetcher` against a running node: what it acks, who gets which queue, ranges read side by side."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pyddmq import ClientMisuse, FetchedMessage, Fetcher, Producer, PullRefused
from pyddmq.codes import PullCode
from tests.insides import opened_of
from tests.running_node import RunningNode

YAML = """
topics: {orders: {queues: 4}}
groups:
  - group: low
    topics: [{topic: orders, actions: [LowLevel], maxPullBatchSize: 100}]
"""
QIDS = [f"pyddmq_broker-0_{number}" for number in range(4)]


def publish(node: RunningNode, count: int) -> None:
    """Send so many to the queues in turn."""
    with Producer(node.producer) as producer:
        for number in range(count):
            how: Any = {"partition_id": number, "properties": {"n": str(number)}}
            assert producer.send("orders", b"%d" % number, **how).offset >= 0


def committed(node: RunningNode) -> list[int]:
    """Positions of the group, by queue."""
    trackers = opened_of(node.node).progress.trackers
    return node.call(lambda: [trackers["low", "orders", queue].watermark for queue in range(4)])


def test_iteration_acks_on_the_way_on_and_passes_over_nothing(tmp_path: Path) -> None:
    """W94: what is skipped, or in hand when an exception ends it, holds its queue's position; the rest is acked."""
    with RunningNode(YAML, tmp_path) as node:
        publish(node, 8)
        seen: list[FetchedMessage] = []

        def work() -> None:
            with Fetcher(node.consumer, "low", consumer_id="a") as fetcher:
                for message in fetcher:
                    seen.append(message)
                    if message.qid == QIDS[0]:
                        fetcher.skip(message)
                    if len(seen) == 8:
                        raise RuntimeError("of the work")

        with pytest.raises(RuntimeError, match="of the work"):
            work()
        last = seen[-1]
        assert len(seen) == 8
        expected = [0, 2, 2, 2]
        expected[QIDS.index(last.qid)] = min(expected[QIDS.index(last.qid)], last.offset)
        assert committed(node) == expected
        with Fetcher(node.consumer, "low", consumer_id="a") as again:
            found = sorted((message.qid, message.offset) for message in again.messages(idle_ms=100))
        assert len(found) == 8 - sum(expected)
        assert committed(node) == [2, 2, 2, 2]
        assert last.stored_ms >= last.born_ms > 1_600_000_000_000


def test_rewind_brings_what_was_skipped(tmp_path: Path) -> None:
    """Without a new process: from the first that is not done."""
    with RunningNode(YAML, tmp_path) as node, Fetcher(node.consumer, "low") as fetcher:
        publish(node, 1)
        [first] = fetcher.messages(idle_ms=60)
        assert fetcher.ack(first) is False, "it was acked on the way on"
        publish(node, 1)
        for message in fetcher.messages(idle_ms=60):
            fetcher.skip(message)
        fetcher.rewind()
        [again] = fetcher.messages(idle_ms=60)
        assert (again.qid, again.offset) == (message.qid, message.offset)
        assert fetcher.flush()


def test_named_ranges_are_read_side_by_side(tmp_path: Path) -> None:
    """Many connections under one name, each with its own queues, nobody a fetcher; then somebody acks for all."""
    with RunningNode(YAML, tmp_path) as node:
        publish(node, 40)
        found: list[tuple[str, int]] = []

        def read(qid: str) -> None:
            with Fetcher(node.consumer, "low", consumer_id="reader", named=True, batch_size=3) as fetcher:
                start, end = 2, 9
                while start < end:
                    [queue] = fetcher.fetch({("orders", qid): start}, count_max=min(3, end - start))
                    found.extend((qid, message.offset) for message in queue.messages)
                    start = queue.next_offset

        threads = [threading.Thread(target=read, args=(qid,)) for qid in QIDS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(found) == [(qid, offset) for qid in QIDS for offset in range(2, 9)]
        assert node.call(lambda: node.node.in_force.groups["low"].stats().fetchers) == []
        with Fetcher(node.consumer, "low", named=True) as driver:
            assert driver.ack_positions({("orders", qid): 9 for qid in QIDS})
            assert not driver.ack_positions({("orders", QIDS[0]): 99})
        assert committed(node) == [9, 9, 9, 9]


def test_two_fetchers_share_and_are_told_of_what_is_not_theirs(tmp_path: Path) -> None:
    """Each message goes to one of them; an ack of the other's queue is False."""
    with (
        RunningNode(YAML, tmp_path) as node,
        Fetcher(node.consumer, "low") as first,
        Fetcher(node.consumer, "low") as second,
    ):
        assert len(first.fetch()) == 4
        assert len(second.fetch()) == 2
        assert len(first.fetch()) == 2
        publish(node, 8)
        found = [(message.qid, message.offset) for each in (first, second) for message in each.messages(idle_ms=60)]
        assert sorted(found) == [(qid, offset) for qid in QIDS for offset in range(2)]
        publish(node, 8)
        [theirs, _] = second.fetch()
        assert not first.ack_positions({(theirs.topic, theirs.qid): theirs.next_offset})
        assert first.consumer_id != second.consumer_id


def test_refusals_and_misuse_say_what_is_wrong(tmp_path: Path) -> None:
    """An unknown group, another cluster, a closed fetcher, numbers out of range."""
    with RunningNode(YAML, tmp_path) as node:
        with Fetcher(node.consumer, "nobody") as fetcher, pytest.raises(PullRefused, match="no such group") as refused:
            fetcher.fetch()
        assert refused.value.code == PullCode.NO_SUCH_GROUP
        with pytest.raises(ClientMisuse, match="closed"):
            fetcher.fetch()
        other = Fetcher(node.consumer, "low", cluster="other")
        with other, pytest.raises(PullRefused, match="another broker cluster"):
            other.fetch()
        with pytest.raises(ClientMisuse, match="batch_size"):
            Fetcher(node.consumer, "low", batch_size=0)
        with Fetcher(node.consumer, "low") as last, pytest.raises(ClientMisuse, match="begin at 0"):
            last.seek({("orders", QIDS[0]): -1})
