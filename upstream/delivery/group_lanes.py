"""The queues of one group: lanes and their trackers, made when a topic is first read and kept over generations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.queues.time_search import offset_at
from broker.queues.topics import retry_topic
from upstream.job import Lane
from upstream.retry.dead_letters import is_dead_letter_topic

if TYPE_CHECKING:
    from broker.queues.consume_queue import ConsumeQueue
    from broker.queues.topics import Topic
    from broker.store import Store
    from conf.models import SubscriptionConfig
    from upstream.delivery.buffer import PullBuffer
    from upstream.progress.progress import Progress


RETRY_QID = "retry_"
"""Stands before the queue number of the retry topic in a qid."""


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
            key = (self._group, topic.name, queue.queue_id)
            is_new = key not in self._progress.trackers and self._progress.offsets.get(*key) is None
            tracker = self._progress.tracker(*key, first_offset=lambda: self._first_offset(queue, config))
            lane = lanes[qid] = Lane(self._buffer.line(topic.name), queue, qid, tracker)
            if is_new:
                # Nobody of the group was ever given anything.
                lane.delivered_until = 0
        return lane

    def find(self, topic: str, queue_id: int, offset: int) -> Lane | None:
        """Return a queue that was read, None when there is none; of the retry topic the lane that has the offset.

        Every subscription of the group has lanes of its own in the retry topic.
        """
        if topic != retry_topic(self._group):
            return self.by_topic.get(topic, {}).get(self.qid(queue_id))
        qid = f"{self._qid_prefix}{RETRY_QID}{queue_id}"
        found = [lanes[qid] for lanes in self.by_topic.values() if qid in lanes]
        return next((lane for lane in found if offset in lane.live), found[0] if found else None)

    def retry_lanes(self, topic: Topic, retries: Topic) -> list[Lane]:
        """Return the lanes in which messages of a topic come back from the group's retry topic, made on first use."""
        lanes = self.by_topic.setdefault(topic.name, {})
        found = []
        for queue in retries.queues:
            qid = f"{self._qid_prefix}{RETRY_QID}{queue.queue_id}"
            lane = lanes.get(qid)
            if lane is None or lane.queue is not queue:
                first = queue.min_offset
                tracker = self._progress.tracker(
                    self._group, retries.name, queue.queue_id, first_offset=partial(int, first)
                )
                lane = lanes[qid] = Lane(self._buffer.line(topic.name), queue, qid, tracker)
            found.append(lane)
        return found

    def retries(self, config: SubscriptionConfig) -> Topic | None:
        """Return the retry topic where a subscription uses it, or did: what pends there is still to be delivered."""
        if is_dead_letter_topic(config.topic):
            return None
        name = retry_topic(self._group)
        known = any(key[:2] == (self._group, name) for key in self._progress.trackers)
        topic = self._store.topics.get(name) if known else None
        if topic is None and config.retry_topic:
            topic = self._store.create_topic(name, 1, system=True)
        return topic

    def more(self, topic: Topic, config: SubscriptionConfig | None) -> list[Lane]:
        """Make the lanes of queues that a topic got since."""
        known = self.by_topic.get(topic.name, {})
        return [self.lane(topic, queue, config) for queue in topic.queues if self.qid(queue.queue_id) not in known]

    def begin(self, config: SubscriptionConfig, queue_id: int) -> int | None:
        """Where a group starts that was never seen on a queue; None when there is none of that number."""
        topic = self._store.topics.get(config.topic)
        if topic is None or queue_id >= len(topic.queues):
            return None
        return self._first_offset(topic.queues[queue_id], config)

    def _first_offset(self, queue: ConsumeQueue, config: SubscriptionConfig | None) -> int:
        """Where a group starts that was never seen on this queue (D6)."""
        if config is None or config.consume_from_where == "first":
            return queue.min_offset
        if config.consume_from_where == "last":
            return queue.max_offset
        return offset_at(self._store, queue, config.consume_timestamp or 0)
