"""What a group says of all its topics: who has what, how far it is, and the retry topic beside them. Cold path."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from upstream.delivery.generations import Generations, TopicPlace
from upstream.delivery.pauses import Pause
from upstream.delivery.stats import StatsReader, TopicOffsets
from upstream.group_parts import GroupParts
from upstream.job import GroupQueue
from upstream.views import GroupView, SubscriptionView

_QUEUES_AT_ONCE = 160
"""Queues of a group that are read in one step, in some milliseconds; a topic by itself takes as long as four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """Reads the figures of one group.

    Attributes:
        parts: What its subscriptions share.
        places: Its topics, and what runs there.
        generations: Which of them run.
        queues_by_topic: Every queue that it has read: by topic, by qid.
        paused: The pause that holds for a topic.
    """

    parts: GroupParts
    places: Mapping[str, TopicPlace]
    generations: Generations
    queues_by_topic: Mapping[str, Mapping[str, GroupQueue]]
    paused: Callable[[str], Pause | None]

    def reading(self, details_max: int) -> Generator[None, None, GroupView]:
        """`ConsumerGroup.stats` in steps."""
        node, group = self.parts.node, self.parts.group
        reader = StatsReader(times=node.broker, clock=node.runtime.clock)
        topics, out = [], []
        read = 0
        for name, place in list(self.places.items()):
            read += 4 + len(self.queues_by_topic.get(name, ()))
            if read > _QUEUES_AT_ONCE:
                read = 0
                yield
            stats, deliveries = reader.topic(
                name,
                self.generations.state_of(place),
                self.queues_by_topic.get(name, {}).values(),
                place,
                self.paused(name),
                loss=node.progress.losses.of(group, name),
                unknown=node.broker.unknown(name),
            )
            topics.append(stats)
            out += deliveries
        if read > _QUEUES_AT_ONCE // 2 or len(self.places) > _QUEUES_AT_ONCE:
            yield
        topics += self._of_retries(reader)
        out.sort(key=lambda each: each.since_ms)
        return GroupView(
            group=group,
            parked_pulls=self.parts.buffer.parked_count,
            buffered_bytes=self.parts.buffer.bytes,
            topics=topics,
            in_flight_total=len(out),
            in_flight=out[:details_max],
            fetchers=self.parts.fetch_hooks.fetchers(),
        )

    def _of_retries(self, reader: StatsReader) -> list[SubscriptionView]:
        """The retry topic, apart from those whose failed messages it holds."""
        retries, retry_topic = self._retries(), self.parts.retry_topic
        if retry_topic is None or not retries:
            return []
        running = any(each.reads_retries and not each.draining for each in self.generations.running())
        loss = self.parts.node.progress.losses.of(self.parts.group, retry_topic.topic)
        return [reader.retries(retry_topic.topic, retries.values(), loss, running=running)]

    def _retries(self) -> dict[int, GroupQueue]:
        """Each queue of the retry topic once, though several topics read it."""
        of_all = [each for of_topic in self.queues_by_topic.values() for each in of_topic.values()]
        return {each.queue_id: each for each in of_all if each.retries}

    def offsets(self, topic: str | None) -> list[TopicOffsets]:
        """Return the positions of each topic, or of the one named."""
        found = []
        for name in self.places:
            group_queues = self.queues_by_topic.get(name, {}).values()
            found.append(TopicOffsets.of(name, [each for each in group_queues if not each.retries]))
        retries, retry_topic = self._retries(), self.parts.retry_topic
        if retry_topic is not None and retries:
            found.append(TopicOffsets.of(retry_topic.topic, retries.values()))
        return [each for each in found if topic is None or each.topic == topic]
