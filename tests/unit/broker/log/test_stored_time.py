"""When a record was stored: by one look where that will do, by all of `read` where it will not."""

from __future__ import annotations

import pytest

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import store_timestamp
from broker.log.put import Put
from broker.log.stored_time import usual_stored_ms
from broker.runtime.store_metrics import DAMAGED
from broker.store import Store
from pyddmq.testing import SimDisk
from tests.integration.store_tools import open_store


def _stored(store: Store, host: bytes = bytes(8)) -> tuple[int, int]:
    """Store a message; returns where its record is, and its size."""
    topic = store.topics.get("t") or store.create_topic("t", 1)
    [position] = store.append([Put(topic, 0, b"body", b"")], born_ms=1, born_host=host)
    store.flush()
    [(physical, size, _)] = topic.queues[0].read(position.offset, 1)
    return physical, size


def test_what_was_just_stored_needs_one_look() -> None:
    """And says what the record says."""
    store = open_store(SimDisk())
    place = _stored(store)
    assert usual_stored_ms(store.index.log, *place) == store_timestamp(store.read(*place)) == store.stored_ms(*place)


def test_another_layout_is_read() -> None:
    """A born host of 16 bytes and a port moves the timestamp."""
    store = open_store(SimDisk())
    place = _stored(store, bytes(20))
    assert usual_stored_ms(store.index.log, *place) is None
    assert store.stored_ms(*place) == store_timestamp(store.read(*place))


def test_cold_records_are_read_with_their_sum() -> None:
    """An earlier process wrote them: a changed timestamp is damage, not a time."""
    disk = SimDisk()
    store = open_store(disk)
    physical, size = _stored(store)
    store.close()
    store = open_store(disk)
    store.index.log.pages.unsure_end = 0
    assert usual_stored_ms(store.index.log, physical, size) is None
    store.index.log.segments[0].file.write(physical + 56, [bytes(8)])
    with pytest.raises(DamagedRecord):
        store.stored_ms(physical, size)


def test_a_place_that_is_no_record_is_damage() -> None:
    """Wrong size, wrong place, beyond the log, in no segment: told and counted as `read` does."""
    store = open_store(SimDisk())
    physical, size = _stored(store)
    _stored(store)
    segment_bytes = store.index.log.segment_bytes
    wrong = [(physical, size + 1), (physical + 1, size), (segment_bytes - 1, size), (segment_bytes * 9, size)]
    for place in wrong:
        with pytest.raises((DamagedRecord, RecordGone)):
            store.stored_ms(*place)
    assert store.metrics.counter(DAMAGED).value == len(wrong)
