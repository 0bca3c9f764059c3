"""What consumers inside the program learn from a long log at their opening: in steps, and once."""

from __future__ import annotations

from typing import Any

import pytest

from broker.consumer import ConsumerOptions, Consumers
from broker.consumer.concurrent import ConcurrentContext, ConcurrentStatus
from broker.log.decisions import STEP_RECORDS, prepared_offset_of
from broker.log.put import Put
from broker.log.shared_walk import together
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import HOST, append, open_store

COUNT = STEP_RECORDS
RETRIES = "%RETRY%g"


class Walked:
    """A store whose log counts how often it is walked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.starts: list[int] = []

    def decisions(self, start: int) -> Any:
        """As `Store.decisions`."""
        self.starts.append(start)
        return self._store.decisions(start)


def consumers(store: Store, disk: SimDisk) -> Consumers:
    """The consumers of a store, not opened yet."""
    clock = ManualClock()
    return Consumers(store, disk=disk, clock=clock, scheduler=ManualScheduler(clock), metrics=Metrics())


@pytest.fixture
def disk() -> SimDisk:
    """A store with a long history of messages that group g sent back, and no committed offset of it."""
    disk = SimDisk()
    store = open_store(disk, segment_bytes=1 << 20, queue_file_units=COUNT)
    store.create_topic("t", 1)
    topic = store.create_topic(RETRIES, 1, system=True)
    for start in range(0, COUNT, 512):
        failed = append(store, *(b"%d" % number for number in range(start, start + 512)))
        puts = [Put(topic, 0, b"again", b"", prepared_offset=prepared_offset_of(each.physical)) for each in failed]
        store.append(puts, born_ms=0, born_host=HOST)
        store.flush()
    store.close()
    return disk


def reopened(disk: SimDisk) -> Store:
    """Open the store."""
    return open_store(disk, segment_bytes=1 << 20, queue_file_units=COUNT)


def test_a_long_history_is_read_in_steps(disk: SimDisk) -> None:
    """Other work has its turn between two of them, and all that was sent back is known at the end."""
    store = reopened(disk)
    opened = consumers(store, disk)
    steps = sum(1 for _ in opened.opening())
    assert steps >= 2 * COUNT // STEP_RECORDS
    assert all(opened.shared.finished.has(("g", "t", 0), offset) for offset in range(COUNT))
    assert not opened.shared.finished.has(("g", "t", 0), COUNT)
    store.abandon()


@pytest.mark.parametrize("lost", [False, True], ids=["checkpoint", "no checkpoint"])
def test_a_group_without_committed_offsets_costs_one_walk(disk: SimDisk, *, lost: bool) -> None:
    """At the opening, not once more when its consumer starts, and not at the next opening when that is saved."""
    store = reopened(disk)
    first = consumers(store, disk)
    if not lost:
        # Its offsets were there when the checkpoint was written, but never in their file.
        first.shared.offsets.set("g", RETRIES, 0, COUNT)
        first.shared.offsets.set("g", "t", 0, COUNT - 5)
        run_now(first.opening())
        first.shared.finished.save()
    opened = consumers(store, disk)
    walked = Walked(store)
    run_now(together(walked, opened.reading()))
    assert walked.starts == [0]
    assert opened.shared.finished.is_known_of("g")
    opened.shared.finished.save()

    again = consumers(store, disk)
    walked = Walked(store)
    run_now(together(walked, again.reading()))
    assert walked.starts == []
    assert again.shared.finished.has(("g", "t", 0), COUNT - 1)
    got: list[str] = []

    def listener(messages: Any, _: ConcurrentContext) -> ConcurrentStatus:
        got.extend(message.topic for message in messages)
        return ConcurrentStatus.SUCCESS

    consumer = again.concurrent("g", {"t": "*"}, listener, options=ConsumerOptions())
    consumer.start()
    assert isinstance(again.shared.scheduler, ManualScheduler)
    again.shared.scheduler.run_until_idle()
    assert set(got) == {RETRIES}
    assert len(got) == COUNT
    store.abandon()
