"""Where a group continues or begins in each partition: by its commit, by what was there before, or as configured."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.grounds import ClassicKafkaGround, KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition

T = KafkaPartition("t", 0)


def _append(ground: KafkaGround, *bodies: str, transaction: str | None = None) -> None:
    for body in bodies:
        ground.cluster().append(T, None, body.encode(), gap=0, transaction=transaction)


def _lag(ground: KafkaGround) -> int | None:
    [topic] = ground.group.stats().topics
    return topic.lag


def test_lag_counts_what_an_open_transaction_holds_back() -> None:
    """Up to the high watermark, with the transaction as the cause; and no longer once it has ended."""
    ground = KafkaGround({"topic": "t"}, queues=1)
    client = Client()
    _append(ground, "before")
    ground.advance(0.5)
    ground.ack(client, *ground.take(client))
    _append(ground, "open", transaction="x")
    _append(ground, *(str(number) for number in range(7)))
    ground.advance(5)
    assert ground.take(client) == {}
    assert _lag(ground) == 8
    assert ground.member.partitions.topic_troubles.texts() == {}, "most transactions end within seconds"
    ground.advance(10)
    [text] = ground.member.partitions.topic_troubles.texts().values()
    assert "open transaction since " in text
    assert "the 8 offsets of partition 0 from 1" in text
    ground.cluster().end("x", commit=True)
    taken = ground.drain(client, 2)
    assert len(taken) == 8
    ground.ack(client, *taken)
    ground.advance(2)
    assert (_lag(ground), ground.member.partitions.topic_troubles.texts()) == (0, {})


NODES = ["running", "started", "taking over"]
FIRST, STABLE, HIGH = 10, 25, 30
"""Of the log in which commits stand: its first offset, that of an open transaction, and the high watermark."""
_AT_TIME = 15
_SINCE_MS = 1_000_000_000_000
"""When the record of offset 0 was stored."""
_WHERE: dict[str, dict[str, Any]] = {
    "first": {"consumeFromWhere": "first"},
    "last": {"consumeFromWhere": "last"},
    "timestamp": {"consumeFromWhere": "timestamp", "consumeTimestamp": _SINCE_MS + _AT_TIME * 1000},
}
_BEGINS = {"first": FIRST, "last": STABLE, "timestamp": _AT_TIME}
_COMMITS = {"none": None, "below": 5, "inside": 18, "above the last stable offset": 27, "above the end": 40}


def _fill(ground: KafkaGround) -> None:
    """Have a log with a beginning that retention took, and an open transaction; records are a second apart."""
    for number in range(HIGH):
        _append(ground, str(number), transaction="open" if number == STABLE else None)
    ground.cluster().expire(T, FIRST)
    records = ground.cluster().partition(T).records
    records.update({offset: each._replace(timestamp_ms=_SINCE_MS + offset * 1000) for offset, each in records.items()})


def _next_node(node: str, ground: KafkaGround) -> KafkaGround:
    """Let a node get the partitions: the same member again, the next one, or one that waits for the session's end."""
    if node == "running":
        ground.cluster().expel(ground.client.members[0])
        ground.advance(15)
        return ground
    if node == "started":
        ground.kill()
        return ground
    second = KafkaGround(*ground.subscriptions, beside=ground, queues=ground.queues)
    ground.advance(15)
    return second


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("where", _WHERE)
@pytest.mark.parametrize("commit", _COMMITS)
def test_known_partition_continues_at_its_commit(commit: str, where: str, node: str) -> None:
    """The commit moves forward alone: to what retention kept. Without one, or above the end, the group begins anew."""
    ground = KafkaGround({"topic": "t", **_WHERE[where]}, queues=1)
    if node != "running":
        ground.client.kill()
    _fill(ground)
    committed = ground.cluster().group("g").committed
    offset = _COMMITS[commit]
    if offset is None:
        committed.clear()
    else:
        committed[T] = (offset, "")
    ground = _next_node(node, ground)
    [queue] = ground.member.partitions.owned
    begins = FIRST if (commit, node) == ("none", "running") else _BEGINS[where]
    assert queue.start == {"below": FIRST, "inside": 18, "above the last stable offset": 27}.get(commit, begins)
    assert ground.committed() == queue.start
    assert ground.progress.losses.of("g", "t").messages == (FIRST - 5 if commit == "below" else 0)
    assert ground.count("pyddmq_kafka_logs_went_back_total", "g") == (commit == "above the end")


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("where", _WHERE)
@pytest.mark.parametrize("appears", ["partition added", "topic of an expression", "topic created again"])
def test_what_appears_while_the_group_exists_is_read_from_its_first_record(appears: str, where: str, node: str) -> None:
    """Whatever `consumeFromWhere` says, and whoever has it; a topic that was created again while no node ran is new."""
    name = "^t.*" if appears == "topic of an expression" else "t"
    ground = KafkaGround({"topic": name, **_WHERE[where]}, queues=1)
    if appears == "topic of an expression":
        ground.cluster().partitions("t")
        ground.advance(1)
    assert T in ground.cluster().group("g").committed
    if node != "running":
        ground.client.kill()
    place = {"partition added": KafkaPartition("t", 1), "topic of an expression": KafkaPartition("t-b", 0)}.get(
        appears, T
    )
    if appears == "topic created again":
        ground.cluster().delete("t")
        ground.advance(2)
        ground.cluster().make_again("t")
    for number in range(3):
        ground.cluster().append(place, None, str(number).encode(), gap=0)
    if node == "running":
        ground.advance(15)
    else:
        ground = _next_node(node, ground)
    [queue] = [each for each in ground.member.partitions.owned if each.place == place]
    is_new_group = appears == "topic created again" and node != "running"
    assert queue.start == (3 if is_new_group and where == "last" else 0)


def test_new_group_over_several_nodes_begins_as_configured() -> None:
    """Also where one node has committed before the other has its part."""
    first = KafkaGround({"topic": "t", "consumeFromWhere": "last"}, queues=2)
    first.client.kill()
    first.cluster().group("g").committed.clear()
    for queue in range(2):
        first.cluster().append(KafkaPartition("t", queue), None, b"old", gap=0)
    nodes = [KafkaGround(*first.subscriptions, beside=first, queues=2) for _ in range(2)]
    first.advance(15)
    assert [[each.start for each in node.member.partitions.owned] for node in nodes] == [[1], [1]]


def test_topic_that_a_group_subscribes_anew_is_no_new_topic() -> None:
    """It was there before: the group begins in it as configured."""
    entry = {"topic": "t", "consumeFromWhere": "last"}
    ground = KafkaGround(entry, queues=1)
    ground.cluster().append(KafkaPartition("other", 0), None, b"old", gap=0)
    config = ground.config()
    other = config.topics[0].model_copy(update={"topic": "other"})
    ground.member.configure(config.model_copy(update={"topics": [*config.topics, other]}))
    ground.advance(5)
    assert {each.topic: each.start for each in ground.member.partitions.owned} == {"t": 0, "other": 1}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_group_that_no_client_pulls_are_kept(protocol: str) -> None:
    """Kafka deletes those of a group without members; a node that is out joins for a moment before."""
    kind = {"classic": ClassicKafkaGround, "consumer": KafkaGround}[protocol]
    ground = kind({"topic": "t"}, queues=1)
    ground.cluster().offsets_seconds = 8 * 3_600.0
    client = Client()
    _append(ground, "one", "two")
    ground.advance(0.5)
    first, _ = sorted(ground.take(client))
    ground.ack(client, first)
    ground.advance(1)
    ground.wanted = False
    ground.advance(15 * 3_600.0)
    assert ground.cluster().group("g").members == [], "it leaves again"
    assert ground.committed() == 1
    ground.wanted = True
    assert list(ground.drain(client, 2).values()) == [b"two"]
