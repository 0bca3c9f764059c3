"""The node's part in building the index: when the loop does it."""

from __future__ import annotations

from broker.testing import ManualClock, ManualScheduler, SimDisk
from proxy.index_work import BUSY_SECONDS, IndexWork
from tests.integration.store_tools import append, open_store


def test_index_is_built_in_idle_turns_and_then_nothing_is_scheduled() -> None:
    """After a wake all is indexed in pieces; with nothing left no timer stays."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = open_store(SimDisk(), clock=clock, segment_bytes=1 << 20, index_entries=4096)
    store.create_topic("t", 1)
    for _ in range(100):
        append(store, *[b"x"] * 10)
        store.flush()
    work = IndexWork(store.index, scheduler=scheduler, turns=lambda: 1)
    work.wake()
    work.wake()
    assert store.index.position == 0
    scheduler.advance(BUSY_SECONDS)
    assert 0 < store.index.position < store.end
    scheduler.advance(1)
    assert store.index.position == store.end
    assert scheduler.next_due() is None
    append(store, b"one more")
    store.flush()
    work.wake()
    work.stop()
    scheduler.advance(1)
    assert store.index.position < store.end


def test_busy_loop_gets_small_pieces_far_apart() -> None:
    """While turns go on, no more than 64 records in 50 ms."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = open_store(SimDisk(), clock=clock, segment_bytes=1 << 20, index_entries=4096)
    store.create_topic("t", 1)
    for _ in range(100):
        append(store, *[b"x"] * 10)
        store.flush()
    turn = iter(range(1_000_000))
    work = IndexWork(store.index, scheduler=scheduler, turns=lambda: next(turn))
    work.wake()
    scheduler.advance(0.5)
    size = store.topics["t"].queues[0].read(0, 1)[0][1]
    assert store.index.position == 10 * 64 * size
