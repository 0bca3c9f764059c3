"""What a group reads of its cluster: its configuration, over the topics that are there.

Two things of a configuration depend on the cluster. A topic that begins with `^` means every topic that fits:
each gets a subscription of its own, with the entry's settings, when it is found and until it is gone. And `totalMaxTps`
is the rate of all nodes together: this one has the part of it that its partitions are of all (D56).

An entry with the topic's own name goes before expressions, and of those the first in the file. Topics that begin with
two underscores are Kafka's own, or programs': no expression fits them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from conf.models import GroupConfig, SubscriptionConfig
from upstream.kafka.link import Assignment, TopicSubscription

_INTERNAL = "__"


def is_expression(name: str) -> bool:
    """Whether a name means the topics that fit it."""
    return name.startswith("^")


def fits(name: str, topic: str, *, whole: bool = False) -> bool:
    """Whether a topic is meant by a name under `topics`.

    Args:
        name: A topic, or an expression.
        topic: One that is there.
        whole: An expression must fit all of the name, as brokers have it (KIP-848), not its beginning (librdkafka).
    """
    if not is_expression(name):
        return name == topic
    match = re.fullmatch if whole else re.match
    return not topic.startswith(_INTERNAL) and match(name, topic) is not None


def subscribed(config: GroupConfig) -> list[TopicSubscription]:
    """Return what a member of a group subscribes."""
    return [
        TopicSubscription(each.topic, each.consume_timestamp, each.consume_from_where != "first")
        for each in config.enabled_topics
    ]


class Subscriptions:
    """Those of one group.

    Attributes:
        config: As configured.
        found: Topics that the group reads and that are there, each with its partitions; 0: not known yet.
    """

    def __init__(self, config: GroupConfig, *, whole: bool = False) -> None:
        """Set up; `whole` as that of `fits`."""
        self.config = config
        self.found: dict[str, int] = {}
        self._whole = whole

    @property
    def names(self) -> list[str]:
        """What the cluster is to be asked for: topics and expressions."""
        return [each.topic for each in self.config.enabled_topics]

    def of(self, topic: str) -> SubscriptionConfig | None:
        """Return the entry that a topic is read by; None: no entry means it."""
        for each in self.config.topics:
            if each.topic == topic:
                return each
        expressions = [each for each in self.config.enabled_topics if is_expression(each.topic)]
        fitting = [each for each in expressions if fits(each.topic, topic, whole=self._whole)]
        if not fitting and not topic.startswith(_INTERNAL):
            # The brokers gave it for an expression that they read in another way.
            fitting = expressions
        return fitting[0] if fitting else None

    def start_of(self, assignment: Assignment) -> int:
        """Return where the group continues; or begins (D6), if it never committed or its log is another one.

        A partition that appeared while the group existed is read from its first record.
        """
        if assignment.committed is not None and not assignment.is_beyond:
            return max(assignment.committed, assignment.low)
        config = self.of(assignment.topic)
        if config is None or config.consume_from_where == "first" or assignment.appeared:
            return assignment.low
        if config.consume_from_where == "last" or assignment.at_time is None:
            return assignment.readable_end
        return assignment.at_time

    def given(self, topics: Iterable[str]) -> None:
        """Note topics of which this member has partitions."""
        for topic in topics:
            self.found.setdefault(topic, 0)

    def heard(self, there: Mapping[str, int], kept: Collection[str]) -> None:
        """Note which topics are there, with their partitions; those that are gone are forgotten, but for `kept`."""
        self.found = {topic: self.found[topic] for topic in kept if topic in self.found} | dict(there)

    def finds(self, name: str) -> bool:
        """Whether any topic that is there is read by an entry of this name."""
        return any((entry := self.of(topic)) is not None and entry.topic == name for topic in self.found)

    def expanded(self, owned: Counter[str]) -> GroupConfig:
        """Return the configuration with an entry for each topic, and this node's part of total rates.

        Args:
            owned: How many partitions of each topic this node has.
        """
        listed = {each.topic for each in self.config.topics}
        entries = [self._part(each, owned) for each in self.config.topics]
        for topic in sorted(self.found):
            if topic not in listed and (entry := self.of(topic)) is not None:
                entries.append(self._part(entry.model_copy(update={"topic": topic}), owned))
        return self.config.model_copy(update={"topics": entries})

    def _part(self, entry: SubscriptionConfig, owned: Counter[str]) -> SubscriptionConfig:
        mine = owned[entry.topic]
        partitions = max(self.found.get(entry.topic, 0), mine)
        if entry.total_max_tps is None or not mine:
            # Without partitions there is nothing that a rate could hold back.
            return entry
        return entry.model_copy(update={"total_max_tps": entry.total_max_tps * mine / partitions})
