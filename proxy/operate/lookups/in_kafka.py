"""What of a configuration is in Kafka; where lookups do not reach, with the tool that shows it."""

from __future__ import annotations

from collections.abc import Sequence

from conf.models import Config
from proxy.operate.views.dead_letters import LettersInKafka
from upstream.kafka.broker import DEAD_LETTER_SUFFIX
from upstream.kafka.subscriptions import fits, is_expression


class InKafka:
    """That of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def all_letters(self) -> Sequence[LettersInKafka]:
        """Return the groups over Kafka with the topics of their dead letters."""
        config = self._config
        return [
            LettersInKafka(group=name, cluster=cluster, topic=name + DEAD_LETTER_SUFFIX)
            for name in sorted(config.groups)
            if (cluster := config.cluster_of_group(name)) is not None
        ]

    def topic(self, topic: str) -> str | None:
        """Return a sentence with where a topic is and what shows it; None: it is not in Kafka."""
        cluster = self.cluster_of(topic)
        if cluster is None:
            return None
        tool = f"kafka-topics.sh --bootstrap-server {self._config.kafka[cluster].bootstrap_servers} --topic {topic}"
        return f"Topic {topic} is in Kafka cluster {cluster}. Use Kafka's own tools to see or change it: `{tool}`."

    def other_messages(self) -> str | None:
        """Return a sentence for a message that the store does not have; None: no messages are in Kafka."""
        if not self._config.kafka:
            return None
        return "The store does not have this message. To search messages in Kafka, pass their topic."

    def cluster_of_letters(self, group: str) -> str | None:
        """Return the cluster that has a group's dead letters; None: they are not in Kafka."""
        return self._config.cluster_of_group(group) if group in self._config.groups else None

    def has_letters(self, topic: str) -> bool:
        """Whether a topic has the dead letters of a group over Kafka."""
        group = topic.removesuffix(DEAD_LETTER_SUFFIX)
        return group != topic and self.cluster_of_letters(group) is not None

    def readers(self, topic: str) -> list[str]:
        """Return the groups over Kafka that read a topic."""
        groups = self._config.groups
        return [each for each in groups if self.is_read_by(each, topic) and self.cluster_of_letters(each) is not None]

    def is_read_by(self, group: str, topic: str) -> bool:
        """Whether a group over Kafka lists a topic, or an expression that it fits."""
        config = self._config
        names = [each.topic for each in config.groups[group].topics]
        expressions = [] if topic in names else [each for each in names if is_expression(each)]
        if not expressions:
            return topic in names
        cluster = config.cluster_of_group(group)
        whole = cluster is not None and config.kafka[cluster].group_protocol == "consumer"
        return any(fits(each, topic, whole=whole) for each in expressions)

    def cluster_of(self, topic: str) -> str | None:
        """Return the cluster of a topic that is listed, fits an expression, or has dead letters of a group."""
        config = self._config
        if topic in config.topics:
            return config.cluster_of(topic)
        for name in config.topics:
            cluster = config.cluster_of(name) if is_expression(name) else None
            if cluster is not None and fits(name, topic, whole=config.kafka[cluster].group_protocol == "consumer"):
                return cluster
        return self.cluster_of_letters(topic.removesuffix(DEAD_LETTER_SUFFIX)) if self.has_letters(topic) else None
