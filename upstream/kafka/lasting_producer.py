"""A producer that is replaced when it has ended by a fault, as members are (`upstream.kafka.membership`).

    in use --fatal error--> replaced after a while that doubles with each fault --> in use

What was sent by the one that ended is reported as failed by it. Sends meanwhile are refused with the reason, so a
producer that the cluster denies is denied and not unreachable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from upstream.figures.tracing import Tracing
from upstream.kafka.link import Broken, Headers, KafkaFailure, KafkaProducer, Produced

AGAIN_SECONDS_MAX = 60.0
HELD_SECONDS = 30.0
"""A producer that works for so long has the next fault count as a first, and ends the finding."""

RESTARTS = declare(
    "pyddmq_kafka_producer_restarts_total",
    "Producers of a Kafka cluster that ended by a fatal error and were replaced.",
    ("cluster",),
)


class LastingProducer:
    """`upstream.kafka.link.KafkaProducer` of one cluster.

    Attributes:
        trouble: Why the last one ended, until another has worked for a while; None: nothing.
    """

    def __init__(
        self, cluster: str, make: Callable[[Broken], KafkaProducer], runtime: Runtime, tracing: Tracing | None = None
    ) -> None:
        """Make the first one; raises what `make` does.

        Args:
            cluster: Its name.
            make: Makes a producer, given what to call when that has ended by a fault.
            runtime: Time, counts and log lines.
            tracing: Makes spans of records; None: nothing is traced.
        """
        self.trouble: KafkaFailure | None = None
        self._cluster = cluster
        self._make = make
        self._runtime = runtime
        self._tracing = tracing
        self._traced: dict[Produced, Produced] = {}
        """What is passed on for the `done` of a record that is traced."""
        self._number = 0
        self._faults = 0
        self._closed = False
        self._replacement = Later(runtime.scheduler, self._replace)
        self._proof = Later(runtime.scheduler, self._proven)
        self._producer: KafkaProducer | None = make(partial(self._broken, 0))

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append one record."""
        if self._producer is None:
            assert self.trouble is not None, "it ended for a reason"
            # Else it would keep the frames of all sends that it was raised for, with their messages.
            raise self.trouble.with_traceback(None)
        published = None if self._tracing is None else self._tracing.produced(topic, headers)
        if published is None:
            self._producer.produce(topic, partition, key, value, headers, done)
            return

        def produced(failure: KafkaFailure | None, at: int, offset: int) -> None:
            self._traced.pop(done, None)
            published(failure, at, offset)
            done(failure, at, offset)

        self._traced[done] = produced
        try:
            self._producer.produce(topic, partition, key, value, headers, produced)
        except KafkaFailure:
            del self._traced[done]
            raise

    def withdraw(self, done: Produced) -> bool:
        """Forget a record that has not left."""
        return self._producer is not None and self._producer.withdraw(self._traced.pop(done, done))

    def partitions(self, topic: str) -> int | None:
        """As known by now."""
        return None if self._producer is None else self._producer.partitions(topic)

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """As known by now; one that has ended says why by `trouble`."""
        return None if self._producer is None else self._producer.unreachable(topic)

    def close(self, seconds: float) -> None:
        """End. May be called in another thread."""
        self._closed = True
        if self._producer is not None:
            self._producer.close(seconds)

    def _broken(self, number: int, failure: KafkaFailure) -> None:
        if number != self._number or self._closed:
            return
        self._producer, self.trouble = None, failure
        self._proof.cancel()
        self._wait(failure)

    def _wait(self, error: Exception) -> None:
        self._faults += 1
        seconds = min(2.0 ** (min(self._faults, 10) - 1), AGAIN_SECONDS_MAX)
        self._runtime.limited_log.note(
            "kafka_producer_broken", self._cluster, error=str(error), again_seconds=seconds, faults=self._faults
        )
        self._replacement.after(seconds)

    def _replace(self) -> None:
        if self._closed:
            return
        self._number += 1
        try:
            self._producer = self._make(partial(self._broken, self._number))
        except Exception as error:
            self._wait(error)
            return
        self._runtime.metrics.counter(RESTARTS, self._cluster).add()
        self._proof.after(HELD_SECONDS)

    def _proven(self) -> None:
        self._faults = 0
        self.trouble = None
