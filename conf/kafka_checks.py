"""What cannot be had of a topic that is in Kafka, or of a group that reads one; with what to do instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from conf.base import DLQ_PREFIX, KAFKA_TOPIC_MAX, check_topic_name, is_kafka_topic, is_topic_pattern
from conf.checks import Finding, nearest
from conf.models import LOW_LEVEL, GroupConfig, SubscriptionConfig, TopicConfig
from conf.sections.kafka import KafkaClusterConfig, librdkafka_problem
from conf.sections.node import NodeConfig

DLQ_SUFFIX = ".DLQ"
"""Of a group's dead-letter topic in Kafka: `<group>.DLQ`."""

_STORED = "up to 127 letters, digits, `_ - % |`"
_UNKNOWN_TO_BROKERS = re.compile(r"\(\?|\\[A-Za-z0-9]|[*+?}][?+]")
_PORTABLE = "write classes such as [0-9] and [A-Za-z_], plain groups, and `.`, `*`, `+`, `?`, `{m,n}`, `|`"
_LATER = "transactions on Kafka topics are not in this version"
_DELAYS = "delays of a topic in Kafka need `waiting: {}` under its cluster"


def check_cluster(name: str, cluster: KafkaClusterConfig, node: NodeConfig) -> Iterator[Finding]:
    """Find a name that is taken, and settings of librdkafka that are not the configuration's to make."""
    if name == node.broker_cluster:
        yield (), f"{name!r} is the node's own cluster (node.brokerCluster); choose another name"
    if cluster.commit_interval * 3 > cluster.session_timeout:
        text = f"{cluster.commit_interval} ms is more than a third of sessionTimeout ({cluster.session_timeout})"
        yield ("commitInterval",), f"{text}, within which a node must commit; use a smaller value, such as 100"
    waits = cluster.waiting
    if waits is not None and waits.remember_sec < node.deduplication_sec:
        text = f"{waits.remember_sec} s is less than node.deduplicationSec ({node.deduplication_sec})"
        yield ("waiting", "rememberSec"), f"{text}: a message that is sent again could be delivered twice; use as much"
    for key, value in cluster.librdkafka.items():
        if (problem := librdkafka_problem(key, value)) is not None:
            yield ("librdkafka", key), problem


def _cluster_of(topic: TopicConfig | None, node: NodeConfig) -> str | None:
    """Return the Kafka cluster of a topic; None: it is in the node's store, or is not listed."""
    if topic is None or topic.broker_cluster in (None, node.broker_cluster):
        return None
    return topic.broker_cluster


def check_topic(
    name: str, topic: TopicConfig, node: NodeConfig, clusters: Mapping[str, KafkaClusterConfig]
) -> Iterator[Finding]:
    """Find a cluster that is not there, and what a topic of Kafka cannot have."""
    cluster = topic.broker_cluster
    if cluster is None or cluster == node.broker_cluster:
        if not _is_stored(name) and (is_kafka_topic(name) or is_topic_pattern(name)):
            yield (), f"{name!r} is a name for Kafka only; add brokerCluster, one of kafka, or use {_STORED}"
        return
    if cluster not in clusters:
        hint = nearest(cluster, clusters)
        known = ", ".join(sorted(clusters)) or "none"
        yield (
            ("brokerCluster",),
            (
                f"{cluster!r} is not a cluster; {hint}under kafka: {known}; omit it for the node's own store "
                f"({node.broker_cluster})"
            ),
        )
        return
    yield from _check_name(name)
    if topic.queues is not None:
        yield (
            ("queues",),
            (
                "the queues of a topic in Kafka are its partitions, created there (kafka-topics --create "
                f"--topic {name} --partitions {topic.queues}); remove it"
            ),
        )
    if topic.message_type == "DELAY" and clusters[cluster].waiting is None:
        yield ("messageType",), f"{_DELAYS}; add it, or write NORMAL or FIFO"
    elif topic.message_type not in (None, "NORMAL", "FIFO", "DELAY"):
        yield ("messageType",), f"{_LATER}; write NORMAL, FIFO or DELAY, or omit it"


def _is_stored(name: str) -> bool:
    """Whether the node's own store takes a name."""
    try:
        check_topic_name(name)
    except ValueError:
        return False
    return True


def _check_name(name: str) -> Iterator[Finding]:
    """Find a name that only the store takes; what neither takes is said where the key is read."""
    if is_topic_pattern(name):
        try:
            re.compile(name)
        except re.error as error:
            yield (), f"{name!r} is not a valid regular expression ({error}); write for example ^orders-.*"
            return
        if (unknown := _UNKNOWN_TO_BROKERS.search(name)) is not None:
            # As letters, without a word, or not at all.
            yield (), f"{name!r} has {unknown[0]!r}, which librdkafka and brokers interpret differently; {_PORTABLE}"
    elif not is_kafka_topic(name) and _is_stored(name):
        text = f"Kafka's topics have letters, digits, `. _ -`, up to {KAFKA_TOPIC_MAX}"
        yield (), f"{name!r} is not a valid Kafka topic name; {text}, and ^ before a regular expression"


def check_subscription(
    subscription: SubscriptionConfig, node: NodeConfig, topics: Mapping[str, TopicConfig]
) -> Iterator[Finding]:
    """Find a cluster that is not the topic's, and what cannot be had of a topic of Kafka."""
    topic = subscription.topic
    kafka = _cluster_of(topics.get(topic), node)
    cluster = subscription.broker_cluster
    if cluster is not None and cluster != (kafka or node.broker_cluster):
        whose = "this node's" if kafka is None else f"that of {topic}"
        where = "node.brokerCluster" if kafka is None else f"topics.{topic}.brokerCluster"
        yield (
            ("brokerCluster",),
            f"{cluster!r} is not {whose}; write {kafka or node.broker_cluster!r} ({where}) or omit it",
        )
    if kafka is None:
        return
    if subscription.is_low_level:
        yield (
            ("actions",),
            (
                f"{topic} is in Kafka ({kafka}), where {LOW_LEVEL} is not supported; use a Kafka client, or "
                "write actions: [Async, PullServer]"
            ),
        )
    if subscription.retry_topic:
        yield (
            ("retryTopic",),
            f"{topic} is in Kafka ({kafka}), where failed messages are retried in place; remove it",
        )


def check_group(group: GroupConfig, node: NodeConfig, topics: Mapping[str, TopicConfig]) -> Iterator[Finding]:
    """Find a group whose topics stand in several clusters, and a name of which Kafka would make no topic."""
    clusters: dict[str | None, list[str]] = {}
    for each in group.enabled_topics:
        clusters.setdefault(_cluster_of(topics.get(each.topic), node), []).append(each.topic)
    if len(clusters) > 1:
        places = "; ".join(f"{', '.join(names)} in {name or node.broker_cluster}" for name, names in clusters.items())
        yield (
            ("topics",),
            (f"all topics of a group must be in one cluster, and these are not: {places}; split the group into two"),
        )
    if any(name is not None for name in clusters) and not is_kafka_topic(group.group + DLQ_SUFFIX):
        yield (
            ("group",),
            f"{group.group!r} reads from Kafka, where {group.group}{DLQ_SUFFIX} is not a valid topic name for its dead "
            "letters; name it with letters, digits, `_ -`",
        )
    own = group.group + DLQ_SUFFIX
    for index, each in enumerate(group.topics):
        if is_topic_pattern(each.topic) and _fits(each.topic, own):
            text = (
                f"{each.topic!r} matches {own}, the group's own dead letters, which would be delivered to it repeatedly"
            )
            yield (
                ("topics", index, "topic"),
                f"{text}; write an expression that does not match it, such as {each.topic.rstrip('.*')}[^.]*$",
            )


def _fits(expression: str, topic: str) -> bool:
    try:
        return re.match(expression, topic) is not None
    except re.error:
        return False  # What is said of it as a topic is enough.


def check_dead_letters(
    subscription: SubscriptionConfig,
    groups: Mapping[str, GroupConfig],
    node: NodeConfig,
    topics: Mapping[str, TopicConfig],
) -> Iterator[Finding]:
    """Find a dead-letter topic of the store's kind whose group has its dead letters in Kafka."""
    origin = groups.get(subscription.topic.removeprefix(DLQ_PREFIX))
    if not subscription.topic.startswith(DLQ_PREFIX) or origin is None:
        return
    for each in origin.enabled_topics:
        kafka = _cluster_of(topics.get(each.topic), node)
        if kafka is not None:
            yield (
                ("topic",),
                (
                    f"{origin.group} reads from Kafka, and its dead letters are in topic "
                    f"{origin.group}{DLQ_SUFFIX} there; list it under topics with brokerCluster: {kafka}, and "
                    "subscribe to it"
                ),
            )
            return
