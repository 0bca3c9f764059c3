"""What the configuration says of a member, and what is counted of its partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.runtime.metrics import declare
from conf.models import GroupConfig

PARTITIONS = declare(
    "pyddmq_kafka_partitions", "Partitions of a Kafka group that are assigned to this node.", ("group",), "gauge"
)
REVOKED = declare(
    "pyddmq_kafka_partitions_revoked_total", "Partitions that were released to other members.", ("group",)
)
LOST = declare(
    "pyddmq_kafka_partitions_lost_total",
    "Partitions that were reassigned before this node could release them.",
    ("group",),
)
FOREIGN = declare(
    "pyddmq_kafka_commit_texts_foreign_total",
    "Metadata of committed offsets written by other programs: only the offset counts.",
    ("group",),
)


def longest_seconds(config: GroupConfig) -> float:
    """Return how long a client of a group may have a message at most."""
    return max((each.timeout for each in config.topics), default=0) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What the configuration says of a member.

    Attributes:
        session_seconds: Silence after which it is none any more; the client was made with the same.
        commit_seconds: From one commit to the next.
        revoke_seconds: How long what is out may still be answered when partitions are revoked.
        takeover_seconds: How long a partition is left alone that its owner before did not leave in order.
        waiting_bytes: Of bodies that are kept for the group.
        commit_topic: Where what has no room in texts of commits goes.
        whole_names: Expressions fit whole names of topics (KIP-848), not their beginnings.
    """

    session_seconds: float = 45.0
    commit_seconds: float = 0.1
    revoke_seconds: float = 10.0
    takeover_seconds: float = 0.0
    waiting_bytes: int = 64 << 20
    commit_topic: str = "__pyddmq_commits"
    whole_names: bool = False

    def reloaded(self, config: GroupConfig) -> MemberSettings:
        """Return these after a reload: clients of the owner before have the longest time that was ever configured."""
        if not self.takeover_seconds:
            return self
        return replace(self, takeover_seconds=max(self.takeover_seconds, longest_seconds(config)))

    def leave_seconds(self, *, cut_off: bool) -> float:
        """Return how long a member that leaves waits for its last commit.

        That is for the session of a member that has died; of a cluster that is away no longer than in a revoke.
        """
        return min(self.session_seconds, self.revoke_seconds) if cut_off else self.session_seconds
