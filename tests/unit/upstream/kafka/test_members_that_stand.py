"""A member whose client finds the group's coordinator no more: its lag is unknown, and another takes its place."""

from __future__ import annotations

import pytest

from tests.contract.grounds import ClassicKafkaGround, KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.partitions import MemberSettings
from upstream.kafka.silence import SESSIONS

SETTINGS = MemberSettings(session_seconds=10, revoke_seconds=2)


@pytest.fixture(params=[KafkaGround, ClassicKafkaGround], ids=["consumer", "classic"])
def ground(request: pytest.FixtureRequest) -> KafkaGround:
    """Return a node over a simulated Kafka of either protocol, that has read something."""
    kind: type[KafkaGround] = request.param
    made = kind({"topic": "t"}, queues=2, settings=SETTINGS)
    client = Client()
    made.put("one")
    made.ack(client, *made.drain(client, 0.5))
    made.advance(1)
    return made


def test_member_that_stands_is_replaced_and_its_lag_is_unknown(ground: KafkaGround) -> None:
    """What was acknowledged does not come again by that."""
    assert ground.member.partitions.unknown("t") is None
    [member] = ground.client.members
    member.stands = True
    ground.advance(15)
    assert "has not responded" in (ground.member.partitions.unknown("t") or "")
    assert ground.group.stats().topics[0].lag is None
    ground.advance(SESSIONS * 10 + 20)
    assert len(ground.client.members) == 2
    ground.put("two")
    assert list(ground.drain(Client(), 1).values()) == [b"two"]
    assert ground.member.partitions.unknown("t") is None


def test_member_of_a_cluster_that_is_away_is_not_replaced(ground: KafkaGround) -> None:
    """Another one would stand as well."""
    ground.cluster().stop()
    ground.advance(300)
    assert len(ground.client.members) == 1
    ground.cluster().start()
    ground.advance(30)
    ground.put("two")
    assert list(ground.drain(Client(), 1).values()) == [b"two"]


def test_idle_member_is_not_taken_for_one_that_stands(ground: KafkaGround) -> None:
    """It commits for its lease; one without partitions has nothing to say."""
    other = type(ground)({"topic": "t"}, beside=ground, queues=2, settings=SETTINGS)
    third = type(ground)({"topic": "t"}, beside=ground, queues=2, settings=SETTINGS)
    ground.advance(300)
    assert [len(each.client.members) for each in (ground, other, third)] == [1, 1, 1]
    assert sorted(len(each.member.partitions.owned) for each in (ground, other, third)) == [0, 1, 1]
