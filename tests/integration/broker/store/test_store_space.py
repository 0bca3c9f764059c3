"""Space for the log: files claimed before they are needed, and one that only the broker's own records may use (D5)."""

from __future__ import annotations

import pytest

from broker.errors import DiskFull
from broker.log.put import Put
from broker.queues.topics import dead_letter_topic
from broker.runtime.metrics import Metrics
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from broker.transaction.names import HALF_TOPIC
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store, until_full

BODY = bytes(800)
LETTERS = dead_letter_topic("g")
SPARE = f"{ROOT}/pyddmq/segment.spare"


def full_store(disk: SimDisk, metrics: Metrics | None = None) -> Store:
    """A store whose disk has no byte left, its last claimed file filled up with publishes."""
    store = open_store(disk, metrics=metrics)
    store.create_topic("t", 1)
    store.create_topic(LETTERS, 1, system=True)
    append(store, BODY)
    store.flush()
    disk.capacity_bytes = 0
    until_full(store, BODY)
    return store


def test_full_disk_takes_dead_letters_and_refuses_publishes() -> None:
    """The file set aside is for the broker's own records alone; both are taken again when there is space."""
    disk, metrics = SimDisk(), Metrics()
    store = full_store(disk, metrics)
    taken = len(bodies(store))
    assert metrics.value("pyddmq_store_reserve_bytes") == 4096
    append(store, BODY, topic=LETTERS)
    store.flush()
    assert metrics.value("pyddmq_store_reserve_bytes") == 0
    assert metrics.value("pyddmq_store_reserve_used_total") == 1
    # There is room in the log's last file, and it is not for publishes.
    with pytest.raises(DiskFull):
        append(store, b"small")
    assert until_full(store, BODY, LETTERS) == 3
    assert (len(bodies(store)), len(bodies(store, LETTERS))) == (taken, 4)
    disk.capacity_bytes = None
    append(store, b"small")
    store.flush()
    assert metrics.value("pyddmq_store_reserve_bytes") == 4096
    assert store.failed is None


def test_reserve_is_filled_up_before_a_publish_gets_space() -> None:
    """With room for one file, that becomes the reserve; the rest of the lent file is then free for publishes."""
    disk, metrics = SimDisk(), Metrics()
    store = full_store(disk, metrics)
    append(store, BODY, topic=LETTERS)
    store.flush()
    disk.capacity_bytes = disk.total_bytes(ROOT) + 4096
    store.checkpoint()
    assert metrics.value("pyddmq_store_reserve_bytes") == 4096
    assert until_full(store, BODY) == 3
    assert until_full(store, BODY, LETTERS) == 4


def test_reserve_survives_a_restart() -> None:
    """The file set aside is found again, on a disk that is still full."""
    disk, metrics = SimDisk(), Metrics()
    full_store(disk)
    disk.kill()
    store = open_store(disk, metrics=metrics)
    assert metrics.value("pyddmq_store_reserve_bytes") == 4096
    append(store, BODY, topic=LETTERS)
    store.flush()
    assert len(bodies(store, LETTERS)) == 1
    disk.kill()
    assert len(bodies(open_store(disk), LETTERS)) == 1


@pytest.mark.parametrize("kind", ["level", "timer", "half"])
def test_messages_that_wait_do_not_use_the_reserve(kind: str) -> None:
    """They are publishes, though they lie in a topic of the broker's own."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    half_topic = store.create_topic(HALF_TOPIC, 1, system=True)
    plain = Put(store.topics["t"], 0, BODY, b"")

    waits = {
        "level": store.waiting(DelayedPuts).put(plain, 3),
        "timer": store.waiting(TimedPuts).put(plain, ManualClock().wall_ms() + 60_000),
        "half": plain._replace(topic=half_topic),
    }[kind]
    disk.capacity_bytes = 0
    until_full(store, BODY)
    with pytest.raises(DiskFull):
        store.append([waits], born_ms=0, born_host=bytes(8))
    assert disk.exists(SPARE)


def test_disk_too_small_for_a_reserve_still_takes_publishes() -> None:
    """Without room for two files nothing is set aside; that is said, and the disk is used to its end."""
    disk, metrics = SimDisk(), Metrics()
    open_store(disk).close()
    disk.remove(SPARE)
    disk.capacity_bytes = 4096 + sum(disk.open(f"{ROOT}/{name}").size() for name in ("checkpoint", "lock")) + 3000
    store = open_store(disk, metrics=metrics)
    store.create_topic("t", 1)
    assert metrics.value("pyddmq_store_reserve_bytes") == 0
    assert not disk.exists(SPARE)
    assert until_full(store, BODY) == 4
    disk.capacity_bytes = None
    store.checkpoint()
    assert metrics.value("pyddmq_store_reserve_bytes") == 4096


def test_roll_claims_no_file_inline() -> None:
    """In steady state the file after the present one is there before it is needed: no append makes one."""
    disk, clock = SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    append(store, BODY)
    store.flush()
    for _ in range(40):
        clock.advance(1)
        store.checkpoint()
        files = disk.list(f"{ROOT}/commitlog")
        before = disk.operations
        append(store, BODY)
        assert disk.operations == before
        assert disk.list(f"{ROOT}/commitlog") == files
        store.flush()
    assert len(disk.list(f"{ROOT}/commitlog")) > 8
