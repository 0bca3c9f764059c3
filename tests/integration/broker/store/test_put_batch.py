"""Encoded batches in a store: one unit, visible together, there whole or not at all over any stop."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from broker.errors import DiskFull, MessageRefused, StoreFailed
from broker.format.message import LogMessage, message_of, physical_of_id
from broker.format.unique_key import UniqueKeys
from broker.log.batch import BatchMessage, encode_batch
from broker.put_batch import BatchStored, put_batch
from broker.query import by_key, by_unique_key
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import SimDisk
from tests.golden.batches import BATCHES, golden_batches
from tests.integration.store_tools import HOST, bodies, open_store

BORN_MS = 1_600_000_000_000


def encoded(*bodies_of: bytes, first: int = 0, **properties: str) -> bytes:
    """Encode bodies as one batch of topic t."""
    messages = [BatchMessage("t", body, properties, flag=first + place) for place, body in enumerate(bodies_of)]
    keys = UniqueKeys(HOST, Random(len(messages))).take(len(messages), BORN_MS)
    return encode_batch(messages, unique_keys=keys)


def put(store: Store, data: bytes, *, queue_id: int = 0) -> BatchStored:
    """Put a batch into topic t."""
    return put_batch(store, "t", data, queue_id=queue_id, born_ms=BORN_MS, born_host=HOST)


def stored(store: Store, result: BatchStored, topic: str = "t") -> list[LogMessage]:
    """The records of a stored batch."""
    found = []
    for position in result.positions:
        [(physical, size, _)] = store.topics[topic].queues[position.queue_id].read(position.offset, 1)
        found.append(message_of(store.read(physical, size)))
    return found


def test_members_become_adjacent_records_of_their_own() -> None:
    """Consecutive offsets, one queue, nothing between them; all that the producer said is kept."""
    store = open_store(SimDisk())
    store.create_topic("t", 2)
    put(store, encoded(b"before"), queue_id=1)
    result = put(store, encoded(b"one", b"two", b"three", first=-1, KEYS="k1 k2", TAGS="TagA"), queue_id=1)
    found = stored(store, result)
    assert [(each.offset, each.queue_id, bytes(each.stored_body), each.flag) for each in found] == [
        (1, 1, b"one", -1),
        (2, 1, b"two", 0),
        (3, 1, b"three", 1),
    ]
    assert [each.physical for each in found[1:]] == [each.physical + each.size for each in found[:-1]]
    assert {(each.born_ms, each.born_host) for each in found} == {(BORN_MS, HOST)}
    assert [each.properties for each in found] == [
        {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": position.unique_key.decode()} for position in result.positions
    ]
    assert [unit[2] for unit in store.topics["t"].queues[1].read(1, 3)] == [2598919] * 3
    assert [each.offset for each in by_key(store, "t", "k2", limit=9).run().found] == [3, 2, 1]
    assert [each.offset for each in by_unique_key(store, "t", found[2].unique_key).run().found] == [3]


def test_offset_message_ids_are_rocketmqs() -> None:
    """One id per member, joined by commas; each names the record's place in the log."""
    store = open_store(SimDisk(), store_host=HOST)
    store.create_topic("t", 1)
    result = put(store, encoded(b"one", b"two"))
    ids = result.offset_message_ids.split(",")
    assert ids == [each.id for each in stored(store, result)]
    assert [physical_of_id(each) for each in ids] == [position.physical for position in result.positions]
    assert all(each.startswith(HOST.hex().upper()) for each in ids)


@pytest.mark.parametrize("case", [case for case, data in golden_batches().items() if data is not None])
def test_bytes_of_rocketmqs_client_are_stored(case: str) -> None:
    """What the real client encodes is put as it came."""
    data = golden_batches()[case]
    assert data is not None
    store = open_store(SimDisk())
    store.create_topic("orders", 1)
    result = put_batch(store, "orders", data, born_ms=BORN_MS)
    assert [(bytes(each.stored_body), each.flag) for each in stored(store, result, "orders")] == [
        (message.body, message.flag) for message in BATCHES[case]
    ]


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        (lambda store: put(store, encoded(b"a") + b"\x00"), "member 2 of the batch: 1 bytes are left"),
        (lambda store: put(store, encoded(b"a"), queue_id=1), "topic t has no queue 1"),
        (lambda store: put(store, encoded(b"a" * 400)), "the encoded batch has"),
        (lambda store: batch_with(store, sys_flag=0x4), "part of a transaction"),
        (lambda store: batch_with(store, sys_flag=0x1), "sysFlag 0x1"),
        (lambda store: batch_with(store, properties=b"DELAY\x013\x02"), "the batch as a whole: DELAY requests a delay"),
        (lambda store: batch_with(store, properties=b"TRAN_MSG\x01true\x02"), "the batch as a whole: TRAN_MSG"),
        (lambda store: batch_with(store, topic="%RETRY%g"), "a retry topic"),
        (lambda store: batch_with(store, topic="%DLQ%g"), "an internal topic of the broker"),
        (
            lambda store: put(store, encoded(*[b"a"] * 6)),
            "the batch of 6 needs 1092 bytes in the log; the limits are 1016 bytes",
        ),
    ],
)
def test_refused_batch_stores_nothing(attempt: Callable[[Store], object], text: str) -> None:
    """A broken rule, and a batch larger than a log file, is a sentence; nothing of it is staged."""
    metrics = Metrics()
    store = open_store(SimDisk(), metrics=metrics, message_bytes_max=410, segment_bytes=1024)
    store.create_topic("t", 1)
    store.create_topic("%RETRY%g", 1, system=True)
    store.create_topic("%DLQ%g", 1, system=True)
    with pytest.raises(MessageRefused, match=text):
        attempt(store)
    assert not store.pending
    assert bodies(store) == {}
    assert metrics.value("pyddmq_store_refused_total", "illegal") >= 1


def test_batch_goes_to_the_next_queue_in_turn_and_is_born_at_the_store() -> None:
    """Without a queue and host of the producer: the round of `put`, and the store's own address."""
    store = open_store(SimDisk(), store_host=HOST)
    store.create_topic("t", 3)
    results = [put_batch(store, "t", encoded(b"a", b"b"), born_ms=BORN_MS) for _ in range(3)]
    assert sorted(result.positions[0].queue_id for result in results) == [0, 1, 2]
    assert all(len({position.queue_id for position in result.positions}) == 1 for result in results)
    assert stored(store, results[0])[0].born_host == HOST


def batch_with(store: Store, topic: str = "t", **request: object) -> BatchStored:
    """Put a batch whose request says more."""
    return put_batch(store, topic, encoded(b"a"), queue_id=0, born_ms=BORN_MS, **request)  # type: ignore[arg-type]


def test_unknown_topic_is_no_topic() -> None:
    """A topic has to be there."""
    with pytest.raises(KeyError):
        put(open_store(SimDisk()), encoded(b"a"))


def test_failed_write_and_full_disk_are_told() -> None:
    """Neither is reported as stored."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    put(store, encoded(b"a" * 2000))
    disk.fail("allocate", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        put(store, encoded(b"a" * 2000))
    disk.heal()
    assert store.failed is None
    disk.fail("sync", path_part="commitlog")
    with pytest.raises(StoreFailed):
        put(store, encoded(b"a"))
