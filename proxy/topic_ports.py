"""The topics that take publishes: one port each, as the configuration says (D6)."""

from __future__ import annotations

from broker.message_type import MessageType
from broker.metrics import Metrics
from broker.seams import Clock
from broker.store import Store
from conf import Config
from proxy.producer_service import TopicPort
from upstream.limits import TokenBucket


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

    def publish(self, config: Config) -> None:
        """Create, widen and type topics, and open or close them for publishing, as a configuration says (D6).

        Raises:
            StoreError: A topic cannot be made.
        """
        for name in config.topics:
            self._store.create_topic(name, config.queue_count(name))
        self._store.topic_changes.set_types(wanted_types(config))
        ports: dict[bytes, TopicPort] = {}
        for name, settings in config.topics.items():
            topic = self._store.topics[name]
            if not settings.enabled:
                continue
            old = self.by_name.get(name.encode())
            limit = old.limit if old is not None else None
            if settings.max_tps is None:
                limit = None
            elif limit is None:
                limit = TokenBucket(settings.max_tps, self._clock)
            else:
                limit.configure(settings.max_tps)
            ports[name.encode()] = TopicPort(topic, limit, self._metrics)
        for name in self._store.topic_changes.served:
            if name not in config.topics and name in self._store.topics:
                ports[name.encode()] = TopicPort(self._store.topics[name], None, self._metrics)
        self.by_name.clear()
        self.by_name.update(ports)

    def auto_create(self, name: str, config: Config) -> TopicPort | None:
        """Make a topic on its first publish where the configuration allows it; None where not.

        Raises:
            MessageRefused, StoreError: It cannot be made.
        """
        if not config.node.auto_create_topics or name in config.topics:
            return None
        existing = self._store.topics.get(name)
        if existing is not None and existing.system:
            return None
        topic = self._store.create_topic(name, config.node.default_queues)
        port = self.by_name[name.encode()] = TopicPort(topic, None, self._metrics)
        return port
