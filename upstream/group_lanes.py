"""The queues of one group: lanes and their trackers, made when a topic is first read and kept over generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.time_search import offset_at
from upstream.dead_letters import is_dead_letter_topic
from upstream.lane import Lane

if TYPE_CHECKING:
    from broker.consume_queue import ConsumeQueue
    from broker.store import Store
    from broker.topics import Topic
    from conf.models import SubscriptionConfig
    from upstream.buffer import PullBuffer
    from upstream.progress import Progress


class UnknownTopic(Exception):
    """A subscribed topic is not in the store."""


class GroupLanes:
    """Makes the lanes of one group.

    Attributes:
        by_topic: Topic to text of the queue on the wire (qid) to lane.
    """

    def __init__(self, group: str, *, store: Store, progress: Progress, buffer: PullBuffer, qid_prefix: str) -> None:
        self.by_topic: dict[str, dict[str, Lane]] = {}
        self._group = group
        self._store = store
        self._progress = progress
        self._buffer = buffer
        self._qid_prefix = qid_prefix

    def qid(self, queue_id: int) -> str:
        """Text of a queue on the wire."""
        return f"{self._qid_prefix}{queue_id}"

    def topic(self, name: str) -> Topic:
        """Return a subscribed topic; a group's dead-letter topic is made where it is not there yet.

        Raises:
            UnknownTopic: It is not in the store.
        """
        topic = self._store.topics.get(name)
        if topic is None:
            if not is_dead_letter_topic(name):
                raise UnknownTopic(f"topic {name!r} is not in the store: add it under `topics`")
            topic = self._store.create_topic(name, 1, system=True)
        return topic

    def lane(self, topic: Topic, queue: ConsumeQueue, config: SubscriptionConfig | None) -> Lane:
        """Return the lane of a queue, made on first use."""
        lanes = self.by_topic.setdefault(topic.name, {})
        qid = self.qid(queue.queue_id)
        lane = lanes.get(qid)
        if lane is None or lane.queue is not queue:
            # Another queue of that number: the topic was deleted and made again.
            tracker = self._progress.tracker(
                self._group, topic.name, queue.queue_id, first_offset=lambda: self._first_offset(queue, config)
            )
            lane = lanes[qid] = Lane(self._buffer.line(topic.name), queue, qid, tracker)
        return lane

    def more(self, topic: Topic, config: SubscriptionConfig | None) -> list[Lane]:
        """Make the lanes of queues that a topic got since."""
        known = self.by_topic.get(topic.name, {})
        return [self.lane(topic, queue, config) for queue in topic.queues if self.qid(queue.queue_id) not in known]

    def _first_offset(self, queue: ConsumeQueue, config: SubscriptionConfig | None) -> int:
        """Where a group starts that was never seen on this queue (D6)."""
        if config is None or config.consume_from_where == "first":
            return queue.min_offset
        if config.consume_from_where == "last":
            return queue.max_offset
        return offset_at(self._store, queue, config.consume_timestamp or 0)
