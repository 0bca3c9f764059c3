"""What the log itself tells of records that replace others: every one that is whole, none that is not."""

from __future__ import annotations

import copy
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.format.record import CRC_BYTES, HEADER_BYTES
from broker.log.decisions import DecisionRecord, prepared_offset_of
from broker.log.put import Put
from broker.runtime.sums import crc32
from broker.store import Store
from pyddmq.testing import SimDisk
from tests.integration.store_tools import HOST, ROOT, open_store

COUNT = 60
HOST_V6 = bytes(range(16)) + b"\x00\x00\x04\xd2"
SEGMENTS = 3
BYTES = 4096


@functools.cache
def _made() -> tuple[SimDisk, tuple[DecisionRecord, ...], tuple[int, ...]]:
    """A closed store of some log files, every third record in another's place, and every seventh from an IPv6 host."""
    disk = SimDisk()
    store = open_store(disk)
    topics = [store.create_topic("t", 1), store.create_topic("another", 1)]
    made: list[DecisionRecord] = []
    places: list[int] = []
    for number in range(COUNT):
        topic = topics[number % 2]
        replaced = places[number // 2] if number % 3 == 1 else None
        prepared = 0 if replaced is None else prepared_offset_of(replaced)
        put = Put(topic, 0, b"x" * (number * 7 % 90), b"", prepared_offset=prepared)
        [position] = store.append([put], born_ms=number, born_host=HOST_V6 if number % 7 == 0 else HOST)
        store.flush()
        places.append(position.physical)
        if replaced is not None:
            made.append(DecisionRecord(replaced, position.physical, topic.name_bytes))
    assert len(disk.list(f"{ROOT}/commitlog")) >= SEGMENTS
    store.close()
    return disk, tuple(made), tuple(places)


def reported(store: Store, start: int = 0) -> list[DecisionRecord]:
    """All decisions from an offset on."""
    return [decision for step in store.decisions(start) for decision in step.decisions]


@pytest.mark.parametrize("closed", [True, False])
def test_every_record_that_replaces_another_is_told(*, closed: bool) -> None:
    """In the order of the log, over its files, from any record on, of an earlier process and of one that was killed."""
    disk, made, places = _made()
    disk = copy.deepcopy(disk)
    if not closed:
        store = open_store(disk)
        store.abandon()
        disk.kill()
        disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    store = open_store(disk)
    assert reported(store) == list(made)
    for start in places:
        assert reported(store, start) == [each for each in made if each.physical >= start]
    store.close()


@settings(deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, SEGMENTS - 1), st.integers(0, BYTES * 8 - 1)), min_size=1, max_size=4))
def test_what_is_damaged_decides_nothing_and_hides_nothing(flips: list[tuple[int, int]]) -> None:
    """Whatever bits flip: the records that are whole are told, and no other, also behind a wrong length."""
    disk, made, _ = _made()
    disk = copy.deepcopy(disk)
    for file, bit in flips:
        disk.flip_bit(f"{ROOT}/commitlog/{file * BYTES:020d}", bit // 8, bit % 8)
    store = open_store(disk)
    assert reported(store) == [each for each in made if store.record_at(each.physical) is not None]
    store.abandon()


@pytest.mark.parametrize("bit", [0, 6, 9, 24])
def test_a_wrong_length_hides_no_decision(bit: int) -> None:
    """Also one that leads to another record."""
    disk, made, places = _made()
    for place in places[:-1]:
        damaged = copy.deepcopy(disk)
        damaged.flip_bit(f"{ROOT}/commitlog/{place // BYTES * BYTES:020d}", place % BYTES + bit // 8, bit % 8)
        store = open_store(damaged)
        assert reported(store) == [each for each in made if each.physical != place]
        store.abandon()


@pytest.mark.parametrize(("at", "data"), [(12, b"\xff\xff\xff\xff"), (12, b"\x7f\0\0\0"), (88, b"/"), (88, b"\0")])
def test_a_record_that_cannot_be_decides_nothing(at: int, data: bytes) -> None:
    """No such queue, or no folder of the topic's name: not even with a right sum."""
    disk, made, _ = _made()
    disk = copy.deepcopy(disk)
    file = disk.open(f"{ROOT}/commitlog/{0:020d}")
    [each, *others] = [each for each in made if each.physical < BYTES]
    store = open_store(disk)
    assert reported(store)[0] == each
    entry = store.record_at(each.physical)
    assert entry is not None
    record = bytearray(file.read(each.physical, entry.size))
    if at == HEADER_BYTES:
        # The topic follows the body.
        at = record.index(bytes([len(each.topic)]) + each.topic, HEADER_BYTES) + 1
    record[at : at + len(data)] = data
    record[-11:-1] = b"%010d" % (crc32(record[:-CRC_BYTES]) & 0x7FFFFFFF)
    record[-11:-1] = record[-11:-1][::-1]
    file.write(each.physical, [record])
    assert reported(store)[: len(others)] == others
    assert store.record_at(each.physical) is None
    store.abandon()
