"""Who has the partitions of a node's groups in Kafka, as its clusters said last.

A cluster is asked, by a process of its own, when a page shows its answer and that is older than 15 s. The page does
not wait: until the next answer comes, the one before it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from broker.runtime.seams import Clock
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import KafkaClient, KafkaFailure

KEEP_SECONDS = 15.0


class MembersSeen(NamedTuple):
    """The last answer of a cluster.

    Attributes:
        at_ms: When it came, ms since the epoch.
        facts: It.
    """

    at_ms: int
    facts: ClusterFacts


class KafkaMembers:
    """See the module.

    Args:
        client: Returns a cluster's client. Raises KafkaFailure.
        clock: Tells the time.
    """

    def __init__(self, client: Callable[[str], KafkaClient], clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._seen: dict[str, MembersSeen] = {}

    def seen(self, cluster: str, topics: Sequence[str], groups: Sequence[str]) -> MembersSeen | None:
        """Return the last answer of a cluster, None before the first; asks again where it is old.

        Args:
            cluster: Its name.
            topics: Topics whose partitions are counted.
            groups: Groups whose members are named.
        """
        now, asked_at = self._clock.monotonic(), self._asked_at.get(cluster)
        if asked_at is None or now - asked_at >= KEEP_SECONDS:
            self._asked_at[cluster] = now
            try:
                self._client(cluster).look(topics, partial(self._heard, cluster), groups)
            except KafkaFailure as failure:
                self._heard(cluster, ClusterFacts(trouble=str(failure)))
        return self._seen.get(cluster)

    def _heard(self, cluster: str, facts: ClusterFacts) -> None:
        self._seen[cluster] = MembersSeen(self._clock.wall_ms(), facts)
