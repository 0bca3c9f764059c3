"""What the owners of partitions say of them every second: limits, findings and figures come from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from upstream.kafka.waiting.records import PartitionStatus
from upstream.kafka.waiting.topics import WaitingSettings

PENDING = declare(
    "pyddmq_kafka_waiting_pending", "Waiting messages in the partitions that this node owns", ("cluster",), kind="gauge"
)
UNDECIDED = declare(
    "pyddmq_kafka_waiting_undecided",
    "Half messages that are not decided, in the partitions that this node owns", ("cluster",), kind="gauge",
)  # fmt: skip
UNDECIDED_OLDEST = declare(
    "pyddmq_kafka_waiting_undecided_oldest_seconds",
    "Age of the oldest undecided half message of the partitions that this node owns; 0 without any",
    ("cluster",), kind="gauge",
)  # fmt: skip
OWNED = declare(
    "pyddmq_kafka_waiting_partitions", "Partitions of the waiting topic that this node serves", ("cluster",),
    kind="gauge",
)  # fmt: skip
LATE = declare(
    "pyddmq_kafka_waiting_late_seconds", "Age of the oldest overdue message of the partitions that this node owns",
    ("cluster",), kind="gauge",
)  # fmt: skip
TAKEOVER = declare(
    "pyddmq_kafka_waiting_takeover_seconds", "Longest last takeover of a partition that this node owns", ("cluster",),
    kind="gauge",
)  # fmt: skip

_SILENT_SECONDS = 15.0
"""A partition of which nothing was heard for so long has no owner."""
_SKEW_MS_MAX = 500


class WaitingStatuses:
    """Those of one cluster, as one node heard them.

    Args:
        settings: Of the waiting topic.
        runtime: Clock and counts.
    """

    def __init__(self, settings: WaitingSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._last: dict[int, tuple[PartitionStatus, float]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._of_topic: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()
        self._ahead: dict[str, tuple[int, float]] = {}
        """Nodes whose clocks are ahead: by how many ms, and when that was seen last."""
        self._started_at = runtime.clock.monotonic()

    def note(self, status: PartitionStatus) -> None:
        """Take one."""
        former = self._last.get(status.partition)
        self._last[status.partition] = status, self._clock.monotonic()
        # There is one a second of each partition: what the others said is counted already.
        for topic, owner, count in status.counts:
            self._count(topic, owner, count)
        for topic, owner, count in () if former is None else former[0].counts:
            self._count(topic, owner, -count)
        # An answer is under way for a while; a clock that is behind is seen by the other node.
        ahead_ms = status.wall_ms - self._clock.wall_ms()
        if ahead_ms > _SKEW_MS_MAX:
            self._ahead[status.node] = ahead_ms, self._clock.monotonic()

    def _count(self, topic: str, owner: str, count: int) -> None:
        self._of_topic[topic] += count
        self._of_principal[owner] += count
        self._counts[topic, owner] += count
        if not self._counts[topic, owner]:
            del self._counts[topic, owner]

    def behind_ms(self, partition: int) -> int:
        """Return how late messages of a partition are, but for targets that take nothing."""
        known = self._last.get(partition)
        return 0 if known is None else known[0].behind_ms

    def pending(self, topic: str) -> int:
        """Return how many messages of a topic wait, in all partitions."""
        return self._of_topic[topic]

    def pending_of(self, principal: str) -> int:
        """Return how many messages of a principal wait, in all partitions."""
        return self._of_principal[principal]

    def undecided_of(self, principal: str, without: Container[int]) -> int:
        """Return how many halves of a principal are undecided, in all partitions but some."""
        statuses = [each for number, (each, _) in self._last.items() if number not in without]
        return sum(count for each in statuses for owner, count in each.halves if owner == principal)

    def principals(self, topic: str) -> list[str]:
        """Return whose messages of a topic wait; "" first."""
        return ["", *sorted({owner for name, owner in self._counts if name == topic and owner})]

    def partitions(self) -> list[PartitionStatus]:
        """Return the last one of each partition."""
        return [each for _, (each, _) in sorted(self._last.items())]

    def troubles(self, *, complete: bool) -> list[str]:
        """Return what is wrong, as sentences; `complete`: partitions of which nothing was heard have no owner."""
        now = self._clock.monotonic()
        self._ahead = {node: each for node, each in self._ahead.items() if now - each[1] <= _SILENT_SECONDS}
        found = [f"the clock of node {node} is {ms} ms ahead of this node's" for node, (ms, _) in self._ahead.items()]
        if complete and now - self._started_at > 2 * _SILENT_SECONDS:
            silent = [
                number
                for number in range(self._settings.partitions)
                if number not in self._last or now - self._last[number][1] > _SILENT_SECONDS
            ]
            if silent:
                names = ", ".join(map(str, silent))
                found.append(f"no node serves partition {names} of {self._settings.topic}; its messages are late")
        for status, heard_at in self._last.values():
            if now - heard_at <= _SILENT_SECONDS:
                found += [f"partition {status.partition} (node {status.node}): {each}" for each in status.troubles]
        return found

    def measure(self, owned: Sequence[PartitionStatus]) -> None:
        """Set the figures of the partitions that this node owns."""
        counter, cluster = self._metrics.counter, self._settings.cluster
        counter(PENDING, cluster).value = sum(each.pending for each in owned)
        counter(UNDECIDED, cluster).value = sum(each.undecided for each in owned)
        counter(UNDECIDED_OLDEST, cluster).value = max((each.undecided_ms for each in owned), default=0) // 1000
        counter(OWNED, cluster).value = sum(each.state == "serving" for each in owned)
        counter(LATE, cluster).value = max((each.late_ms for each in owned), default=0) // 1000
        counter(TAKEOVER, cluster).value = max((each.takeover_ms for each in owned), default=0) // 1000
