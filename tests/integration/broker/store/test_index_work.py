"""The node's part in building the index: when the loop does it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.index.index import Index
from broker.runtime.bundle import runtime_of
from broker.store import Store
from proxy.node.index_work import (
    BUSY_RECORDS,
    BUSY_SECONDS,
    PIECE_RECORDS,
    SMALL_PIECE_RECORDS,
    TURN_PIECES_MAX,
    IndexWork,
)
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import append, open_store


def opened(disk: SimDisk, clock: ManualClock) -> Store:
    """Open a store of small messages with index files that take some thousand."""
    return open_store(disk, clock=clock, segment_bytes=1 << 20, index_entries=1 << 15)


def store_many(store: Store, count: int) -> None:
    """Append messages in one flush."""
    store.create_topic("t", 1)
    append(store, *[b"x"] * count)
    store.flush()


def built(store: Store) -> int:
    """Number of records that are indexed."""
    size = store.topics["t"].queues[0].read(0, 1)[0][1]
    return store.index.position // size


def test_index_is_built_in_idle_turns_and_then_nothing_is_scheduled() -> None:
    """What a turn does not build follows in pieces; with nothing left no timer stays."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = opened(SimDisk(), clock)
    work = IndexWork(store.index, runtime_of(SimDisk(), clock, scheduler=scheduler), turns=lambda: 1)
    store_many(store, 2000)
    work.stored()
    assert built(store) == TURN_PIECES_MAX * PIECE_RECORDS
    scheduler.advance(2 * BUSY_SECONDS)
    assert built(store) > TURN_PIECES_MAX * PIECE_RECORDS
    scheduler.advance(1)
    assert store.index.position == store.end
    assert scheduler.next_due() is None
    store_many(store, 1)
    work.stored()
    assert store.index.behind
    work.stop()
    scheduler.advance(1)
    assert store.index.behind


def test_index_keeps_up_with_any_rate() -> None:
    """However busy the loop: after each turn less than a piece of what it stored is left to do."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = opened(SimDisk(), clock)
    turn = iter(range(1_000_000))
    work = IndexWork(store.index, runtime_of(SimDisk(), clock, scheduler=scheduler), turns=lambda: next(turn))
    stored = 0
    for count in (1, 30, 127, 128, 300, 5, 500) * 5:
        store_many(store, count)
        work.stored()
        stored += count
        assert stored - built(store) < PIECE_RECORDS // 2
        scheduler.advance(BUSY_SECONDS)
    # Few messages wait for a pause, not for a timer between turns.
    assert store.index.behind == (built(store) < stored)


def test_small_turns_build_small_pieces() -> None:
    """Who waits for a few messages in each turn does not wait for a large piece now and then."""
    clock = ManualClock()
    store = opened(SimDisk(), clock)
    work = IndexWork(store.index, runtime_of(SimDisk(), clock, scheduler=ManualScheduler(clock)), turns=lambda: 1)
    before = 0
    for turn in range(1, 200):
        store_many(store, 5)
        work.stored()
        now = built(store)
        assert now - before <= SMALL_PIECE_RECORDS
        assert 5 * turn - now < SMALL_PIECE_RECORDS
        before = now


def test_what_a_restart_left_shrinks_while_messages_come_in() -> None:
    """A node that is never idle builds more than it stores, in turns and between them, until nothing is left."""
    disk, clock = SimDisk(), ManualClock()
    store = opened(disk, clock)
    store_many(store, 3000)
    disk.kill()
    store = opened(disk, clock)
    scheduler = ManualScheduler(clock)
    turn = iter(range(1_000_000))
    work = IndexWork(store.index, runtime_of(SimDisk(), clock, scheduler=scheduler), turns=lambda: next(turn))
    assert built(store) < 3000
    for _ in range(3000 // 128 + 2):
        store_many(store, 128)
        work.stored()
    assert not store.index.behind


def test_what_a_restart_left_is_built_by_a_busy_loop_that_stores_nothing() -> None:
    """A small piece now and then."""
    disk, clock = SimDisk(), ManualClock()
    store_many(opened(disk, clock), 3000)
    disk.kill()
    store = opened(disk, clock)
    scheduler = ManualScheduler(clock)
    turn = iter(range(1_000_000))
    IndexWork(store.index, runtime_of(SimDisk(), clock, scheduler=scheduler), turns=lambda: next(turn)).stored()
    scheduler.advance(BUSY_SECONDS * 4)
    assert built(store) == BUSY_RECORDS * 4


def test_step_that_fails_shows_once_a_minute_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a step costs the node a line in the log, and the index is built when it is gone."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    store = opened(SimDisk(), clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler)
    work = IndexWork(store.index, runtime, turns=lambda: 1)

    def fail(_: Index, records_max: int = 0) -> bool:
        raise ValueError("of our own")

    with capture_logs() as lines:
        with monkeypatch.context() as broken:
            broken.setattr(Index, "step", fail)
            for _ in range(4):
                store_many(store, 2 * PIECE_RECORDS)
                work.stored()
        runtime.limited_log.flush(everything=True)
    reported = [(line["event"], line["log_level"], line["count"], "exc_info" in line) for line in lines]
    assert reported == [("index_work_failed", "error", 1, True), ("index_work_failed", "error", 3, False)]
    store_many(store, 2 * PIECE_RECORDS)
    work.stored()
    scheduler.advance(1)
    assert not store.index.behind
