"""One topic that takes publishes: what sending to it needs."""

from __future__ import annotations

from broker.format.message_type import MessageType
from broker.queues.topics import Topic
from broker.runtime.metrics import Counter, Metrics, declare
from upstream.waiting.limits import TokenBucket

MESSAGES_SENT = declare(
    "pyddmq_messages_published_total", "Messages stored, by topic; those of transactions when committed", ("topic",)
)
BYTES_SENT = declare("pyddmq_bytes_published_total", "Body bytes stored, by topic", ("topic",))


class TopicPort:
    """What publishing to one topic needs: its queues, limit, counters and the next queue of the round.

    `in_kafka`: it is a `proxy.services.kafka.ports.KafkaPort`, without queues. `guarded`: its messages have to pass a
    limit or a message type. Made again when queues, limits or type change.
    """

    in_kafka = False

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
        self.message_type = topic.message_type
        self.limit = limit
        self.node_limit = node_limit
        self.retry_ms = retry_ms
        # One test per message for all of it, whatever the topic is like.
        self.guarded = limit is not None or node_limit is not None or topic.message_type is not MessageType.MIXED
        self.messages: Counter = metrics.counter(MESSAGES_SENT, topic.name)
        self.body_bytes: Counter = metrics.counter(BYTES_SENT, topic.name)
        self.round = 0

    def fits(self, topic: Topic, limit: TokenBucket | None, node_limit: TokenBucket | None, retry_ms: int) -> bool:
        """Whether it would be made the same again."""
        return (
            self.topic is topic
            and self.queue_count == len(topic.queues)
            and self.message_type is topic.message_type
            and self.limit is limit
            and self.node_limit is node_limit
            and self.retry_ms == retry_ms
        )
