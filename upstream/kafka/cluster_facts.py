"""What `upstream.kafka_client.cluster_inspection` finds, for `upstream.kafka.cluster_rules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class TopicFacts(NamedTuple):
    """A topic that is there.

    Attributes:
        partitions: How many.
        leaderless: Those without a leader now.
        replicas: Copies of the partition that has the fewest.
        in_sync: Copies that are in sync, of the partition that has the fewest.
        settings: By Kafka's names (`retention.ms`); empty where they may not be seen.
        allowed: What this user may do with it (`READ`, `WRITE`, ...); None: the cluster does not say.
        id: The topic's own, which one that is created again does not have; "": the cluster does not say.
    """

    partitions: int
    leaderless: int
    replicas: int
    in_sync: int
    settings: Mapping[str, str]
    allowed: frozenset[str] | None
    id: str = ""


class MemberFacts(NamedTuple):
    """A member of a group.

    Attributes:
        client: Its client id.
        host: Where it runs, as the brokers see it.
        partitions: Those that it has, by topic.
    """

    client: str
    host: str
    partitions: Mapping[str, Sequence[int]]


class ClusterFacts(NamedTuple):
    """A cluster.

    Attributes:
        trouble: Why it cannot be asked; empty: it was.
        names: All topics that this user may see.
        topics: Of those that were asked for what is there.
        hidden: Those that this user may not even see, each with what the cluster said.
        groups: Of each group what this user may do with it; None: the cluster does not say.
        members: Of each group that was asked for and may be seen.
        settings: Of a broker, by Kafka's names; empty where they may not be seen.
        brokers: How many there are.
        id: The cluster's own; "": it does not say.
    """

    trouble: str = ""
    names: frozenset[str] = frozenset()
    topics: Mapping[str, TopicFacts] = {}
    hidden: Mapping[str, str] = {}
    groups: Mapping[str, frozenset[str] | None] = {}
    members: Mapping[str, Sequence[MemberFacts]] = {}
    settings: Mapping[str, str] = {}
    brokers: int = 0
    id: str = ""
