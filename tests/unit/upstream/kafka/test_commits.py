"""Commits of a member: who waits for one is told when it has happened, and never by one that began before (D52)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from broker.runtime.bundle import runtime_of
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.commits.blobs import Named
from upstream.kafka.commits.commits import OffsetCommitter
from upstream.kafka.lease import Lease
from upstream.kafka.link import Assignment, Commit, Done, KafkaFailure, KafkaPartition
from upstream.kafka.topics import KafkaQueue
from upstream.progress.tracker import AttemptFailures, OffsetTracker


def _ground() -> tuple[KafkaGround, list[bool]]:
    ground = KafkaGround({"topic": "t"}, queues=1)
    ground.put("one")
    client = Client()
    ground.ack(client, *ground.take(client))
    reported: list[bool] = []
    return ground, reported


def test_who_waits_is_told_once_it_is_committed() -> None:
    """At once, not with the next interval; and where nothing is left to commit, too."""
    ground, reported = _ground()
    ground.member.when_durable(reported.append)
    assert reported == []
    ground.advance(0.06)
    assert reported == [True]
    assert ground.cluster().group("g").committed[KafkaPartition("t", 0)][0] == ground.cluster().topics["t"][0].high
    ground.member.when_durable(reported.append)
    ground.advance(0.06)
    assert reported == [True, True]


def test_who_waits_is_told_by_a_commit_that_began_afterwards() -> None:
    """What finishes while one is under way is in the next."""
    ground, reported = _ground()
    ground.member.when_durable(lambda _: None)
    ground.advance(0)
    ground.put("two")
    client = Client()
    ground.ack(client, *ground.take(client))
    ground.member.when_durable(reported.append)
    while not reported:
        ground.advance(0.001)
    assert ground.cluster().group("g").committed[KafkaPartition("t", 0)][0] == ground.cluster().topics["t"][0].high


def test_commit_that_fails_for_a_while_is_waited_for_and_one_that_is_lost_is_not() -> None:
    """Nobody is told yes for what is not committed."""
    ground, reported = _ground()
    ground.cluster().down = True
    ground.member.when_durable(reported.append)
    ground.advance(1)
    assert reported == []
    ground.cluster().down = False
    ground.advance(1)
    assert reported == [True]
    ground.put("two")
    client = Client()
    ground.ack(client, *ground.take(client))
    ground.cluster().expel(ground.client.members[0])
    ground.member.when_durable(reported.append)
    ground.advance(1)
    assert reported == [True, False]


@pytest.mark.parametrize("limit", [200, 90, 10], ids=["named elsewhere", "cut", "no text"])
def test_text_that_the_brokers_refuse_stops_no_commit(limit: int) -> None:
    """It becomes shorter until they take it: what has no room goes to the commit topic, or comes again."""
    ground = KafkaGround({"topic": "t", "maxPullBatchSize": 100}, queues=1)
    ground.cluster().partitions("__pyddmq_commits")
    ground.cluster().metadata_max = limit
    for number in range(600):
        ground.put(str(number))
    client = Client()
    taken = list(ground.drain(client, 5))
    held = taken[0]
    ground.ack(client, *taken[1::3])
    ground.ack(client, *taken[2::3], fail=True)
    ground.advance(20)
    offset, text = ground.cluster().group("g").committed[KafkaPartition("t", 0)]
    assert offset == held[1]
    assert len(text) <= limit
    assert (";T" in text) == (limit == 200)
    ground.ack(client, held)
    ground.advance(5)
    assert (ground.committed() or 0) > held[1]


class Asked:
    """A member and a commit topic that answer when they are told to; a commit of nothing succeeds at once, as ever."""

    def __init__(self, scheduler: ManualScheduler) -> None:
        self.scheduler = scheduler
        self.commits: list[Sequence[Commit]] = []
        self.blobs: list[Callable[[Named | None], None]] = []

    def commit(self, commits: Sequence[Commit], done: Done, *, soon: bool = False) -> None:
        """Keep it."""
        if commits:
            self.commits.append(commits)
        else:
            self.scheduler.call_soon(done, None)

    def write(self, place: object, offset: int, text: str, done: Callable[[Named | None], None], **_: object) -> None:
        """Keep it."""
        self.blobs.append(done)


def test_commit_that_a_later_one_has_overtaken_vouches_for_nothing() -> None:
    """While its blob was written another one was sent: only the answer to that says whose the partition is."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    lease = Lease(clock, 10.0, regained=lambda: None)
    queue = KafkaQueue(Assignment("t", 0, 0, 10_000, 0, "", None), 0)
    tracker, asked, ended = OffsetTracker("g", "t", 0), Asked(scheduler), list[KafkaFailure | None]()
    committer = OffsetCommitter(
        "g", member=cast("Any", asked), lease=lease, blobs=cast("Any", asked), queues=lambda: [queue],
        tracker_of=lambda _: tracker, runtime=runtime_of(SimDisk(), clock, scheduler=scheduler), interval_seconds=0.1,
        answered=lambda _: None,
    )  # fmt: skip
    tracker.failures = {offset: AttemptFailures(9, 9, 9, 0, 1 << 41) for offset in range(1_000)}
    committer.now([queue], ended.append)
    tracker.failures = {}
    committer.now([queue], lambda _: None)
    assert (len(asked.blobs), len(asked.commits)) == (1, 1)
    asked.blobs[0](None)
    scheduler.advance(0.1)
    assert (len(asked.commits), lease.holds) == (1, False)
    assert ended[0] is not None
