"""What was answered and could not be committed yet: by a stop, a partition that moves, and one that comes back."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.contract.grounds import ClassicKafkaGround, KafkaGround, Taken
from tests.unit.upstream_world import Client
from upstream.kafka.commits.commits import LAST_TELL_SECONDS, SAID_MAX
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import MemberSettings

KEYED = {"topic": "t", "orderKey": "KEY", "retryIntervals": [2000], "timeout": 60_000, "maxPullBatchSize": 8}
SETTINGS = MemberSettings(session_seconds=10, revoke_seconds=2)
Kind = type[KafkaGround]


def _answered_in_vain(ground: KafkaGround, client: Client, taken: Taken) -> None:
    """Answer for some that are committed, and for the rest while the cluster is away."""
    first, rest = sorted(taken)[:5], sorted(taken)[5:]
    ground.ack(client, *first)
    ground.advance(1)
    ground.cluster().stop()
    assert ground.ack(client, *rest) == len(rest), "its lease holds"
    ground.advance(1)
    ground.cluster().start()


@pytest.fixture(params=[KafkaGround, ClassicKafkaGround], ids=["consumer", "classic"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return a simulated Kafka of either protocol."""
    made: Kind = request.param
    return made


def _node(kind: Kind, beside: KafkaGround | None = None) -> KafkaGround:
    return kind(KEYED, queues=6, settings=SETTINGS, beside=beside)


def _put(ground: KafkaGround, count: int = 30) -> None:
    for number in range(count):
        ground.put(str(number), key=f"k{number}", queue=number % 6)


def _shared_out_for_a_session(first: KafkaGround, *, others: int = 1) -> list[KafkaGround]:
    """Have another node die and some start in its place, which by the classic protocol holds the group up."""
    second = _node(type(first), first)
    first.advance(2)
    assert [len(each.member.partitions.owned) for each in (first, second)] == [3, 3]
    second.client.kill()
    started = [_node(type(first), first) for _ in range(others)]
    first.advance(2)
    return started


def _others(ground: KafkaGround, taken: Taken, client: Client) -> list[tuple[str, int]]:
    """Answer for all; return what another node is given that was answered."""
    assert ground.ack(client, *taken) == len(taken)
    return sorted(taken)


def test_node_that_stops_while_the_group_is_shared_out_has_nothing_repeated(kind: Kind) -> None:
    """It waits until its commit gets through, which by the classic protocol is when the dead one's session is over."""
    first, client = _node(kind), Client()
    [third] = _shared_out_for_a_session(first)
    _put(first)
    answered = _others(first, first.take(client), client)
    assert answered
    left: list[bool] = []
    first.member.leave(lambda: left.append(True))
    first.advance(0.5)
    assert bool(left) == (kind is KafkaGround), "by the classic protocol it has to wait"
    first.advance(15)
    assert left
    assert not set(third.drain(Client(), 2)) & set(answered)


def test_node_that_stops_while_the_cluster_is_away_waits_no_longer_than_in_a_revoke() -> None:
    """What it could not commit comes again; a stop has its bound, and after a second the log says what it waits for."""
    ground, client = _node(KafkaGround), Client()
    _put(ground)
    taken = ground.take(client)
    ground.cluster().stop()
    ground.ack(client, *taken)
    ground.advance(3)
    left: list[bool] = []
    with capture_logs() as lines:
        ground.member.leave(lambda: left.append(True))
        ground.advance(LAST_TELL_SECONDS - 0.1)
        assert not [each for each in lines if each["event"] == "kafka_last_commit_awaited"]
        ground.advance(0.2)
        [line] = [each for each in lines if each["event"] == "kafka_last_commit_awaited"]
    assert (line["group"], line["seconds"]) == ("g", SETTINGS.revoke_seconds)
    assert not left
    ground.advance(SETTINGS.revoke_seconds)
    assert left


def test_commits_in_vain_are_remembered_within_a_bound() -> None:
    """The last that succeeded, and the latest since: a cluster that is away for a day takes no memory."""
    ground, client = _node(KafkaGround), Client()
    [queue] = [each for each in ground.member.partitions.owned if each.queue_id == 0]
    commits = ground.member.partitions.commits
    for number in range(200):
        ground.put(str(number), key=f"k{number}")
    ground.advance(1)
    [first] = commits.said(queue)
    ground.cluster().stop()
    for place in sorted(ground.take(client)):
        ground.ack(client, place)
        commits.now([queue], lambda _: None)
    said = commits.said(queue)
    assert len(said) == SAID_MAX + 1
    assert said[0] == first
    assert said[-1][0] == ground.group_queue().tracker.watermark


def test_partition_that_moves_takes_along_what_was_answered_while_nothing_was_committed(kind: Kind) -> None:
    """Also when the time in which nothing was committed was longer than the lease."""
    first, client = _node(kind), Client()
    others = _shared_out_for_a_session(first, others=2)
    _put(first)
    answered = _others(first, first.take(client), client)
    first.advance(20)
    assert [len(each.member.partitions.owned) for each in (first, *others)] == [2, 2, 2]
    again = first.drain(client, 2)
    for other in others:
        again |= other.drain(Client(), 2)
    assert not set(again) & set(answered)


def test_node_that_gets_its_partitions_back_has_nothing_repeated(kind: Kind) -> None:
    """It was expelled while the cluster was away, and what is committed is what it said last."""
    ground, client = _node(kind), Client()
    _put(ground)
    taken = ground.take(client)
    _answered_in_vain(ground, client, taken)
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(15)
    assert ground.count("pyddmq_kafka_partitions_lost_total", "g") >= 4, "they were lost, and came back"
    ground.put("new", key="new")
    again = ground.drain(client, 2)
    assert b"new" in again.values()
    assert not set(again) & set(taken)


def test_group_that_was_set_back_meanwhile_gets_it_all_again() -> None:
    """What the node knew is of a time before: somebody has committed another place since."""
    ground, client = _node(KafkaGround), Client()
    _put(ground)
    taken = ground.take(client)
    _answered_in_vain(ground, client, taken)
    [member] = ground.client.members
    ground.cluster().expel(member)
    for number in range(6):
        ground.cluster().group("g").committed[KafkaPartition("t", number)] = (0, "")
    ground.advance(15)
    assert set(ground.drain(client, 2)) == set(taken)


def test_records_that_are_gone_finish_none_of_those_that_come_in_their_place() -> None:
    """As by an unclean election: the end is below what was finished."""
    ground, client = _node(KafkaGround), Client()
    ground.put("kept", key="k")
    ground.ack(client, *ground.take(client))
    ground.advance(1)
    ground.put("one", key="k")
    taken = ground.take(client)
    ground.cluster().stop()
    ground.ack(client, *taken)
    ground.cluster().start()
    partition, committed = ground.cluster().topics["t"][0], ground.committed()
    assert committed is not None
    partition.records = {offset: each for offset, each in partition.records.items() if offset < committed}
    partition.high = committed
    [member] = ground.client.members
    ground.cluster().expel(member)
    ground.advance(15)
    ground.cluster().append(KafkaPartition("t", 0), b"k", b"another", gap=0)
    ground.advance(0.5)
    assert list(ground.drain(client, 1).values()) == [b"another"]
