"""A disk without a free byte: what is set aside makes the room with which an old log file may go, and comes back."""

from __future__ import annotations

from random import Random

import pytest

from broker.errors import DiskFull
from broker.queues.topics import dead_letter_topic
from broker.retention import RetentionLimits
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store, until_full

SEGMENT_BYTES = 4096
BODY = bytes(800)
LETTERS = dead_letter_topic("g")
SPARE = f"{ROOT}/pyddmq/segment.spare"
RESERVE = "pyddmq_store_reserve_bytes"
WRITTEN = "pyddmq_store_checkpoints_total"
HOUR_MS = 3_600_000


def full(disk: SimDisk, clock: ManualClock, metrics: Metrics | None = None) -> Store:
    """A store that filled its disk up before a second checkpoint, hours ago: every file but the last is due."""
    store = open_store(disk, clock=clock, metrics=metrics)
    store.create_topic("t", 1)
    store.create_topic(LETTERS, 1, system=True)
    disk.capacity_bytes = disk.total_bytes(ROOT) - disk.free_bytes(ROOT) + 3 * SEGMENT_BYTES
    store.retention.limits = RetentionLimits(age_ms=HOUR_MS)
    until_full(store, BODY)
    disk.capacity_bytes = 0
    clock.advance(2 * HOUR_MS / 1000)
    return store


def second(store: Store, clock: ManualClock) -> None:
    """One of the node's seconds."""
    clock.advance(1)
    store.checkpoint()
    store.retention.step()


def starts(disk: SimDisk) -> list[int]:
    """First commit-log offsets of the log's files."""
    return [int(name) for name in disk.list(f"{ROOT}/commitlog")]


def test_full_disk_gets_room_from_an_old_file() -> None:
    """The spare file is given back, the checkpoint written, the old files go, and the spare file is set aside anew."""
    disk, clock, metrics = SimDisk(), ManualClock(), Metrics()
    store = full(disk, clock, metrics)
    # The disk is as full as it is, and nobody else will free some of it.
    disk.capacity_bytes = disk.total_bytes(ROOT)
    assert metrics.value(RESERVE) == SEGMENT_BYTES
    before = starts(disk)
    store.checkpoint()
    for _ in range(12):
        second(store, clock)
    assert starts(disk)[0] == before[-1]
    assert store.min_offset == before[-1]
    assert metrics.value(RESERVE) == SEGMENT_BYTES
    assert disk.open(SPARE).size() == SEGMENT_BYTES
    append(store, BODY)
    store.flush()
    assert store.failed is None


def test_publishes_get_nothing_of_what_is_given_back() -> None:
    """It is for the checkpoint, and for dead letters that are written meanwhile."""
    disk, clock, metrics = SimDisk(), ManualClock(), Metrics()
    store = full(disk, clock, metrics)
    disk.capacity_bytes = disk.total_bytes(ROOT)
    count = len(bodies(store))
    store.checkpoint()
    store.retention.step()
    assert metrics.value(RESERVE) == 0
    assert disk.open(SPARE).size() == 0
    with pytest.raises(DiskFull):
        append(store, BODY)
    assert len(bodies(store)) == count
    # Nor does the refusal set it aside anew, which would leave no room again.
    assert metrics.value(RESERVE) == 0
    append(store, BODY, topic=LETTERS)
    store.flush()
    assert len(bodies(store, LETTERS)) == 1
    assert store.failed is None


def test_nothing_is_given_back_for_what_is_not_due() -> None:
    """A full disk alone takes nothing from the dead letters."""
    disk, clock, metrics = SimDisk(), ManualClock(), Metrics()
    store = full(disk, clock, metrics)
    store.retention.limits = RetentionLimits(age_ms=100 * HOUR_MS)
    for _ in range(20):
        second(store, clock)
    assert metrics.value(RESERVE) == SEGMENT_BYTES
    assert len(starts(disk)) > 2


def test_stop_at_every_change_leaves_a_store_that_goes_on() -> None:
    """By a kill and by a power loss, between giving back and setting aside anew: old files go, and no message else."""
    changes = 0
    while changes < 1000:
        for power in (False, True):
            disk, clock = SimDisk(), ManualClock()
            store = full(disk, clock)
            disk.capacity_bytes = disk.total_bytes(ROOT)
            queue, last = store.topics["t"].queues[0], starts(disk)[-1]
            kept = {offset for offset in bodies(store) if queue.read(offset, 1)[0][0] >= last}
            disk.stop_after(changes)
            try:
                for _ in range(6):
                    second(store, clock)
                ended = True
            except PowerCut:
                ended = False
            if power:
                disk.crash(Random(changes))
            else:
                disk.kill()
            metrics = Metrics()
            store = open_store(disk, clock=clock, metrics=metrics)
            store.retention.limits = RetentionLimits(age_ms=HOUR_MS)
            for _ in range(12):
                second(store, clock)
            assert store.failed is None
            assert kept <= {offset for offset, body in bodies(store).items() if body == BODY}
            assert len(starts(disk)) <= 2
            assert metrics.value(RESERVE) == SEGMENT_BYTES
        if ended:
            return
        changes += 1
    raise AssertionError("it never ends")
