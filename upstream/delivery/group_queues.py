"""The group queues of one group, with their trackers: made when a topic is first read, kept over generations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from upstream.job import GroupQueue

if TYPE_CHECKING:
    from conf.models import SubscriptionConfig
    from upstream.group_parts import GroupParts
    from upstream.queues import NodeTopic, QueueView


RETRY_QID = "retry_"
"""Stands before the queue number of the retry topic in a qid."""


class UnknownTopic(Exception):
    """A subscribed topic is not in the store."""


class GroupQueues:
    """Makes the group queues of one group.

    Attributes:
        by_topic: TopicView to text of the queue on the wire (qid) to group queue.
    """

    def __init__(self, parts: GroupParts, qid_prefix: str) -> None:
        self.by_topic: dict[str, dict[str, GroupQueue]] = {}
        self._group = parts.group
        self._broker = parts.node.broker
        self._retry_topic = None if parts.retry_topic is None else parts.retry_topic.topic
        self._progress = parts.node.progress
        self._buffer = parts.buffer
        self._qid_prefix = qid_prefix
        self._first_seen: dict[str, tuple[QueueView, int]] = {}
        """Of a topic its first queue, and how many queues it had when the group was new to it; 0: it was not."""

    def qid(self, queue_id: int) -> str:
        """Text of a queue on the wire."""
        return f"{self._qid_prefix}{queue_id}"

    def topic(self, name: str) -> NodeTopic:
        """Return a subscribed topic; a group's dead-letter topic is made where it is not there yet.

        Raises:
            UnknownTopic: It is not in the store.
        """
        topic = self._broker.topic(name)
        if topic is None:
            if not self._broker.is_dead_letter_topic(name):
                raise UnknownTopic(f"topic {name!r} is not in the store: add it under `topics`")
            topic = self._broker.make_topic(name)
        return topic

    def group_queue(self, topic: NodeTopic, queue: QueueView, config: SubscriptionConfig | None) -> GroupQueue:
        """Return the group queue of a queue, made on first use."""
        group_queues = self.by_topic.setdefault(topic.name, {})
        qid = self.qid(queue.queue_id)
        group_queue = group_queues.get(qid)
        if group_queue is None or group_queue.queue is not queue:
            # Another queue of that number: the topic was deleted and made again.
            key = (self._group, topic.name, queue.queue_id)
            is_new = not self._is_known(topic, queue)
            new_queues = self._new_queues(topic)
            tracker = self._progress.tracker(*key, first_offset=lambda: self._first_offset(queue, config, new_queues))
            group_queue = group_queues[qid] = GroupQueue(self._buffer.line(topic.name), queue, qid, tracker)
            if is_new:
                # Nobody of the group was ever given anything.
                group_queue.delivered_until = 0
        return group_queue

    def find(self, topic: str, queue_id: int, offset: int) -> GroupQueue | None:
        """Return a queue that was read, None when there is none; of the retry topic the one that has the offset.

        Every subscription of the group has group queues of its own in the retry topic.
        """
        if topic != self._retry_topic:
            return self.by_topic.get(topic, {}).get(self.qid(queue_id))
        qid = f"{self._qid_prefix}{RETRY_QID}{queue_id}"
        found = [group_queues[qid] for group_queues in self.by_topic.values() if qid in group_queues]
        return next((group_queue for group_queue in found if offset in group_queue.live), found[0] if found else None)

    def retry_group_queues(self, topic: NodeTopic, retries: NodeTopic) -> list[GroupQueue]:
        """Return the group queues of the retry topic for the messages of one topic, made on first use."""
        group_queues = self.by_topic.setdefault(topic.name, {})
        found = []
        for queue in retries.queues:
            qid = f"{self._qid_prefix}{RETRY_QID}{queue.queue_id}"
            group_queue = group_queues.get(qid)
            if group_queue is None or group_queue.queue is not queue:
                first = queue.min_offset
                tracker = self._progress.tracker(
                    self._group, retries.name, queue.queue_id, first_offset=partial(int, first)
                )
                group_queue = group_queues[qid] = GroupQueue(self._buffer.line(topic.name), queue, qid, tracker)
            found.append(group_queue)
        return found

    def retries(self, config: SubscriptionConfig) -> NodeTopic | None:
        """Return the retry topic where a subscription uses it, or did: what pends there is still to be delivered."""
        name = self._retry_topic
        if name is None or self._broker.is_dead_letter_topic(config.topic):
            return None
        topic = self._broker.topic(name)
        trackers = self._progress.trackers
        if topic is not None and any((self._group, name, each.queue_id) in trackers for each in topic.queues):
            return topic
        return self._broker.make_topic(name) if config.retry_topic else None

    def taken(
        self, topic: NodeTopic, queues: Iterable[QueueView], config: SubscriptionConfig | None
    ) -> list[GroupQueue]:
        """Return the group queues of queues that a topic got since; one given back goes on from what is committed."""
        found = [self.group_queue(topic, queue, config) for queue in queues]
        for each in found:
            self._progress.follow(each.tracker)
            each.rewind()
        return found

    def begin(self, config: SubscriptionConfig, queue_id: int) -> int | None:
        """Where a group starts that was never seen on a queue; None when there is none of that number."""
        topic, queue = self._broker.topic(config.topic), self._broker.queue(config.topic, queue_id)
        if topic is None or queue is None:
            return None
        return self._first_offset(queue, config, self._new_queues(topic))

    def revoke(self, topic: str, gone: Iterable[GroupQueue]) -> None:
        """Forget queues that were taken away: an answer for one of them is as one for an unknown queue."""
        for group_queue in gone:
            group_queue.revoked = True
            # Given back, the queue waits for none of the records that are on their way.
            group_queue.tracker.undecided.clear()
            if self.by_topic.get(topic, {}).get(group_queue.qid) is group_queue:
                del self.by_topic[topic][group_queue.qid]

    def _is_known(self, topic: NodeTopic, queue: QueueView) -> bool:
        key = (self._group, topic.name, queue.queue_id)
        return key in self._progress.trackers or self._progress.offsets.get(*key) is not None

    def _new_queues(self, topic: NodeTopic) -> int:
        """Return how many queues a topic had when the group was new to it; 0: it was not when this was opened."""
        first, count = self._first_seen.get(topic.name, (None, 0))
        if first is not topic.queues[0]:
            # It is asked for the first time, or the topic was deleted and made again.
            count = 0 if any(self._is_known(topic, each) for each in topic.queues) else len(topic.queues)
            self._first_seen[topic.name] = topic.queues[0], count
        return count

    def _first_offset(self, queue: QueueView, config: SubscriptionConfig | None, new_queues: int) -> int:
        """Where a group starts that was never seen on this queue (D6).

        A queue that its topic got later is read from its first message: what made the group look is in it.
        """
        if config is None or config.consume_from_where == "first" or queue.queue_id >= new_queues:
            return queue.min_offset
        if config.consume_from_where == "last":
            return queue.max_offset
        return self._broker.offset_at(queue, config.consume_timestamp or 0)
