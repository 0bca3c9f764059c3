"""What is asked of a whole cluster by who only looks: all groups, those of other programs too.

Nothing is joined and nothing committed, so a survey shows in no group. What is unknown is missing in an answer,
never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from upstream.kafka.link import KafkaPartition


class CommittedPosition(NamedTuple):
    """What a group has committed of a partition."""

    offset: int
    metadata: str


class Surveyed(NamedTuple):
    """One group.

    Attributes:
        committed: By partition.
        members: By partition, client ids of the members that have it now; none of one that is not named.
        is_stable: False while it is being shared out again: by the classic protocol nothing is committed then.
    """

    committed: Mapping[KafkaPartition, CommittedPosition]
    members: Mapping[KafkaPartition, Sequence[str]]
    is_stable: bool = True


class GroupNames(NamedTuple):
    """The groups of a cluster, as its brokers list them.

    Attributes:
        names: Groups of consumers, sorted.
        failure: Why a broker did not list its groups; None: all brokers did, and no group is missing.
    """

    names: list[str]
    failure: str | None = None


class Survey(Protocol):
    """Questions to one cluster. Each waits for its answer, some seconds at most."""

    def cluster_id(self) -> str:
        """Return the name that the cluster has given itself.

        Raises:
            KafkaFailure: It cannot be reached, or refuses.
        """

    def group_names(self) -> GroupNames:
        """Return the groups of consumers that the client may see. Raises KafkaFailure: no broker lists any."""

    def groups(self, names: Sequence[str]) -> dict[str, Surveyed]:
        """Return groups by name; an unknown one is missing. Raises KafkaFailure: none can."""

    def ends(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
        """Return first offsets and ends; an unknown partition is missing.

        As kafka-consumer-groups has them: records of a transaction that is open count.
        """

    def moments(self, wanted: Mapping[KafkaPartition, int], seconds: float) -> dict[KafkaPartition, int]:
        """Return the timestamps (ms) of the first records at or after an offset of partitions.

        What does not come within so many seconds, or has no timestamp, is missing.
        """

    def close(self) -> None:
        """Ask nothing more."""
