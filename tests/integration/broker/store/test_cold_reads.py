"""What a running store wrote long ago may come back damaged: no wrong body or unit is handed out (D2)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.queues.unit_sums import BLOCK_UNITS, UnitSums
from broker.runtime.metrics import Metrics
from broker.runtime.store_metrics import DAMAGED, UNITS_REPAIRED
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store


def aged(disk: SimDisk, metrics: Metrics, count: int = 2500) -> Store:
    """A running store whose oldest files have not been touched for over a minute."""
    clock = ManualClock()
    store = open_store(disk, clock=clock, metrics=metrics, segment_bytes=1 << 16)
    store.create_topic("t", 1)
    for first in range(0, count, 100):
        append(store, *[b"body %04d" % number for number in range(first, first + 100)])
        store.flush()
        store.checkpoint()
    clock.advance(11)
    for _ in range(70):
        store.checkpoint()
    return store


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_flipped_bit_in_an_old_file_of_a_running_store_costs_one_record(seed: int) -> None:
    """Anywhere in a full log file or a full block of units: found, counted, never a wrong body."""
    random, disk, metrics = Random(seed), SimDisk(), Metrics()
    store = aged(disk, metrics)
    if random.random() < 0.5:
        name = random.choice(disk.list(f"{ROOT}/commitlog")[:5])
        path, size, counter, most = f"{ROOT}/commitlog/{name}", 1 << 16, DAMAGED, 1
    else:
        name = random.choice(disk.list(f"{ROOT}/consumequeue/t/0")[: 2 * BLOCK_UNITS // 8])
        path, size, counter, most = f"{ROOT}/consumequeue/t/0/{name}", 160, UNITS_REPAIRED, 0
    at = random.randrange(size)
    used = disk.open(path).read(max(at - 300, 0), 600).strip(b"\x00")
    disk.flip_bit(path, at, random.randrange(8))
    found = bodies(store)
    wrong = {offset for offset, body in found.items() if body != b"body %04d" % offset}
    assert all(found[offset] is None for offset in wrong)
    assert len(wrong) <= most
    assert metrics.value(counter) == len(wrong) + (counter == UNITS_REPAIRED) or not used
    assert len(found) == 2500


def test_sum_is_compared_by_the_quick_way_too() -> None:
    """`locate`, which replies are made with, meets the damage as `read` does."""
    disk, metrics = SimDisk(), Metrics()
    store = aged(disk, metrics)
    units = store.topics["t"].queues[0].read(0, 3)
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", units[1][0] + 90)
    places = [(physical, size) for physical, size, _ in units]
    assert len(store.locate([places[0], places[2]])) == 2
    with pytest.raises(Exception, match="checksum is wrong"):
        store.locate(places)


def test_queue_file_deleted_beneath_a_running_store_costs_nothing() -> None:
    """Units are rebuilt from the log."""
    disk, metrics = SimDisk(), Metrics()
    store = aged(disk, metrics)
    for queue in store.topics["t"].queues:
        queue.close()
    disk.remove(f"{ROOT}/consumequeue/t/0/{160 * 20:020d}")
    assert bodies(store) == {number: b"body %04d" % number for number in range(2500)}
    assert metrics.value(UNITS_REPAIRED) == 8


@settings(max_examples=50, deadline=None)
@given(
    start=st.integers(0, 3 * BLOCK_UNITS),
    steps=st.lists(st.integers(1, 2 * BLOCK_UNITS), min_size=1, max_size=6),
    flip=st.integers(0, 10**9),
)
def test_block_sums_agree_with_what_was_written_in_any_steps(start: int, steps: list[int], flip: int) -> None:
    """However the units were written, a changed bit in a whole block that has a sum is seen; other blocks are told."""
    sums, fresh = UnitSums(), UnitSums()
    for each in (sums, fresh):
        each.start_at(start)
    content = bytearray(start * 20)
    random = Random(7)
    for step in steps:
        data = random.randbytes(step * 20)
        for each in (sums, fresh):
            each.add(data, minimum=0)
        content += data

    def read(first: int, end: int) -> bytes:
        return bytes(content[first * 20 : end * 20])

    end = len(content) // 20
    begun = -(-start // BLOCK_UNITS) * BLOCK_UNITS
    if begun < end:
        assert sums.right(begun, end, read)
    whole = range(begun, end // BLOCK_UNITS * BLOCK_UNITS)
    if whole:
        place = whole[flip % len(whole)]
        content[place * 20 + 3] ^= 4
        assert not fresh.right(place, place + 1, read)
