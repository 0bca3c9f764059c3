"""Which partitions appeared while their group existed: these are read from their first record.

A partition without a committed offset is either one of a new group, which begins by `consumeFromWhere`, or one that was
added to a topic, or belongs to a topic that was created meanwhile. What was there, and what was committed, is looked up
before a member joins: nodes that start a new group together all find nothing committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from upstream.kafka.link import KafkaPartition, TopicSubscription
from upstream.kafka.subscriptions import fits, is_expression


class NewPartitions:
    """What one member knows of that."""

    def __init__(self) -> None:
        self._there: dict[str, frozenset[KafkaPartition]] = {}
        """Partitions that were there before it joined, by the name that it subscribes."""
        self._before: frozenset[KafkaPartition] = frozenset()
        """Those with a commit then."""
        self._committed: set[KafkaPartition] = set()
        """Those with a commit since."""

    def missing(self, topics: Sequence[TopicSubscription]) -> list[str]:
        """Return the names that are to be looked up before they are subscribed; forget those that are not any more."""
        names = {each.name for each in topics if each.late}
        self._there = {name: places for name, places in self._there.items() if name in names}
        return sorted(names - self._there.keys())

    def looked_up(self, name: str, there: Iterable[KafkaPartition], committed: Collection[KafkaPartition]) -> None:
        """Note what is there of a name, and where the group has a commit."""
        self._there[name] = frozenset(there)
        self._before |= frozenset(committed)

    def committed(self, places: Iterable[KafkaPartition]) -> None:
        """Note partitions with a commit."""
        self._committed.update(places)

    def is_new(self, place: KafkaPartition) -> bool:
        """Whether a partition without a commit appeared while the group existed."""
        name = place.topic if place.topic in self._there else self._expression_of(place.topic)
        if name is None:
            return False
        if place in self._committed or place in self._before or place not in self._there[name]:
            # Its commit was deleted with its topic, or it was not there.
            return True
        return any(each.topic == place.topic or is_expression(name) for each in self._before & self._there[name])

    def _expression_of(self, topic: str) -> str | None:
        return next((name for name in self._there if is_expression(name) and fits(name, topic)), None)
