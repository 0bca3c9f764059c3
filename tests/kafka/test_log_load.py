"""The process that fills the cache of a partition from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer as KafkaProducer

from broker.runtime.disk import RealDisk
from conf.sections.kafka import KafkaClusterConfig
from tests.kafka.topics import SECONDS
from upstream.kafka.link import Checkpoint, KafkaFailure, KafkaPartition
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.records import EndedMessage, Identity, WaitingRecord, encode
from upstream.kafka_client.log_load import LoadOrder, LogLoader
from upstream.kafka_client.posting import Post

COUNT = 300


def test_log_is_loaded_by_a_process(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """To its end; damaged records are named. What keeps it from that is said."""
    name, path = topic(1), str(tmp_path / "0.db")
    producer = KafkaProducer({"bootstrap.servers": address})
    for number in range(COUNT):
        waiting = encode(WaitingRecord(number + 1, None, b"k", b"body", ()))
        producer.produce(name, key=Identity("t", "", str(number)).key("1"), value=waiting)
    for number in range(0, COUNT, 3):
        producer.produce(name, key=Identity("t", "", str(number)).key("1"), value=encode(EndedMessage("delivered", 1)))
    producer.produce(name, key=b"?", value=b"\x01")
    producer.flush(SECONDS)
    checkpoint = Checkpoint("cluster/topic", 1, 0, 1 << 62, 0)

    async def loaded(**librdkafka: object) -> tuple[KafkaFailure | None, Sequence[int]]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[KafkaFailure | None, Sequence[int]]] = loop.create_future()
        config = KafkaClusterConfig.model_validate({"bootstrapServers": address, "librdkafka": librdkafka})
        order = LoadOrder("main", config, KafkaPartition(name, 0), f"{path}-load", checkpoint)
        LogLoader(order, lambda *found: ended.set_result(found), Post(loop))
        return await ended

    assert asyncio.run(loaded()) == (None, [400])
    cache = PartitionCache(path, RealDisk())
    assert cache.adopt(checkpoint)
    assert (cache.position, cache.counts[("t", "")]) == (401, 200)
    assert [each.at for each in cache.due(1_000, 2)] == [2, 3]
    failure, _ = asyncio.run(loaded(**{"no.such.setting": 1}))
    assert "no.such.setting" in str(failure)
    assert not Path(f"{path}-load").exists()
