"""The topics in which messages wait: what they have to be like, and the commands that create them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from conf.models import Config
from upstream.kafka.cluster_facts import TopicFacts

TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "67108864",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": "3600000",
    "delete.retention.ms": "604800000",
}
"""Of the waiting topic."""
ANSWER_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "86400000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSettings:
    """As configured, under `kafka.<cluster>.waiting`.

    Attributes:
        cluster, servers: Its name and its bootstrap servers, for sentences.
        node: Name of this node.
        topic, answers_topic, partitions: Where messages wait.
        ahead_ms: How far ahead a message may be due.
        remember_ms: How long an ended message is known.
        topic_pending, principal_pending: Most messages that wait; 0: no limit.
        folder: Of the caches; "": they are in memory.
    """

    cluster: str
    servers: str
    node: str
    topic: str
    answers_topic: str
    partitions: int
    ahead_ms: int
    remember_ms: int
    topic_pending: int = 0
    principal_pending: int = 0
    folder: str = ""

    @property
    def commands(self) -> str:
        """What creates both topics."""
        return " && ".join(
            [
                _command(self.servers, self.topic, self.partitions, TOPIC_SETTINGS),
                _command(self.servers, self.answers_topic, 1, ANSWER_SETTINGS),
            ]
        )


def settings_of(config: Config, cluster: str, folder: str = "") -> WaitingSettings | None:
    """Return what a configuration says of a cluster; None: nothing waits there."""
    waits, servers = config.kafka[cluster].waiting, config.kafka[cluster].bootstrap_servers
    if waits is None:
        return None
    return WaitingSettings(
        cluster=cluster,
        servers=servers,
        node=config.node.broker_name,
        topic=waits.topic,
        answers_topic=waits.answers_topic,
        partitions=waits.partitions,
        ahead_ms=waits.max_delay_sec * 1000,
        remember_ms=waits.remember_sec * 1000,
        topic_pending=waits.max_pending_per_topic,
        principal_pending=waits.max_pending_per_principal,
        folder=folder,
    )


def problem_of(
    settings: WaitingSettings, topic: TopicFacts | None, has_answers: bool, hidden: Mapping[str, str]
) -> str:
    """Return what is wrong with the topics; "": nothing."""
    where = f"Kafka cluster {settings.cluster}"
    for name in (settings.topic, settings.answers_topic):
        if name in hidden:
            return f"{where}: this node may not see topic {name} ({hidden[name]}); grant the ACLs of docs/kafka.md"
    if topic is None or not has_answers:
        return (
            f"{where} lacks topic {settings.topic} or {settings.answers_topic}, which delays need; create them: "
            f"{settings.commands}"
        )
    policy = topic.settings.get("cleanup.policy", "compact")
    if policy != "compact":
        return (
            f"{where}: topic {settings.topic} has cleanup.policy={policy}, which deletes waiting messages; set it to "
            "compact"
        )
    if topic.partitions < settings.partitions:
        return (
            f"{where}: topic {settings.topic} has {topic.partitions} partitions, and waiting.partitions is "
            f"{settings.partitions}; set waiting.partitions to {topic.partitions} on all nodes"
        )
    return ""


def _command(servers: str, topic: str, partitions: int, settings: Mapping[str, str]) -> str:
    words = ["kafka-topics.sh", "--bootstrap-server", servers, "--create", "--topic", topic]
    words += ["--partitions", str(partitions)]
    for name, value in settings.items():
        words += ["--config", f"{name}={value}"]
    return shlex.join(words)
