"""Partitions of which a client reads nothing although there is more: another client takes its place."""

from __future__ import annotations

import pytest

from tests.contract.grounds import ClassicKafkaGround, KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import MemberSettings
from upstream.kafka.positions.log_watch import ANEW_SECONDS, UNREAD_SECONDS, Unread

T = KafkaPartition("t", 0)
SETTINGS = MemberSettings(session_seconds=10, revoke_seconds=2)


@pytest.fixture(params=[KafkaGround, ClassicKafkaGround], ids=["consumer", "classic"])
def ground(request: pytest.FixtureRequest) -> KafkaGround:
    """Return a node over a simulated Kafka of either protocol, whose broker was restarted after it had read."""
    kind: type[KafkaGround] = request.param
    made = kind({"topic": "t", "timeout": 600_000}, queues=1, settings=SETTINGS)
    client = Client()
    made.put("old")
    made.ack(client, *made.drain(client, 1))
    made.advance(1)
    made.cluster().stop()
    made.advance(1)
    made.cluster().start()
    made.advance(10)
    return made


def _create_again(ground: KafkaGround) -> None:
    ground.cluster().delete("t")
    ground.advance(2)
    ground.cluster().make_again("t")
    ground.advance(3)


def test_topic_that_is_created_again_after_a_restart_of_its_broker_is_read(ground: KafkaGround) -> None:
    """The client knows the leader by a higher epoch than the new topic has, and reads nothing of it any more."""
    client = Client()
    _create_again(ground)
    for number in range(20):
        ground.put(f"new {number}")
    assert ground.drain(client, ANEW_SECONDS - 2) == {}
    taken = ground.drain(client, 40)
    assert [taken[each].decode() for each in sorted(taken)] == [f"new {number}" for number in range(20)]
    assert len(ground.client.members) == 2
    ground.ack(client, *taken)
    ground.advance(1)
    assert ground.committed() == ground.cluster().topics["t"][0].high


def test_new_client_is_made_once_where_it_helps_nothing(ground: KafkaGround) -> None:
    """As where the cluster lets a node ask where a log ends, and not read it."""
    _create_again(ground)
    ground.put("never read")
    for _ in range(400):
        for member in ground.client.members:
            member.pause([T])
        ground.advance(1)
    assert len(ground.client.members) == 2


@pytest.mark.parametrize("full", [True, False], ids=["full", "all read"])
def test_partition_that_rests_needs_no_new_client(full: bool) -> None:
    """It has come to its end, or more came than clients take."""
    settings = MemberSettings(session_seconds=10, waiting_bytes=1 << 16)
    ground = KafkaGround({"topic": "t", "timeout": 600_000}, queues=1, settings=settings)
    for number in range(500 if full else 2):
        ground.cluster().append(T, None, b"%d" % number + bytes(1_000), gap=0)
    ground.advance(3 * UNREAD_SECONDS)
    assert len(ground.client.members) == 1


def test_only_time_in_which_the_cluster_answers_counts(ground: KafkaGround) -> None:
    """After an outage, or where the node stood still, the answers to all questions may come at once."""
    [stream] = ground.member.partitions.streams.values()
    unread, end = Unread(), stream.reached + 1
    for now in (*[5.0] * 1_000, *[2_000.0] * 1_000):
        unread.looked(stream, end, now)
        assert unread.due() == {}
    for second in range(int(UNREAD_SECONDS)):
        unread.looked(stream, end, 2_000.0 + second)
    assert unread.due() == {T: stream.reached}
    assert unread.due() == {}


def test_partition_that_comes_slowly_needs_no_new_client(ground: KafkaGround) -> None:
    """Each record that comes begins the wait anew, and after one that came a new client may be made again."""
    client = Client()
    member = ground.client.members[-1]
    for number in range(5):
        member.pause([T])
        ground.put(f"slow {number}")
        ground.advance(UNREAD_SECONDS * 0.7)
        member.resume([T])
        ground.advance(2)
        ground.ack(client, *ground.drain(client, 1))
    assert len(ground.client.members) == 1
    for _ in range(2):
        _create_again(ground)
        ground.put("new")
        assert list(ground.drain(client, UNREAD_SECONDS + 30).values()) == [b"new"]
        ground.cluster().stop()
        ground.advance(1)
        ground.cluster().start()
        ground.advance(10)
    assert len(ground.client.members) == 3
