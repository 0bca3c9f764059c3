"""How a transactional id is taken from a cluster that is slow, or refuses."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pyddmq.testing import ManualClock
from tests.kafka_world import Loop
from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.transactions import LibrdkafkaTransactions


class SlowProducer:
    """One whose first attempts fail."""

    def __init__(self, failures: list[KafkaError]) -> None:
        self.failures = failures
        self.attempts = 0

    def init_transactions(self, seconds: float) -> None:
        """Fail, or take the id."""
        self.attempts += 1
        if self.failures:
            raise KafkaException(self.failures.pop(0))

    def list_topics(self, topic: str, timeout: float) -> None:
        """Connect."""

    def purge(self) -> None:
        """Nothing is written."""


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
    loop = Loop()
    asking: Any = None
    writer = LibrdkafkaTransactions(
        "id", "client", settings=settings, loop=loop, clock=ManualClock(), asking=asking, asker=lambda: None, known={}
    )
    ended: list[KafkaFailure | None] = []
    writer.begin(ended.append)
    loop.until(lambda: ended, "the id to be taken")
    writer.close()
    assert (producer.attempts, settings.made, ended[0] is None) == (attempts, 1, begun)
