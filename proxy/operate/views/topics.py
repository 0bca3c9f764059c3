"""Topics and their queues."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import QueueRange, View


class TopicView(View, frozen=True, kw_only=True):
    """One topic of the store.

    Attributes:
        topic: Its name.
        system: Whether it is the broker's own.
        kind: `user`, `dead letters` (`%DLQ%<group>`), `retries` (`%RETRY%<group>`) or `system`.
        message_type: Which messages it takes (docs/protocol.md).
        queues: By number.
    """

    topic: str
    system: bool
    kind: str
    message_type: str = "MIXED"
    queues: Sequence[QueueRange]

    @property
    def messages(self) -> int:
        """Messages that its queues hold."""
        return sum(queue.max - queue.min for queue in self.queues)


class TopicInKafka(View, frozen=True, kw_only=True):
    """A topic of the configuration that is in Kafka.

    Attributes:
        topic: Its name, or the expression.
        cluster: Name of its cluster.
        partitions: How many it has; null while this node does not know.
    """

    topic: str
    cluster: str
    partitions: int | None


class TopicsAnswer(View, frozen=True, kw_only=True):
    """Topics.

    Attributes:
        now_ms: Now, by the node's wall clock.
        topics_total: How many there are.
        topics: User topics first, then the others by kind; by name among these.
        in_kafka: Topics of the configuration that are in Kafka, by name.
    """

    now_ms: int
    topics_total: int
    topics: Sequence[TopicView]
    in_kafka: Sequence[TopicInKafka] = ()
