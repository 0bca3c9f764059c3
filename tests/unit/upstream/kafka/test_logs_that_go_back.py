"""Logs in Kafka that lose their end, or their beginning, and topics that are created again."""

from __future__ import annotations

import pytest

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import Place

T = Place("t", 0)


def _expired(ground: KafkaGround) -> int:
    return ground.progress.losses.of("g", "t").messages


def _put(ground: KafkaGround, *bodies: str) -> None:
    for body in bodies:
        ground.cluster().append(T, None, body.encode(), gap=0)
    ground.advance(0.1)


def _read_and_hold(ground: KafkaGround, client: Client, count: int) -> list[tuple[str, int]]:
    """Have messages handed out, and all but the last two finished."""
    _put(ground, *(f"old {number}" for number in range(count)))
    taken = sorted(ground.drain(client, 1))
    ground.ack(client, *taken[:-2])
    ground.advance(0.5)
    return taken[-2:]


@pytest.mark.parametrize("goes", ["cut", "made again"])
@pytest.mark.parametrize("where", ["first", "last"])
def test_log_that_becomes_shorter_than_where_the_group_stands(goes: str, where: str) -> None:
    """A node begins as a plain consumer does, counts what was lost, and takes no late answer for the new log."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": where}, queues=1)
    client = Client()
    held = _read_and_hold(ground, client, 30)
    if goes == "cut":
        ground.cluster().cut(T, 10)
    else:
        ground.cluster().delete("t")
        ground.advance(2)
        ground.cluster().make_again("t")
    ground.advance(3)
    new = [f"new {number}" for number in range(50)]
    _put(ground, *new)
    assert ground.ack(client, *held) == 0
    kept = [f"old {number}" for number in range(10)] if (goes, where) == ("cut", "first") else []
    taken = ground.drain(client, 3)
    assert [taken[each].decode() for each in sorted(taken)] == [*kept, *new]
    ground.ack(client, *taken)
    ground.advance(1)
    assert ground.committed() == ground.cluster().topics["t"][0].high
    assert _expired(ground) == 2
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1
    assert "went back" in ground.member.partitions.topic_troubles.texts()["t"]


def test_log_that_goes_back_and_grows_beyond_before_it_is_looked_at() -> None:
    """The client begins at the log's first record, below what came before: nothing of that is passed over."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _read_and_hold(ground, client, 30)
    ground.cluster().cut(T, 5)
    ground.advance(0.05)
    _put(ground, *(f"new {number}" for number in range(50)))
    taken = ground.drain(client, 3)
    assert [taken[each].decode() for each in sorted(taken)][5:] == [f"new {number}" for number in range(50)]


def test_log_that_loses_what_was_not_read_yet_is_read_on() -> None:
    """What the group had read stays finished; the rest is counted."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first", "concurrency": 1, "maxPullBatchSize": 1}, queues=1)
    _put(ground, *(str(number) for number in range(5_000)))
    ground.advance(2)
    ground.cluster().cut(T, 4_900)
    ground.advance(3)
    assert ground.member.partitions.owned[0].max_offset == 4_900
    assert _expired(ground) == 100


def test_log_that_went_back_while_no_node_ran_is_said() -> None:
    """What is committed lies beyond its end."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _read_and_hold(ground, client, 30)
    ground.client.kill()
    ground.cluster().cut(T, 10)
    ground.kill()
    assert len(ground.drain(client, 1)) == 10
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == 1


def test_what_retention_took_while_no_node_had_the_partition_is_counted() -> None:
    """Without what was finished of it; and what is finished above it stays finished."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    _put(ground, *(str(number) for number in range(20)))
    taken = sorted(ground.drain(client, 1))
    ground.ack(client, *taken[:3], *taken[5:7], *taken[12:16])
    ground.advance(0.5)
    ground.client.kill()
    ground.cluster().expire(T, 10)
    ground.kill()
    assert sorted(int(body) for body in ground.drain(client, 1).values()) == [10, 11, 16, 17, 18, 19]
    assert _expired(ground) == 5


def test_what_retention_took_from_a_running_group_is_counted() -> None:
    """Before the group was given it."""
    ground = KafkaGround({"topic": "t", "consumeFromWhere": "first"}, queues=1)
    client = Client()
    ground.client.members[0].pause([T])
    _put(ground, *(str(number) for number in range(20)))
    ground.cluster().expire(T, 12)
    ground.advance(2)
    ground.client.members[0].resume([T])
    assert len(ground.drain(client, 1)) == 8
    assert _expired(ground) == 12
