"""Topics of one group that are missing, denied or without a leader: each has its own state, the others go on."""

from __future__ import annotations

import pytest

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaFailure, KafkaPartition

DENIED = KafkaFailure("TOPIC_AUTHORIZATION_FAILED", "not authorized")
LEADERLESS = KafkaFailure("LEADER_NOT_AVAILABLE", "no leader")


def _ground() -> KafkaGround:
    ground = KafkaGround({"topic": "t"}, {"topic": "u"}, queues=1)
    ground.advance(1)
    return ground


def _states(ground: KafkaGround) -> dict[str, tuple[bool, bool]]:
    """Whether the lag of each topic is unknown, and whether it has a finding."""
    texts = ground.member.partitions.topic_troubles.texts()
    stats = {each.topic: each for each in ground.group.stats().topics}
    return {topic: (each.lag is None, topic in texts) for topic, each in stats.items()}


def test_topic_that_is_missing_is_unknown_and_the_other_is_read() -> None:
    """It was deleted while the group read both; when it is there again, it is read."""
    ground = _ground()
    ground.cluster().delete("u")
    ground.advance(25)
    assert _states(ground) == {"t": (False, False), "u": (True, True)}
    ground.put("one")
    assert list(ground.take(Client()).values()) == [b"one"]
    ground.cluster().make_again("u")
    ground.advance(25)
    assert ground.member.partitions.unknown("u") is None


@pytest.mark.parametrize(("failure", "unknown"), [(DENIED, True), (LEADERLESS, False)])
def test_topic_that_is_refused_has_a_finding_of_its_own(failure: KafkaFailure, unknown: bool) -> None:
    """Of one that is denied the lag is unknown; the other partitions of one without a leader are known."""
    ground = _ground()
    ground.cluster().refusals["u"] = failure
    ground.advance(25)
    assert _states(ground) == {"t": (False, False), "u": (unknown, True)}
    del ground.cluster().refusals["u"]
    ground.advance(25)
    assert _states(ground) == {"t": (False, False), "u": (False, False)}


def test_partition_that_vanishes_and_comes_back_is_another_log() -> None:
    """What the group stood at says nothing of the new one, however long that is by then."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    for number in range(5):
        ground.put(str(number))
    ground.ack(client, *ground.drain(client, 1))
    ground.cluster().delete("t")
    ground.advance(2)
    ground.cluster().make_again("t")
    for number in range(9):
        ground.cluster().append(KafkaPartition("t", 0), None, b"new %d" % number)
    assert len(ground.drain(client, 3)) == 9


def test_topic_of_an_expression_that_was_deleted_is_no_trouble_for_ever() -> None:
    """It is one until the partitions are given up: the group reads what fits, and nobody is to create it again."""
    ground = KafkaGround({"topic": "^t.*"}, queues=1)
    ground.cluster().partitions("t", 1)
    ground.advance(30)
    assert len(ground.member.partitions.owned) == 1
    ground.cluster().delete("t")
    ground.advance(2)
    assert "t" in ground.member.partitions.topic_troubles.texts()
    ground.cluster().group("g").changed()
    ground.advance(30)
    assert len(ground.member.partitions.owned) == 0
    assert ground.member.partitions.topic_troubles.texts() == {}
