"""Appends records.

A topic is asked for before the first record goes to it, since a producer of librdkafka's would have the brokers make
one that is not there. Records wait for that answer in their order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.link import Headers, KafkaFailure, Produced
from upstream.kafka_client.asking import Asking
from upstream.kafka_client.lookups import partitions_of
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.settings import Settings

HELD_MAX = 10_000
_POLL_SECONDS = 0.1
_KNOWN_SECONDS = 60.0
_UNKNOWN_SECONDS = 1.0


class _Record(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    done: Produced
    at: float


class _Topic:
    """What is known of a topic.

    Attributes:
        count: Its partitions; None: not known, or there is none.
        until: When it is asked for again.
        asking: Whether it is being asked for.
        held: Records that wait for the answer.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.until = 0.0
        self.asking = False
        self.held: list[_Record] = []


class LibrdkafkaProducer:
    """`upstream.kafka.link.Producer`."""

    def __init__(
        self, client_id: str, *, settings: Settings, loop: ThreadLoop, clock: Clock, asking: Asking, asker: Any
    ) -> None:
        """Make the producer.

        Args:
            client_id: How brokers name it in their logs.
            settings: Of the cluster.
            loop: The event loop.
            clock: For attempts again.
            asking: Asks for partitions, by a consumer,
            asker: which makes no topics.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
        """
        self._post = Post(loop)
        self._clock = clock
        self._asking = asking
        self._asker = asker
        self._package = confluent()
        self._hide = settings.hide
        self._sent_seconds_max = settings.sent_seconds_max
        self._topics: dict[str, _Topic] = {}
        self._ended: deque[tuple[Produced, KafkaFailure | None, int, int]] = deque()
        self._closed = threading.Event()
        self._producer = settings.producer(client_id)
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-sent-{settings.cluster}")
        self._thread.start()

    def produce(  # noqa: PLR0917 - as it is called for every record
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append one record."""
        if self._closed.is_set():
            raise KafkaFailure("DESTROY", "the producer is closed")
        known = self._topics.get(topic)
        if known is not None and known.count is not None and not known.held:
            self._send(topic, partition, key, value, headers, done)
            return
        known = self._known(topic)
        if len(known.held) >= HELD_MAX:
            raise KafkaFailure("QUEUE_FULL", f"{HELD_MAX} records wait for the cluster to tell of {topic}")
        known.held.append(_Record(topic, partition, key, value, headers, done, self._clock.monotonic()))
        self._ask(topic, known)

    def partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic has, as known by now."""
        known = self._known(topic)
        if self._clock.monotonic() >= known.until:
            self._ask(topic, known)
        return known.count

    def close(self, seconds: float) -> None:
        """Wait at most so long for what is under way, and end. May be called in another thread."""
        self._producer.flush(seconds)
        self._closed.set()
        # What is still under way is told as such.
        self._producer.purge()
        self._producer.flush(_POLL_SECONDS)
        self._thread.join()
        self._tell()

    def _send(  # noqa: PLR0917
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._ended.append((done, None, message.partition(), message.offset()))
            else:
                self._ended.append((done, failure_of(error, self._hide(error.str())), -1, -1))

        try:
            self._producer.produce(
                topic,
                value=value,
                key=key,
                partition=-1 if partition is None else partition,
                headers=list(headers) or None,
                on_delivery=delivered,
            )
        except BufferError:
            raise KafkaFailure("QUEUE_FULL", "too many records wait for the cluster") from None
        except self._package.KafkaException as error:
            raise failure_of(error) from None

    def _known(self, topic: str) -> _Topic:
        return self._topics.setdefault(topic, _Topic())

    def _ask(self, topic: str, known: _Topic) -> None:
        if known.asking or self._closed.is_set():
            return
        known.asking = True

        def ask() -> Callable[[], None]:
            count = partitions_of(self._asker(), topic)
            return lambda: self._answered(topic, known, count)

        self._asking.ask(ask, lambda: self._unanswered(topic, known))

    def _answered(self, topic: str, known: _Topic, count: int | None) -> None:
        known.asking = False
        known.count = count
        known.until = self._clock.monotonic() + (_UNKNOWN_SECONDS if count is None else _KNOWN_SECONDS)
        held, known.held = known.held, []
        for each in held:
            if count is None:
                text = f"there is no topic {topic} in the cluster"
                each.done(KafkaFailure("UNKNOWN_TOPIC_OR_PART", text), -1, -1)
                continue
            try:
                self._send(*each[:-1])
            except KafkaFailure as failure:
                each.done(failure, -1, -1)

    def _unanswered(self, topic: str, known: _Topic) -> None:
        """Ask again for as long as a record may wait; the question itself took its time."""
        known.asking = False
        now = self._clock.monotonic()
        late = [each for each in known.held if self._closed.is_set() or now - each.at >= self._sent_seconds_max]
        known.held = [each for each in known.held if each not in late]
        for each in late:
            each.done(KafkaFailure("MSG_TIMED_OUT", f"the cluster does not tell of {topic}"), -1, -1)
        if known.held:
            self._ask(topic, known)

    def _live(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(_POLL_SECONDS)
            self._tell()

    def _tell(self) -> None:
        ended: list[tuple[Produced, KafkaFailure | None, int, int]] = []
        while self._ended:
            ended.append(self._ended.popleft())
        if ended:
            self._post(_tell_all, ended)


def _tell_all(ended: Sequence[tuple[Produced, KafkaFailure | None, int, int]]) -> None:
    for done, failure, partition, offset in ended:
        done(failure, partition, offset)
