"""The topics that take publishes: one port each, as the configuration says (D6)."""

from __future__ import annotations

from broker.format.message_type import MessageType
from broker.queues.topics import is_system
from broker.runtime.metrics import Counter, Metrics, declare
from broker.runtime.seams import Clock
from broker.store import Store, Topic
from conf import Config
from upstream.waiting.limits import TokenBucket

MESSAGES_SENT = declare(
    "pyddmq_messages_published_total", "Messages stored, by topic; those of transactions when committed", ("topic",)
)
BYTES_SENT = declare("pyddmq_bytes_published_total", "Body bytes stored, by topic", ("topic",))


class TopicPort:
    """What publishing to one topic needs at hand: its queues, limit, counters and the next queue of the round.

    `guarded`: its messages have to pass a limit or a message type. Made anew when queues, limits or type change.
    """

    __slots__ = (
        "body_bytes",
        "guarded",
        "limit",
        "messages",
        "node_limit",
        "queue_count",
        "retry_ms",
        "round",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        limit: TokenBucket | None,
        metrics: Metrics,
        *,
        node_limit: TokenBucket | None = None,
        retry_ms: int = -1,
    ) -> None:
        self.topic = topic
        self.queue_count = len(topic.queues)
        self.limit = limit
        self.node_limit = node_limit
        self.retry_ms = retry_ms
        # One test per message for all of it, whatever the topic is like.
        self.guarded = limit is not None or node_limit is not None or topic.message_type is not MessageType.MIXED
        self.messages: Counter = metrics.counter(MESSAGES_SENT, topic.name)
        self.body_bytes: Counter = metrics.counter(BYTES_SENT, topic.name)
        self.round = 0


def wanted_types(config: Config) -> dict[str, MessageType]:
    """Message types that a configuration gives to topics."""
    return {name: MessageType(topic.message_type) for name, topic in config.topics.items() if topic.message_type}


class TopicPorts:
    """The ports of one node.

    Attributes:
        by_name: Port by topic, in UTF-8; one dictionary for the node's life, which the producers' service holds.
    """

    def __init__(self, store: Store, clock: Clock, metrics: Metrics) -> None:
        self.by_name: dict[bytes, TopicPort] = {}
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._node_limit: TokenBucket | None = None

    def publish(self, config: Config) -> None:
        """Create, widen and type topics, and open or close them for publishing, as a configuration says (D6).

        Raises:
            StoreError: A topic cannot be made.
        """
        for name in config.topics:
            self._store.create_topic(name, config.queue_count(name))
        self._store.topic_changes.set_types(wanted_types(config))
        self._node_limit = self._limit(self._node_limit, config.node.max_tps)
        ports: dict[bytes, TopicPort] = {}
        for name, settings in config.topics.items():
            topic = self._store.topics[name]
            if not settings.enabled:
                continue
            old = self.by_name.get(name.encode())
            limit = self._limit(None if old is None else old.limit, settings.max_tps)
            ports[name.encode()] = self._port(topic, limit, settings.limiter_failure_retry_interval)
        for name in self._store.topic_changes.served:
            if name not in config.topics and name in self._store.topics:
                ports[name.encode()] = self._port(self._store.topics[name])
        self.by_name.clear()
        self.by_name.update(ports)

    def close(self, name: str) -> None:
        """Take no publishes to a topic until the next `publish`; it is about to be deleted."""
        self.by_name.pop(name.encode(), None)

    def auto_create(self, name: str, config: Config) -> TopicPort | None:
        """Make a topic on its first publish where the configuration allows it; None where not, as for its own names.

        Raises:
            MessageRefused, StoreError: It cannot be made.
        """
        if not config.node.auto_create_topics or name in config.topics or is_system(name):
            return None
        existing = self._store.topics.get(name)
        if existing is not None and existing.system:
            return None
        topic = self._store.create_topic(name, config.node.default_queues)
        port = self.by_name[name.encode()] = self._port(topic)
        return port

    def _port(self, topic: Topic, limit: TokenBucket | None = None, retry_ms: int = -1) -> TopicPort:
        return TopicPort(topic, limit, self._metrics, node_limit=self._node_limit, retry_ms=retry_ms)

    def _limit(self, old: TokenBucket | None, rate: float | None) -> TokenBucket | None:
        """Return a limit of this rate: the old one, with the tokens that it has, where there is one."""
        if rate is None:
            return None
        if old is None:
            return TokenBucket(rate, self._clock)
        old.configure(rate)
        return old
