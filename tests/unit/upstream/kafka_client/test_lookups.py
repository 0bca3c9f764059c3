"""Questions to a cluster, each over a consumer that answers from a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.conftest import need_module
from upstream.kafka.link import KafkaPartition, LogBounds, TopicSubscription
from upstream.kafka.positions.new_partitions import NewPartitions
from upstream.kafka_client.lookups import assignments_of, bounds_of_each, look_before

FIRST, END = -2, -1
T0, T1 = KafkaPartition("t", 0), KafkaPartition("t", 1)


class _Partition(NamedTuple):
    topic: str
    partition: int
    offset: int = -1001
    metadata: str | None = None
    error: Any = None
    leader_epoch: int | None = None


class _Topic(NamedTuple):
    partitions: dict[int, None]
    error: Any = None


class _Topics(NamedTuple):
    topics: dict[str, _Topic]


class Consumer:
    """Answers; `ends` are first offsets and ends by partition."""

    def __init__(
        self, ends: dict[KafkaPartition, tuple[int, int]], committed: dict[KafkaPartition, int] | None = None
    ) -> None:
        self.ends = ends
        self.stood = committed or {}
        self.closed = False

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[_Partition]:
        """Find first offsets and ends."""
        places = [(KafkaPartition(each.topic, each.partition), each.offset) for each in asked]
        return [_Partition(*place, self.ends[place][0 if moment == FIRST else 1]) for place, moment in places]

    def committed(self, asked: list[Any], timeout: float) -> list[_Partition]:
        """Find commits."""
        return [
            _Partition(each.topic, each.partition, self.stood.get(KafkaPartition(*each[:2]), -1001)) for each in asked
        ]

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> _Topics:
        """Find topics."""
        names = {each.topic for each in self.ends if topic in (None, each.topic)}
        return _Topics(
            {name: _Topic({each.partition: None for each in self.ends if each.topic == name}) for name in names}
        )

    def close(self) -> None:
        """Note it."""
        self.closed = True


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    package = need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    monkeypatch.setattr(package, "TopicPartition", _Partition)


def test_bounds_have_the_high_watermark_beside_the_end_of_what_may_be_read() -> None:
    """By a consumer of each kind."""
    found, failures = bounds_of_each(Consumer({T0: (1, 4)}), Consumer({T0: (1, 9)}), [T0])
    assert (found, failures) == ([LogBounds(T0, 1, 9, 4)], {})


def test_high_watermark_is_looked_up_for_a_commit_above_what_may_be_read() -> None:
    """Only then: most commits are below."""
    uncommitted = Consumer({T0: (0, 9), T1: (0, 9)})
    for commit, high, closed in ((3, 4, False), (5, 9, True)):
        [found], _ = assignments_of(
            Consumer({T0: (0, 4)}, {T0: commit}),
            [T0],
            [TopicSubscription("t")],
            new_partitions=NewPartitions(),
            make_uncommitted=lambda: uncommitted,
        )
        assert (found.high, found.stable, found.is_beyond, uncommitted.closed) == (high, 4, False, closed)


def test_what_was_there_before_is_looked_up_once_where_it_matters() -> None:
    """A partition that is added afterwards is new; a group that begins at the first record asks for nothing."""
    new_partitions = NewPartitions()
    consumer = Consumer({T0: (0, 4)}, {T0: 1})
    look_before(consumer, [TopicSubscription("t")], new_partitions)
    assert not new_partitions.is_new(T1)
    look_before(consumer, [TopicSubscription("t", late=True)], new_partitions)
    consumer.ends[T1] = (0, 1)
    look_before(consumer, [TopicSubscription("t", late=True)], new_partitions)
    found, _ = assignments_of(consumer, [T0, T1], [], new_partitions=new_partitions, make_uncommitted=lambda: consumer)
    assert [each.appeared for each in found] == [False, True]
