"""Offsets by time, over a real store on a simulated disk."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.queues.consume_queue import UNIT
from broker.queues.time_search import offset_at
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, append, open_store

BEGIN_MS = 1_700_000_000_000


@settings(max_examples=30, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 3), max_size=60),
    lost=st.sets(st.integers(0, 59), max_size=30),
    asked=st.lists(st.integers(-2, 200), min_size=1, max_size=20),
    reopened=st.booleans(),
)
def test_offset_at_is_the_first_message_at_or_after_the_moment(
    gaps: list[int], lost: set[int], asked: list[int], reopened: bool
) -> None:
    """Whatever messages share a millisecond and whichever records are damaged: the first one that is not older."""
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    store = open_store(disk, clock=clock)
    queue = store.create_topic("t", 1).queues[0]
    times: list[int] = []
    for gap in gaps:
        clock.set_wall_ms(BEGIN_MS + (times[-1] if times else 0) + gap)
        times.append(clock.wall_ms() - BEGIN_MS)
        append(store, b"body %d" % len(times))
        store.flush()
    units = queue.read(0, len(gaps))
    lost = {place for place in lost if place < len(gaps)}
    if reopened:
        store.close()
    for place in lost:
        physical = units[place][0]
        disk.flip_bit(f"{ROOT}/commitlog/{physical // 4096 * 4096:020d}", physical % 4096 + 5)
    if reopened:
        store = open_store(disk, clock=clock)
        queue = store.topics["t"].queues[0]
    for moment in asked:
        kept = [place for place, at in enumerate(times) if at >= moment and place not in lost]
        assert offset_at(store, queue, BEGIN_MS + moment) == (kept[0] if kept else queue.max_offset)


def test_offset_at_reads_a_large_queue_by_halves() -> None:
    """A queue of a hundred thousand messages costs some forty reads, not a hundred thousand."""
    disk, clock = SimDisk(), ManualClock(BEGIN_MS)
    store = open_store(disk, clock=clock, segment_bytes=32 << 20, queue_file_units=100_000)
    queue = store.create_topic("t", 1).queues[0]
    for second in range(1000):
        append(store, *[b""] * 100)
        store.flush()
        clock.set_wall_ms(BEGIN_MS + 1000 * (second + 1))
    reads = 0

    class Counting:
        def read(self, physical: int, size: int) -> memoryview:
            nonlocal reads
            reads += 1
            return store.read(physical, size)

    assert offset_at(Counting(), queue, BEGIN_MS + 700_500) == 70_100
    assert reads < 40


def test_offset_at_of_an_empty_queue_is_its_end() -> None:
    """An empty queue and one of fillers alone have nothing at any time."""
    store = open_store(SimDisk())
    queue = store.create_topic("t", 1).queues[0]
    assert offset_at(store, queue, 0) == 0
    queue.restore(5, UNIT.pack(0, 0x7FFFFFFF, 0))
    assert offset_at(store, queue, 0) == 6
