"""How a transactional id is taken from a cluster that is slow, or refuses, and what is written by it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from broker.runtime.seams import SystemClock
from pyddmq.testing import ManualClock
from tests.kafka_world import Loop
from upstream.kafka.lease import Lease
from upstream.kafka.link import KafkaFailure, OutgoingRecord
from upstream.kafka_client.transactions import LibrdkafkaTransactions


class SlowProducer:
    """One whose first attempts fail."""

    def __init__(self, failures: list[KafkaError]) -> None:
        self.failures = failures
        self.attempts = 0
        self.listed: list[str] = []
        self.calls: list[str] = []
        self.silent: set[str] = set()
        self._written: list[Any] = []

    def init_transactions(self, seconds: float) -> None:
        """Fail, or take the id."""
        self.attempts += 1
        if self.failures:
            raise KafkaException(self.failures.pop(0))

    def list_topics(self, topic: str, timeout: float) -> None:
        """Learn the leaders."""
        self.listed.append(topic)

    def purge(self) -> None:
        """Forget what is under way."""
        self.calls.append("purge")

    def begin_transaction(self) -> None:
        """Begin."""
        self.calls.append("begin")

    def produce(self, topic: str, *, on_delivery: Any, **_: object) -> None:
        """Have it acknowledged by the next poll, unless the topic is silent."""
        if topic not in self.silent:
            self._written.append(on_delivery)

    def poll(self, seconds: float) -> None:
        """Report what is acknowledged."""
        for each in self._written:
            each(None, Acknowledged())
        self._written.clear()

    def commit_transaction(self, seconds: float) -> None:
        """Commit."""
        self.calls.append("commit")

    def abort_transaction(self, seconds: float) -> None:
        """Abort."""
        self.calls.append("abort")


class Acknowledged:
    """A message that was written."""

    def offset(self) -> int:
        """Any."""
        return 7


class ProducerSettings:
    """Makes that producer, and counts how often."""

    def __init__(self, producer: SlowProducer) -> None:
        self.producer = producer
        self.made = 0

    def transactional(self, *_: object) -> SlowProducer:
        """Make one."""
        self.made += 1
        return self.producer

    def give_password(self, _: object) -> None:
        """It has none."""

    def hide(self, text: str) -> str:
        """No secret is in it."""
        return text


def begun_writer(
    settings: Any, loop: Loop, known: dict[str, float], lease: Lease | None = None
) -> tuple[LibrdkafkaTransactions, list[KafkaFailure | None]]:
    """Take an id; with what came of that."""
    queries: Any = None
    clock = SystemClock()
    writer = LibrdkafkaTransactions(
        "id",
        "client",
        settings=settings,
        loop=loop,
        clock=clock,
        queries=queries,
        query_consumer=lambda: None,
        known=known,
    )
    writer.lease = lease
    ended: list[KafkaFailure | None] = []
    writer.begin(ended.append)
    loop.until(lambda: ended, "the id to be taken")
    return writer, ended


def written(writer: LibrdkafkaTransactions, loop: Loop, *topics: str) -> tuple[KafkaFailure | None, set[str]]:
    """Write a record to each topic; what failed, and which topics refused."""
    found: list[tuple[KafkaFailure | None, set[str]]] = []
    records = [OutgoingRecord(topic, 0, b"k", b"v") for topic in topics]
    writer.write(records, lambda failure, refused, _: found.append((failure, set(refused))))
    loop.until(lambda: found, "the end of the transaction")
    return found[0]


@pytest.mark.parametrize(
    ("failures", "retriable", "attempts", "begun"), [(3, True, 4, True), (9, True, 6, False), (1, False, 1, False)]
)
def test_slow_cluster_gets_more_time_for_the_same_producer(
    failures: int, retriable: bool, attempts: int, begun: bool
) -> None:
    """A new one for each attempt would never be done; what cannot be repeated is reported at once."""
    error = KafkaError(KafkaError._TIMED_OUT, "slow", retriable=retriable)
    producer = SlowProducer([error] * failures)
    settings: Any = ProducerSettings(producer)
    _, ended = begun_writer(settings, Loop(), {})
    assert (producer.attempts, settings.made, ended[0] is None) == (attempts, 1, begun)


def test_nothing_is_committed_after_the_lease() -> None:
    """Another node may have the partition: what was written is aborted."""
    producer, loop, clock = SlowProducer([]), Loop(), ManualClock()
    lease = Lease(clock, 6.0, regained=lambda: None)
    lease.extend(lease.now())
    known = {"a": 1e12}
    writer, _ = begun_writer(ProducerSettings(producer), loop, known, lease)
    assert written(writer, loop, "a")[0] is None
    clock.advance(5.0)
    failure, _ = written(writer, loop, "a")
    assert failure is not None
    assert (failure.code, failure.lost, failure.unknown) == ("LEASE_EXPIRED", False, False)
    assert producer.calls == ["begin", "commit", "begin", "abort"]
    writer.close()


def test_idle_producer_learns_the_leaders_of_topics_that_others_write_to() -> None:
    """So its first record waits for no broker that hangs."""
    producer, loop = SlowProducer([]), Loop()
    known: dict[str, float] = {}
    writer, _ = begun_writer(ProducerSettings(producer), loop, known)
    known.update(a=1e12, b=1e12)
    loop.until(lambda: {"a", "b"} <= set(producer.listed), "both topics")
    writer.close()


def test_transaction_with_a_topic_that_hangs_is_aborted_at_once() -> None:
    """What is under way is dropped first: an abort would wait for it, and consumers of the other topics with it."""
    producer, loop = SlowProducer([]), Loop()
    producer.silent = {"ill"}
    writer, _ = begun_writer(ProducerSettings(producer), loop, {"a": 1e12, "ill": 1e12})
    failure, refused = written(writer, loop, "a", "ill")
    assert failure is not None
    assert (failure.lost, refused) == (True, {"ill"})
    loop.until(lambda: "abort" in producer.calls, "the abort")
    assert producer.calls[:3] == ["begin", "purge", "abort"]
    writer.close()
