"""What owners say of their partitions, put together by a node."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from broker.runtime.bundle import runtime_of
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from upstream.kafka.waiting.records import PartitionStatus
from upstream.kafka.waiting.statuses import WaitingStatuses
from upstream.kafka.waiting.topics import WaitingSettings

Counts = list[tuple[str, str, int]]
SETTINGS = WaitingSettings(
    cluster="main",
    servers="kafka:9092",
    node="n",
    topic="waiting",
    answers_topic="answers",
    partitions=50,
    ahead_ms=1,
    remember_ms=1,
)


class ReadCounts(Counts):
    """Counts that know how many of them were read."""

    read = 0

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Count one that is read."""
        for each in super().__iter__():
            ReadCounts.read += 1
            yield each


def statuses_of() -> WaitingStatuses:
    """Those of a node that has heard nothing."""
    clock = ManualClock()
    return WaitingStatuses(SETTINGS, runtime_of(SimDisk(), clock, scheduler=ManualScheduler(clock), random=Random(1)))


def status(partition: int, counts: Counts) -> PartitionStatus:
    """What an owner says."""
    return PartitionStatus(partition, "n", "serving", 0, sum(count for *_, count in counts), 0, 0, counts, [])


def test_pending_messages_are_those_that_owners_said_last() -> None:
    """By topic and by principal, whatever comes and goes."""
    random, statuses, last = Random(3), statuses_of(), dict[int, Counts]()
    for _ in range(500):
        partition = random.randrange(4)
        pairs = [(topic, owner) for topic in "abc" for owner in ("", "x", "y") if random.random() < 0.4]
        last[partition] = [(*pair, random.randrange(1, 9)) for pair in pairs]
        statuses.note(status(partition, last[partition]))
        said = [each for counts in last.values() for each in counts]
        for name in "abcd":
            assert statuses.pending(name) == sum(count for topic, _, count in said if topic == name)
            owners = {owner for topic, owner, _ in said if topic == name and owner}
            assert statuses.principals(name) == ["", *sorted(owners)]
        for name in ("", "x", "y", "z"):
            assert statuses.pending_of(name) == sum(count for _, owner, count in said if owner == name)


def test_status_costs_what_its_own_partition_has() -> None:
    """However many partitions there are; and a look at a limit, at each send, reads none."""
    statuses = statuses_of()
    for _ in range(2):
        for partition in range(50):
            counts = ReadCounts([(f"topic{number}", "", 1) for number in range(100)])
            statuses.note(status(partition, list(counts))._replace(counts=counts))
    ReadCounts.read = 0
    statuses.note(status(7, [("topic0", "", 5)]))
    assert (statuses.pending("topic0"), statuses.pending("topic1"), statuses.pending_of("")) == (54, 49, 4_905)
    assert ReadCounts.read == 100
