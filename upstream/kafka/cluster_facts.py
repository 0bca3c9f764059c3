"""What `upstream.kafka_client.cluster_inspection` finds, for `upstream.kafka.cluster_rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TopicFacts(NamedTuple):
    """A topic that is there.

    Attributes:
        partitions: How many.
        leaderless: Those that nobody leads now.
        replicas: Copies of the partition that has the fewest.
        in_sync: Copies that are in sync, of the partition that has the fewest.
        settings: By Kafka's names (`retention.ms`); empty where they may not be seen.
        allowed: What this user may do with it (`READ`, `WRITE`, ...); None: the cluster does not say.
    """

    partitions: int
    leaderless: int
    replicas: int
    in_sync: int
    settings: Mapping[str, str]
    allowed: frozenset[str] | None


class ClusterFacts(NamedTuple):
    """A cluster.

    Attributes:
        trouble: Why it cannot be asked; empty: it was.
        names: All topics that this user may see.
        topics: Of those that were asked for what is there.
        hidden: Those that this user may not even see, each with what the cluster said.
        groups: Of each group what this user may do with it; None: the cluster does not say.
        settings: Of a broker, by Kafka's names; empty where they may not be seen.
        brokers: How many there are.
    """

    trouble: str = ""
    names: frozenset[str] = frozenset()
    topics: Mapping[str, TopicFacts] = {}
    hidden: Mapping[str, str] = {}
    groups: Mapping[str, frozenset[str] | None] = {}
    settings: Mapping[str, str] = {}
    brokers: int = 0
