"""Where a group continues or begins in each partition: by its commit, by what the node knew, and by the configuration."""

from __future__ import annotations

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import Place

T = Place("t", 0)


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
    assert "the 8 offsets of partition 0 from 1 on" in text
    ground.cluster().end("x", commit=True)
    taken = ground.drain(client, 2)
    assert len(taken) == 8
    ground.ack(client, *taken)
    ground.advance(2)
    assert (_lag(ground), ground.member.partitions.topic_troubles.texts()) == (0, {})
