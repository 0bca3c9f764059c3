"""Topics by expression, and total rates by partitions."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from conf.models import GroupConfig
from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import NO_TOPIC
from upstream.kafka.subscriptions import Subscriptions, fits


def _group(*entries: dict[str, Any]) -> GroupConfig:
    return GroupConfig.model_validate({"group": "g", "topics": list(entries)})


@pytest.mark.parametrize(
    ("name", "topic", "begins", "whole"),
    [
        ("orders", "orders", True, True),
        ("orders", "orders-a", False, False),
        ("^orders-", "orders-a", True, False),
        ("^orders-.*", "orders-a", True, True),
        ("^.*", "__consumer_offsets", False, False),
        ("^b|a", "xa", False, False),
    ],
)
def test_which_topics_are_meant(name: str, topic: str, begins: bool, whole: bool) -> None:
    """By librdkafka's rule the beginning of a name, by the brokers' all of it; Kafka's own topics never."""
    assert (fits(name, topic), fits(name, topic, whole=True)) == (begins, whole)


def test_entry_with_the_name_goes_before_expressions() -> None:
    """And of those the first in the file, unless it is off."""
    config = _group(
        {"topic": "^ord.*", "enabled": False}, {"topic": "^o.*"}, {"topic": "^orders.*"}, {"topic": "orders"}
    )
    subscriptions = Subscriptions(config)
    found = [subscriptions.of(topic) for topic in ("orders", "orders-a", "x", "__x")]
    # What the brokers give for an expression is read, however it fits it.
    assert [each and each.topic for each in found] == ["orders", "^o.*", "^o.*", None]


def test_topic_that_is_gone_is_no_subscription_any_more() -> None:
    """Unless the node still has a partition of it."""
    subscriptions = Subscriptions(_group({"topic": "^t.*"}))
    subscriptions.heard({"t1": 1, "t2": 1, "t3": 1}, ())
    subscriptions.heard({"t1": 1}, {"t2"})
    assert [each.topic for each in subscriptions.expanded(Counter()).topics] == ["^t.*", "t1", "t2"]


def test_total_rate_is_shared_by_partitions() -> None:
    """Owned partitions of all, topic by topic; nothing to share without one, and a rate of its own stays whole."""
    config = _group(
        {"topic": "a", "totalMaxTps": 120.0}, {"topic": "^b.*", "totalMaxTps": 8.0}, {"topic": "c", "maxTps": 9.0}
    )
    subscriptions = Subscriptions(config)
    subscriptions.heard({"a": 12, "b1": 4, "b2": 2, "c": 2}, ())
    rates = {each.topic: each.tps_max for each in subscriptions.expanded(Counter(a=3, b1=2, c=1)).topics}
    assert rates == {"a": 30.0, "^b.*": 8.0, "c": 9.0, "b1": 4.0, "b2": 8.0}


def test_shares_of_all_nodes_are_no_more_than_the_whole() -> None:
    """However partitions are spread, also while the number of all is not known yet."""
    drawn = Random(1)
    config = _group({"topic": "a", "totalMaxTps": 100.0})
    for _ in range(200):
        partitions, nodes = drawn.randint(1, 30), drawn.randint(1, 5)
        owners = Counter(drawn.randrange(nodes) for _ in range(partitions))
        total = 0.0
        for mine in owners.values():
            subscriptions = Subscriptions(config)
            subscriptions.heard({"a": partitions}, ())
            total += subscriptions.expanded(Counter(a=mine)).topics[0].tps_max or 0
        assert total == pytest.approx(100)


def _ground(**entry: Any) -> KafkaGround:
    return KafkaGround({"topic": "^t-.*", "orderKey": "KEY", "retryIntervals": [], **entry}, queues=1)


def _append(ground: KafkaGround, topic: str, body: bytes) -> None:
    ground.cluster().append(KafkaPartition(topic, 0), b"k", body)


def _pulled(ground: KafkaGround, client: Client) -> list[tuple[str, bytes]]:
    found = []
    while (batch := ground.group.pull(None, None, client)) is not None:
        topic = batch.jobs[0].topic
        found += [(topic, bytes(view[start:end])) for _, (view, start, end, _, _) in ground.messages(batch)]
        ground.group.apply(topic, batch.qid, [job.offset for job in batch.jobs], [], client)
    return sorted(found)


def test_each_topic_that_fits_is_read_also_one_that_comes_later() -> None:
    """By the entry's settings, and committed by its own name."""
    ground = _ground(maxPullBatchSize=3)
    client = Client()
    assert ground.group.stats().topics[0].unknown == NO_TOPIC
    assert _pulled(ground, client) == []
    _append(ground, "t-a", b"first")
    _append(ground, "other", b"of others")
    ground.advance(2)
    assert _pulled(ground, client) == [("t-a", b"first")]
    _append(ground, "t-b", b"later")
    _append(ground, "t-a", b"second")
    ground.advance(2)
    assert _pulled(ground, client) == [("t-a", b"second"), ("t-b", b"later")]
    ground.advance(1)
    committed = ground.cluster().group("g").committed
    assert {place.topic for place in committed} == {"t-a", "t-b"}
    assert committed[KafkaPartition("t-b", 0)][0] == ground.cluster().topics["t-b"][0].high
    assert [each.topic for each in ground.group.config.topics] == ["^t-.*", "t-a", "t-b"]
    assert ground.group.config.topics[2].max_pull_batch_size == 3


def test_dead_letter_of_a_topic_by_expression_says_where_it_is_from() -> None:
    """As of any other topic."""
    ground = _ground()
    client = Client()
    _append(ground, "t-a", b"bad")
    ground.advance(2)
    batch = ground.group.pull(None, None, client)
    assert batch is not None
    ground.group.apply("t-a", batch.qid, [], [batch.jobs[0].offset], client)
    ground.advance(1)
    [record] = ground.cluster().topics["g.DLQ"][0].records.values()
    assert (record.value, dict(record.headers)["pyddmq.topic"]) == (b"bad", b"t-a")


def test_rate_follows_the_partitions_of_the_node() -> None:
    """A second node takes half of them, and half of the total rate; when it has gone, all of it is here again."""
    entry = {"topic": "t", "totalMaxTps": 100.0}
    first = KafkaGround(entry, queues=4)
    first.advance(1)
    assert first.group.config.topics[0].tps_max == 100
    second = KafkaGround(entry, queues=4, beside=first)
    first.advance(1)
    assert [each.group.config.topics[0].tps_max for each in (first, second)] == [50, 50]
    second.member.leave(lambda: None)
    first.advance(2)
    assert first.group.config.topics[0].tps_max == 100
