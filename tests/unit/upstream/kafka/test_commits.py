"""Commits of a member: who waits for one is told when it has happened, and never by one that began before (D52)."""

from __future__ import annotations

import pytest

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition


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
