"""Topics and their queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.views import QueueRange, View

if TYPE_CHECKING:
    from broker.queues.topics import Topic


def ranges(topic: Topic) -> list[QueueRange]:
    """Return what a topic's queues hold."""
    return [QueueRange(queue=each.queue_id, min=each.min_offset, max=each.max_offset) for each in topic.queues]


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

    @classmethod
    def of(cls, topic: Topic) -> TopicView:
        """Return one topic as it is now."""
        return cls(
            topic=topic.name,
            system=topic.system,
            kind=topic.kind,
            message_type=topic.message_type.value,
            queues=ranges(topic),
        )

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


class TopicRetention(View, frozen=True, kw_only=True):
    """What the retention of the store keeps of a topic.

    Attributes:
        age_ms: Age at which a file is deleted; null: no limit.
        bytes_max: Size of the log above which the oldest file is deleted; null: no limit.
        disk_ratio: Used part of the disk above which a file is deleted that no group needs; null: no limit.
        disk_ratio_forced: The same, needed or not; null: no limit.
        log_bytes: Size of the log's files.
        file: Commit-log offset at which the file begins that is deleted next; null while there is only one.
        due_ms: When that file reaches its age; null: not known, or no limit.
        reason: `age`, `size` or `disk` while the file is due; "" while it is not.
        deleted: Messages of the topic in that file.
        losses: By group, those that it has not finished.
    """

    age_ms: int | None
    bytes_max: int | None
    disk_ratio: float | None
    disk_ratio_forced: float | None
    log_bytes: int
    file: int | None = None
    due_ms: int | None = None
    reason: str = ""
    deleted: int = 0
    losses: Mapping[str, int] = {}
