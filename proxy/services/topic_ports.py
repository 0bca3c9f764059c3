"""The topics that take publishes: one port each, as the configuration says (D6)."""

from __future__ import annotations

from broker.format.message_type import MessageType
from broker.log.durability import AwaitedSteps
from broker.queues.topics import DEAD_LETTER_PREFIX, Topic, is_system, retry_topic
from broker.runtime.bundle import Runtime
from broker.runtime.steps import run_now
from broker.store import Store
from conf import Config, SubscriptionConfig, TopicConfig
from conf.base import is_topic_pattern
from proxy.services.kafka.ports import KafkaPort, KafkaWays, ProducerOf, WaitingOf
from proxy.services.topic_port import TopicPort
from upstream.waiting.limits import TokenBucket


def wanted_types(config: Config) -> dict[str, MessageType]:
    """Message types that a configuration gives to topics of the store."""
    return {
        name: MessageType(topic.message_type)
        for name, topic in config.topics.items()
        if topic.message_type and config.cluster_of(name) is None
    }


def _is_retried(subscription: SubscriptionConfig) -> bool:
    return subscription.retry_topic and subscription.enabled and not subscription.topic.startswith(DEAD_LETTER_PREFIX)


_TOPICS_AT_ONCE = 512
"""Topics of one step, a few milliseconds."""


class TopicPorts:
    """The ports of one node.

    Attributes:
        by_name: Port by topic, in UTF-8; one dictionary for the node's life, which the producers' service holds.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        producer_of: ProducerOf,
        waiting_of: WaitingOf = lambda _: None,
    ) -> None:
        """Have none; `publish` makes them.

        Args:
            store: Where topics are that are in no cluster of Kafka.
            runtime: The node's; its clock refills limits.
            producer_of: Returns the producer of a cluster.
            waiting_of: Returns what delays of a cluster go by.
        """
        self.by_name: dict[bytes, TopicPort] = {}
        self._store = store
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._ways = KafkaWays(producer_of, waiting_of)
        self._node_limit: TokenBucket | None = None

    def making(self, config: Config) -> AwaitedSteps[None]:
        """Create and widen topics as a configuration says (D6), with the retry topics of its groups, in steps.

        Raises:
            StoreError: They cannot be made.
        """
        wanted: dict[str, int] = {}
        for number, name in enumerate(config.topics, start=1):
            if config.cluster_of(name) is None:
                self._want(wanted, name, config.queue_count(name))
            if number % _TOPICS_AT_ONCE == 0:
                yield None
        for number, (name, group) in enumerate(config.groups.items(), start=1):
            if any(map(_is_retried, group.topics)) and config.cluster_of_group(name) is None:
                self._want(wanted, retry_topic(name), 1)
            if number % _TOPICS_AT_ONCE == 0:
                yield None
        yield from self._store.topic_changes.making(wanted)

    def _want(self, wanted: dict[str, int], name: str, queues: int) -> None:
        """Add a topic to `wanted` if it has fewer queues than that."""
        topic = self._store.topics.get(name)
        if topic is None or len(topic.queues) < queues:
            wanted[name] = queues

    def publish(self, config: Config) -> None:
        """`publishing` at once. Raises the same."""
        run_now(self.publishing(config))

    def publishing(self, config: Config) -> AwaitedSteps[None]:
        """Create, widen and type topics, and open or close them for publishing, as a configuration says (D6), in steps.

        What `making` did is not done again. Ports change in the last step, all of them.

        Raises:
            StoreError: A topic cannot be made.
        """
        yield from self.making(config)
        self._store.topic_changes.set_types(wanted_types(config))
        self._node_limit = self._limit(self._node_limit, config.node.max_tps)
        ports: dict[bytes, TopicPort] = {}
        for number, name in enumerate(config.topics, start=1):
            if number % _TOPICS_AT_ONCE == 0:
                yield None
            self._add(ports, config, name)
        for port in [port for port in ports.values() if not self._is_present(port)]:
            # Its topic was deleted or widened between two steps.
            self._add(ports, config, port.topic.name)
        for name in self._store.topic_changes.served:
            if name not in config.topics and name in self._store.topics:
                ports[name.encode()] = self._port(self._store.topics[name])
        self.by_name.clear()
        self.by_name.update(ports)

    def _add(self, ports: dict[bytes, TopicPort], config: Config, name: str) -> None:
        """Add the port of a configured topic, the present one where it would be made the same again."""
        settings, old = config.topics[name], self.by_name.get(name.encode())
        cluster = config.cluster_of(name)
        # An expression is for readers; no producer sends to it.
        if not settings.enabled or (cluster is not None and is_topic_pattern(name)):
            return
        limit = self._limit(None if old is None else old.limit, settings.max_tps)
        if cluster is not None:
            ports[name.encode()] = self._kafka_port(name, cluster, limit, settings)
            return
        topic = self._store.topics.get(name) or self._store.create_topic(name, config.queue_count(name))
        retry_ms = settings.limiter_failure_retry_interval
        fits = old is not None and not old.in_kafka and old.fits(topic, limit, self._node_limit, retry_ms)
        ports[name.encode()] = old if old is not None and fits else self._port(topic, limit, retry_ms)

    def _is_present(self, port: TopicPort) -> bool:
        if port.in_kafka:
            return True
        topic = port.topic
        return self._store.topics.get(topic.name) is topic and len(topic.queues) == port.queue_count

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
        topic = self._store.topic_changes.open(name, config.node.default_queues)
        port = self.by_name[name.encode()] = self._port(topic)
        return port

    def _port(self, topic: Topic, limit: TokenBucket | None = None, retry_ms: int = -1) -> TopicPort:
        return TopicPort(topic, limit, self._metrics, node_limit=self._node_limit, retry_ms=retry_ms)

    def _kafka_port(self, name: str, cluster: str, limit: TokenBucket | None, settings: TopicConfig) -> KafkaPort:
        kind = MessageType(settings.message_type) if settings.message_type else MessageType.MIXED
        return KafkaPort(
            name,
            cluster,
            self._ways,
            limit,
            self._metrics,
            message_type=kind,
            node_limit=self._node_limit,
            retry_ms=settings.limiter_failure_retry_interval,
        )

    def _limit(self, old: TokenBucket | None, rate: float | None) -> TokenBucket | None:
        """Return a limit of this rate: the old one, with the tokens that it has, where there is one."""
        if rate is None:
            return None
        if old is None:
            return TokenBucket(rate, self._clock)
        old.configure(rate)
        return old
