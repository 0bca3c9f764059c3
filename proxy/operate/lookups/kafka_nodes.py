"""The nodes that share groups over Kafka, by what the clusters know of the groups' members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conf.models import Config
from proxy.node.kafka_members import KafkaMembers, MembersSeen
from proxy.operate.views.node import KafkaClusterNodes, KafkaNode, NodesAnswer, PartitionsOfGroup
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.subscriptions import is_expression
from upstream.kafka.waiting.records import PartitionStatus

CLIENT_PREFIX = "pyddmq-"
"""In front of a node's name in the client ids of its members (`proxy.node.kafka`)."""


def nodes_in_kafka(
    config: Config, members: KafkaMembers, waiting: Mapping[str, Sequence[PartitionStatus]], now_ms: int
) -> NodesAnswer:
    """Return the nodes of all clusters, as far as the clusters have answered by now.

    Args:
        config: The node's.
        members: Asks the clusters.
        waiting: By cluster, what owners say of the partitions of its waiting topic.
        now_ms: Now, ms since the epoch.
    """
    groups: dict[str, list[str]] = {name: [] for name in config.kafka}
    for name in config.groups:
        cluster = config.cluster_of_group(name)
        if cluster is not None:
            groups[cluster].append(name)
    clusters = []
    for cluster, names in groups.items():
        topics = sorted({each.topic for name in names for each in config.groups[name].topics})
        seen = members.seen(cluster, topics, sorted(names)) if names else None
        clusters.append(_nodes(config, cluster, seen, waiting.get(cluster, ())))
    return NodesAnswer(now_ms=now_ms, clusters=clusters)


def _nodes(
    config: Config, cluster: str, seen: MembersSeen | None, waiting: Sequence[PartitionStatus]
) -> KafkaClusterNodes:
    parts: dict[tuple[str, str], list[PartitionsOfGroup]] = {}
    unowned: list[PartitionsOfGroup] = []
    facts = ClusterFacts() if seen is None else seen.facts
    for group, found in sorted(facts.members.items()):
        if group not in config.groups:
            continue  # It was removed since the cluster answered.
        owned: dict[str, set[int]] = {}
        for member in found:
            mine = parts.setdefault((member.client, member.host), [])
            for topic, partitions in sorted(member.partitions.items()):
                mine.append(PartitionsOfGroup(group=group, topic=topic, partitions=sorted(partitions)))
                owned.setdefault(topic, set()).update(partitions)
        unowned += _unowned(config, group, owned, facts)
    nodes = [_node(config, client, host, mine, waiting) for (client, host), mine in sorted(parts.items())]
    known = {each.node for each in nodes}
    others = sorted({each.node for each in waiting} - known)
    nodes += [_node(config, CLIENT_PREFIX + each, "", [], waiting) for each in others]
    return KafkaClusterNodes(
        cluster=cluster,
        asked_ms=None if seen is None else seen.at_ms,
        trouble=facts.trouble,
        nodes=nodes,
        unowned=unowned,
    )


def _node(
    config: Config, client: str, host: str, parts: Sequence[PartitionsOfGroup], waiting: Sequence[PartitionStatus]
) -> KafkaNode:
    is_ours = client.startswith(CLIENT_PREFIX)
    name = client.removeprefix(CLIENT_PREFIX)
    return KafkaNode(
        node=name,
        host=host,
        this=is_ours and name == config.node.broker_name,
        other=not is_ours,
        parts=parts,
        waiting=sorted(each.partition for each in waiting if is_ours and each.node == name),
    )


def _unowned(config: Config, group: str, owned: Mapping[str, set[int]], facts: ClusterFacts) -> list[PartitionsOfGroup]:
    """Return the partitions of a group's topics that no member has; those of an expression are not looked for."""
    found = []
    for topic in sorted(each.topic for each in config.groups[group].topics if not is_expression(each.topic)):
        known = facts.topics.get(topic)
        missing = set(range(0 if known is None else known.partitions)) - owned.get(topic, set())
        if missing:
            found.append(PartitionsOfGroup(group=group, topic=topic, partitions=sorted(missing)))
    return found
