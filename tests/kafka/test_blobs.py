"""What a commit has no room for, in a compacted topic of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.kafka_world import Clients
from upstream.kafka.commits.blobs import Blobs, Named
from upstream.kafka.link import KafkaPartition

pytestmark = pytest.mark.long


def test_blob_is_read_back_and_dies_when_nothing_names_it(clients: Clients, topic: Callable[..., str]) -> None:
    """By where it was written, for as long as it is the last of its key; compaction takes the others."""
    name = topic(
        2, cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="200"
    )
    client = clients.client()
    producer, reader = client.producer(), client.reader()
    clock = ManualClock()
    runtime = runtime_of(SimDisk(), clock, metrics=Metrics(), scheduler=ManualScheduler(clock))
    blobs = Blobs("g", name, reader=reader, producer=producer, runtime=runtime)
    place, text = KafkaPartition("orders", 3), "p1;17;" + "x" * 500_000

    def write() -> Named:
        reported: list[Named | None] = []
        blobs.write(place, 17, text, reported.append, seconds=60)
        clients.until(lambda: reported, "a blob to be taken")
        assert reported[0] is not None
        return reported[0]

    def read(named: Named) -> str | None:
        reported: list[str | None] = []
        blobs.read(named, place, 17, reported.append)
        clients.until(lambda: reported, "a blob to be read")
        return reported[0]

    blobs.own(place, None)
    first = write()
    assert read(first) == text
    assert read(first._replace(offset=first.offset + 7)) is None
    for _ in range(200):
        # The slot that is named stays, however often the other one is written.
        blobs.committed(place, kept := write())
        if read(first) is None:
            break
    else:
        pytest.fail("nothing was compacted")
    assert read(kept) == text
    producer.close(5)
    reader.close()
