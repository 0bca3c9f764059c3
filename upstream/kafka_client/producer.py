"""Appends records.

A topic is asked for before the first record goes to it, since a producer of librdkafka's would have the brokers make
one that is not there. Records wait for that answer in their order.
"""

from __future__ import annotations

import contextlib
import re
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.link import NOT_SENT, Broken, Headers, KafkaFailure, Produced
from upstream.kafka_client.lookups import partitions_of
from upstream.kafka_client.package import KafkaUnusable, cause_of, confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.query_thread import QueryThread
from upstream.kafka_client.settings import Settings
from upstream.kafka_client.troubles import LINK_LOST, sentence_of

# Names of headers that are not UTF-8 (D58): as text they are `base64;` and the Base64 of their bytes.


PREFIX = "base64;"
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_HOLE = "(<NULL>"
"""How a pair without a name is shown. To look at the name itself would end the process."""


def name_of(error: BaseException) -> str:
    """Return the name that the package could not decode, as text; "" where the error does not have it."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, UnicodeDecodeError):
            return _escaped(found.object)
        found = found.__cause__
    return ""


def names_lost(pairs: Sequence[Any], first: str) -> Headers:
    """Return headers of which the package has lost names: the first one's is known, others are empty."""
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if repr(pair).startswith(_HOLE):
            headers.append((first, *pair[1:]))
            first = ""
        else:
            headers.append(pair)
    return headers


def writable(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return headers with names that the package can write.

    It writes no other names than UTF-8: what was read in Base64 is written by that text. A name with half a surrogate
    would end the process, and 0x00 the name.
    """
    return [
        (name if _is_text(name) else _escaped(name.encode("utf-8", "surrogatepass")), value) for name, value in headers
    ]


def _escaped(name: bytes) -> str:
    return PREFIX + b64encode(name).decode()


def _is_text(name: str) -> bool:
    return name.isidentifier() or not _UNWRITABLE.search(name)


HELD_MAX = 10_000
DENIED = frozenset(
    {"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
)
"""The cluster refuses the producer before it sends anything."""
_REFUSED_LINK = frozenset({"AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "SSL"})
"""The cluster takes no connection of this node's."""
_REFUSED_SECONDS = 60.0
"""So long after a refused connection is it the reason why nothing is answered: librdkafka repeats it within 30 s."""
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_POLL_SECONDS = 0.1
_BOTH_SECONDS = 0.01
"""Likewise while two are polled in turn."""
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


class _ProducerTopic:
    """What is known of a topic.

    Attributes:
        count: Its partitions; None: not known, or there is none.
        until: When it is asked for again.
        loading: Whether it is being looked up.
        held: Records that wait for the answer.
        alone: A batch was too large for it: each record is sent alone.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.until = 0.0
        self.loading = False
        self.held: list[_Record] = []
        self.alone = False


class LibrdkafkaProducer:
    """`upstream.kafka.link.KafkaProducer`."""

    def __init__(
        self,
        client_id: str,
        *,
        settings: Settings,
        loop: ThreadLoop,
        clock: Clock,
        queries: QueryThread,
        query_consumer: Any,
        broken: Broken = lambda _: None,
    ) -> None:
        """Make the producer.

        Args:
            client_id: How brokers name it in their logs.
            settings: Of the cluster.
            loop: The event loop.
            clock: For attempts again.
            queries: Looks up partitions, by a consumer,
            query_consumer: which makes no topics.
            broken: Called when the producer has ended by a fatal error.

        Raises:
            KafkaUnusable: The package is missing, or refuses a setting.
        """
        self._post = Post(loop)
        self._clock = clock
        self._queries = queries
        self._query_consumer = query_consumer
        self._package = confluent()
        self._settings = settings
        self._client_id = client_id
        self._hide = settings.hide
        self._sent_seconds_max = settings.sent_seconds_max
        self._topics: dict[str, _ProducerTopic] = {}
        self._ended: deque[tuple[Produced, KafkaFailure | None, int, int]] = deque()
        self._closed = threading.Event()
        self._broken = broken
        self._fatal: KafkaFailure | None = None
        self._refused: tuple[KafkaFailure, float] | None = None
        """Why the last connection was refused, and when."""
        self._heard = ""
        """What the last connection that failed said."""
        self._unreachable: KafkaFailure | None = None
        self._producer = settings.producer(client_id, error_cb=self._note)
        self._alone: Any = None
        """Sends each record alone; made when a batch was too large for its topic."""
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
            raise self._fatal or KafkaFailure("DESTROY", "the producer is closed")
        known = self._topics.get(topic)
        if known is not None and known.count is not None and not known.held:
            self._send(topic, partition, key, value, headers, done)
            return
        known = self._known(topic)
        if len(known.held) >= HELD_MAX:
            raise KafkaFailure("QUEUE_FULL", f"{HELD_MAX} records wait for the cluster's response on {topic}")
        known.held.append(_Record(topic, partition, key, value, headers, done, self._clock.monotonic()))
        self._ask(topic, known)

    def withdraw(self, done: Produced) -> bool:
        """Forget a record that waits for the answer of its topic."""
        for known in self._topics.values():
            for each in known.held:
                if each.done is done:
                    known.held.remove(each)
                    return True
        return False

    def partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic has, as known by now."""
        known = self._known(topic)
        if self._clock.monotonic() >= known.until:
            self._ask(topic, known)
        return known.count

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """Return why the cluster did not respond when it was last asked."""
        self.partitions(topic)
        return self._unreachable

    def close(self, seconds: float) -> None:
        """Wait at most so long for what is under way, and end. May be called in another thread."""
        until = self._clock.monotonic() + seconds
        for each in (self._producer, self._alone):
            if each is not None:
                with contextlib.suppress(Exception):
                    each.flush(max(0.0, until - self._clock.monotonic()))
        self._closed.set()
        # What is still under way is reported as such.
        self._purge()
        self._thread.join()
        self._report()

    def _send(  # noqa: PLR0917
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        known = self._known(topic)
        alone = known.alone

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._ended.append((done, None, message.partition(), message.offset()))
                return
            failure = failure_of(error, self._hide(error.str()))
            if failure.code == _TOO_LARGE and not alone:
                # The batch was, of which this is a part.
                self._post(again)
                return
            known.until = 0.0
            known.count = None
            self._ended.append((done, failure, -1, -1))

        def again() -> None:
            known.alone = True
            try:
                self.produce(topic, partition, key, value, headers, done)
            except KafkaFailure as failure:
                done(failure, -1, -1)

        try:
            self._of(alone=alone).produce(
                topic,
                value=value,
                key=key,
                partition=-1 if partition is None else partition,
                headers=writable(headers) or None,
                on_delivery=delivered,
            )
        except BufferError:
            raise KafkaFailure("QUEUE_FULL", "too many records wait for the cluster") from None
        except self._package.KafkaException as error:
            raise self._reason(failure_of(error), unknown=False) from None

    def _note(self, error: Any) -> None:
        """Take an error of librdkafka's, in the thread. Errors that are not fatal arrive with their records."""
        if error.fatal() and self._fatal is None:
            self._fatal = failure_of(error, self._hide(error.str()))
        failure = failure_of(error, self._hide(error.str()))
        if failure.code in _REFUSED_LINK:
            self._refused = failure, self._clock.monotonic()
        elif failure.code in LINK_LOST:
            self._heard = sentence_of(failure.code, self._hide(error.str()))

    def _reason(self, failure: KafkaFailure, *, unknown: bool) -> KafkaFailure:
        """Return why a record failed: of a fatal error, what that was."""
        if failure.code not in {"FATAL", "PURGE_QUEUE", "PURGE_INFLIGHT"} or self._fatal is None:
            return failure
        if self._fatal.code in DENIED:
            return self._fatal
        return KafkaFailure("FATAL", str(self._fatal), unknown=unknown)

    def _of(self, *, alone: bool) -> Any:
        """Return the producer of librdkafka that sends batches, or each record alone. Raises KafkaFailure."""
        if not alone:
            return self._producer
        if self._alone is None:
            try:
                self._alone = self._settings.producer(self._client_id, alone=True, error_cb=self._note)
            except KafkaUnusable as error:
                raise KafkaFailure("NO_CLIENT", str(error)) from error
        return self._alone

    def _known(self, topic: str) -> _ProducerTopic:
        return self._topics.setdefault(topic, _ProducerTopic())

    def _ask(self, topic: str, known: _ProducerTopic) -> None:
        if known.loading or self._closed.is_set():
            return
        known.loading = True

        def query() -> Callable[[], None]:
            found = partitions_of(self._query_consumer(), topic)
            return lambda: self._answered(topic, known, found)

        self._queries.submit(query, lambda: self._unanswered(topic, known))

    def _answered(self, topic: str, known: _ProducerTopic, found: int | KafkaFailure) -> None:
        known.loading = False
        self._refused = self._unreachable = None
        self._heard = ""
        count = None if isinstance(found, KafkaFailure) else found
        known.count = count
        known.until = self._clock.monotonic() + (_UNKNOWN_SECONDS if count is None else _KNOWN_SECONDS)
        held, known.held = known.held, []
        for each in held:
            if isinstance(found, KafkaFailure):
                each.done(found, -1, -1)
                continue
            try:
                self.produce(*each[:-1])
            except KafkaFailure as failure:
                each.done(failure, -1, -1)

    def _unanswered(self, topic: str, known: _ProducerTopic) -> None:
        """Ask again for as long as a record may wait, unless the cluster refuses this node; nothing held has left."""
        known.loading = False
        now = self._clock.monotonic()
        refusal = None
        if self._refused is not None and now - self._refused[1] < _REFUSED_SECONDS:
            refusal = self._refused[0]
        self._unreachable = refusal or KafkaFailure("ALL_BROKERS_DOWN", self._heard or "no answer")
        ended: list[_Record] = []
        kept: list[_Record] = []
        for each in known.held:
            is_over = refusal is not None or self._closed.is_set() or now - each.at >= self._sent_seconds_max
            (ended if is_over else kept).append(each)
        known.held = kept
        for each in ended:
            each.done(refusal or KafkaFailure(NOT_SENT, f"the cluster does not respond for topic {topic}"), -1, -1)
        if known.held:
            self._ask(topic, known)

    def _live(self) -> None:
        while not self._closed.is_set():
            self._settings.give_password(self._producer)
            if self._alone is not None:
                self._settings.give_password(self._alone)
            try:
                self._producer.poll(_POLL_SECONDS if self._alone is None else _BOTH_SECONDS)
                if self._alone is not None:
                    self._alone.poll(0)
            except Exception as error:
                cause = cause_of(error)
                if cause is not None:
                    self._note(cause.args[0])
                elif self._fatal is None:
                    # What was under way is not known, and a thread that ends would leave it so.
                    self._fatal = KafkaFailure("FAIL", repr(error), unknown=True)
            self._report()
            if self._fatal is not None:
                self._end(self._fatal)

    def _end(self, failure: KafkaFailure) -> None:
        """A producer with a fatal error takes nothing more: report what it has, and end."""
        self._closed.set()
        self._purge()
        self._report()
        self._post(self._broken, failure)

    def _purge(self) -> None:
        """Have what is under way reported as such."""
        for each in (self._producer, self._alone):
            if each is not None:
                # A fatal error may come as any exception.
                with contextlib.suppress(Exception):
                    each.purge()
                with contextlib.suppress(Exception):
                    each.flush(_POLL_SECONDS)

    def _report(self) -> None:
        ended: list[tuple[Produced, KafkaFailure | None, int, int]] = []
        while self._ended:
            done, failure, partition, offset = self._ended.popleft()
            failure = failure and self._reason(failure, unknown=True)
            ended.append((done, failure, partition, offset))
        if ended:
            self._post(_report_all, ended)


def _report_all(ended: Sequence[tuple[Produced, KafkaFailure | None, int, int]]) -> None:
    for done, failure, partition, offset in ended:
        done(failure, partition, offset)
