"""Of which topics a member's partitions are: one that was created again has the name of the one before.

Its log may have grown past the group's position before anybody looks, as when the node stood still meanwhile; then
offsets look as before, and mean other records. So the id of its topic goes with each committed offset
(`upstream.kafka.commits.metadata`), and is compared with what the cluster says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from broker.runtime.seams import Clock
from upstream.kafka.commits.metadata import is_topic_id
from upstream.kafka.link import GroupMember, KafkaPartition
from upstream.kafka.topics import KafkaQueue

AGAIN_SECONDS = 20.0
"""From one question to the next, at least, and after one without an answer."""
SELDOM_SECONDS = 60.0
"""For all groups of a node at the same moments: one process answers them."""
UNSEEN_SECONDS = 1.5
"""Ends are asked for each second, by which a topic that goes is noticed. Where they were not heard for so long, it may
have come again."""


class TopicIdWatch:
    """The ids that one member knows of its topics."""

    def __init__(
        self,
        clock: Clock,
        queues: Callable[[], Iterable[KafkaQueue]],
        missed: Callable[[], None],
        changed: Callable[[KafkaPartition], None],
    ) -> None:
        """Set up.

        Args:
            clock: Tells when to ask.
            queues: The member's partitions, and those that it is about to have.
            missed: Called when some `queue.missing` was set: their topic is another one.
            changed: Called with each partition whose topic was created again since this node asked before.
        """
        self._clock = clock
        self._queues = queues
        self._missed = missed
        self._changed = changed
        self._ids: dict[str, str] = {}
        self._asked = -AGAIN_SECONDS
        self._due = self._seen = self._unseen_at = 0.0

    def ask(self, member: GroupMember) -> None:
        """Ask at once."""
        self._asked = self._clock.monotonic()
        self._due = self._asked + AGAIN_SECONDS
        back = [queue for queue in self._queues() if queue.is_back]
        member.topic_ids(sorted({queue.topic for queue in self._queues()}), partial(self._heard, back))

    def look(self, member: GroupMember) -> None:
        """Ask where that is due, or a topic is there again that was missing."""
        if self._clock.monotonic() >= self._due or any(queue.is_back for queue in self._queues()):
            self.ask(member)

    def ends_heard(self) -> None:
        """Note that the cluster has said where logs end."""
        now = self._clock.monotonic()
        if now - self._seen >= UNSEEN_SECONDS:
            self._unseen_at = now
            self._due = self._asked + AGAIN_SECONDS
        self._seen = now

    def _heard(self, back: Sequence[KafkaQueue], ids: Mapping[str, str]) -> None:
        if self._unseen_at < self._asked:
            self._due = (self._asked // SELDOM_SECONDS + 1) * SELDOM_SECONDS
        known = {topic: topic_id for topic, topic_id in ids.items() if is_topic_id(topic_id)}
        gone = False
        for queue in self._queues():
            topic_id = known.get(queue.topic, "")
            if topic_id and self._ids.get(queue.topic, topic_id) != topic_id:
                self._changed(queue.place)
            if queue.topic_id and topic_id and topic_id != queue.topic_id:
                queue.missing = queue.is_other = gone = True
            elif queue.is_back and queue in back:
                queue.is_back = False
                queue.missing = queue.is_other = not topic_id
                gone = gone or queue.is_other
            elif not queue.topic_id:
                queue.topic_id = topic_id
        self._ids.update(known)
        if gone:
            self._missed()
