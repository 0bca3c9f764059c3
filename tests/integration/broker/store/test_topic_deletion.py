"""Deleted topics: nothing of an earlier life is ever shown under the name again, whatever stops the store (D11)."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import DiskFull, StoreFailed
from broker.query import Listing
from broker.runtime.metrics import Metrics
from broker.runtime.store_metrics import UNITS_LOST, UNITS_REPAIRED
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from pyddmq.testing import ManualClock, ManualScheduler, PowerCut, SimDisk, SimSyncs
from tests.integration.store_tools import ROOT, append, bodies, open_store
from tests.integration.waiting_tools import drive, flush_in_background

SIZES: dict[str, Any] = {"segment_bytes": 4096, "queue_file_units": 8}


def filled(disk: SimDisk, *, topic: str = "t", queues: int = 2, count: int = 20) -> Store:
    """A store with one topic of `count` messages."""
    store = open_store(disk, **SIZES)
    store.create_topic(topic, queues)
    for number in range(count):
        append(store, b"old %d" % number, topic=topic, queue_id=number % queues)
        store.flush()
    return store


def behind(end: int) -> int:
    """First offset of the first queue file that begins at `end` or behind it."""
    units = int(SIZES["queue_file_units"])
    return -(-end // units) * units


def beside(store: Store, disk: SimDisk, random: Random) -> ManualScheduler:
    """Have a store make its syncs, and those of its state files, beside the loop."""
    scheduler = ManualScheduler(ManualClock())
    flush_in_background(store, SimSyncs(disk, scheduler, random), scheduler)
    store.file_writes.syncs = SimSyncs(disk, scheduler, random)
    return scheduler


def files(disk: SimDisk, topic: str = "t", queue_id: int = 0) -> list[str]:
    """Names of a queue's files."""
    return disk.list(f"{ROOT}/consumequeue/{topic}/{queue_id}")


def test_listing_of_a_topic_that_is_deleted_meanwhile_ends() -> None:
    """Its units are no damage that is looked for in all of the log, and mended in files of the queue."""
    disk = SimDisk()
    filled(disk, queues=1, count=100).close()
    metrics = Metrics()
    store = open_store(disk, metrics=metrics, **SIZES)
    listing = Listing(store, "t", limit=1000)
    steps = listing.steps()
    for _ in range(2):
        next(steps)
    store.topic_changes.delete("t")
    assert list(steps) == []
    assert listing.cursor is None
    assert len(listing.found) == 64
    assert [metrics.value(name) for name in (UNITS_REPAIRED, UNITS_LOST)] == [0, 0]
    assert files(disk) == []


@pytest.mark.parametrize("how", ["running", "close", "kill", "no checkpoint"])
def test_deleted_topic_stays_deleted_and_comes_back_empty(how: str) -> None:
    """Also when the whole log, which still has its records, is scanned; offsets go on in the queue's next file."""
    disk = SimDisk()
    store = filled(disk)
    store.close()
    store = open_store(disk, **SIZES)
    assert files(disk)
    store.topic_changes.delete("t")
    assert "t" not in store.topics
    assert not files(disk)
    for _ in range(2):
        if how == "close":
            store.close()
        elif how != "running":
            disk.kill()
        if how == "no checkpoint":
            disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
        if how != "running":
            store = open_store(disk, **SIZES)
        assert "t" not in store.topics
    store.create_topic("t", 3)
    assert [(queue.min_offset, queue.max_offset) for queue in store.topics["t"].queues] == [(16, 16), (16, 16), (0, 0)]
    assert [append(store, b"new", queue_id=queue)[0].offset for queue in range(3)] == [16, 16, 0]
    store.flush()
    for end in ("kill", "close", "no checkpoint"):
        if end == "close":
            store.close()
        else:
            disk.kill()
        if end == "no checkpoint":
            disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
        store = open_store(disk, **SIZES)
        assert [bodies(store, queue_id=queue) for queue in range(3)] == [{16: b"new"}, {16: b"new"}, {0: b"new"}]
        assert (store.recovery.duplicates, store.recovery.fillers) == (0, 0)
    seen = ReadOnlyStore.open(ROOT, disk=disk, clock=ManualClock())
    assert seen.topics["t"].queues[0].max_offset == 17


def test_later_lives_never_repeat_an_offset() -> None:
    """Deleted twice, the second time with fewer queues: each queue goes on behind all of its lives."""
    disk = SimDisk()
    store = filled(disk, queues=3, count=30)
    store.topic_changes.delete("t")
    store.create_topic("t", 1)
    append(store, b"second")
    store.topic_changes.delete("t")
    topic = store.create_topic("t", 4)
    assert [queue.min_offset for queue in topic.queues] == [24, 16, 16, 0]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_deletion_does_not_take_a_log_that_could_not_be_made_durable_for_a_full_disk(error: int) -> None:
    """The next sync would succeed without what this one lost."""
    disk = SimDisk()
    store = open_store(disk, flush="async", **SIZES)
    store.create_topic("t", 1)
    append(store, b"x")
    store.flush()
    disk.fail("sync", error=error, path_part="/commitlog/")
    with pytest.raises(StoreFailed):
        store.topic_changes.delete("t")
    assert store.failed is not None


def test_other_topics_are_not_touched() -> None:
    """Their records, units and offsets are what they were, after a rebuild too."""
    disk = SimDisk()
    store = filled(disk)
    store.create_topic("u", 1)
    append(store, b"keep", topic="u")
    store.topic_changes.delete("t")
    disk.kill()
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    assert bodies(open_store(disk, **SIZES), "u") == {0: b"keep"}


def test_unknown_topic_is_an_error() -> None:
    """Nothing is written."""
    disk = SimDisk()
    store = filled(disk)
    before = disk.operations
    with pytest.raises(KeyError):
        store.topic_changes.delete("nowhere")
    assert disk.operations == before


def test_staged_messages_are_settled_before() -> None:
    """Their publishers hear that they are stored; then the topic goes with them."""
    disk = SimDisk()
    store = filled(disk)
    reported: list[object] = []
    append(store, b"staged", done=reported.append)
    store.topic_changes.delete("t")
    assert reported == [None]
    assert store.create_topic("t", 1).queues[0].min_offset == 16


def test_full_disk_refuses_and_changes_nothing() -> None:
    """The note comes first; without room for it the topic is what it was."""
    disk, metrics = SimDisk(), Metrics()
    filled(disk).close()
    store = open_store(disk, metrics=metrics, **SIZES)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFull):
        store.topic_changes.delete("t")
    assert len(bodies(store)) == 10
    assert metrics.value("pyddmq_store_refused_total", "disk_full") == 1
    assert store.failed is None


def test_loop_goes_on_while_a_topic_goes() -> None:
    """Nothing is synced in the turn that takes it out; others publish, and a checkpoint waits for its turn."""
    disk = SimDisk()
    store = filled(disk)
    store.create_topic("u", 1)
    scheduler = beside(store, disk, Random(1))
    disk.fail("sync")
    disk.fail("sync_folder")
    steps = store.topic_changes.deleting("t")
    awaited = next(steps)
    assert awaited is not None
    assert (store.failed, "t" in store.topics) == (None, False)
    disk.heal()
    append(store, b"other", topic="u")
    store.checkpoint()
    drive(steps, scheduler)
    scheduler.advance(5)
    assert bodies(store, "u") == {0: b"other"}
    disk.kill()
    store = open_store(disk, **SIZES)
    assert ("t" in store.topics, bodies(store, "u")) == (False, {0: b"other"})


def test_topic_that_is_made_while_it_goes_is_a_new_one() -> None:
    """Whoever makes it waits for the deletion: offsets go on, and no message shows that is on its way."""
    disk = SimDisk()
    store = filled(disk)
    scheduler = beside(store, disk, Random(1))
    steps = store.topic_changes.deleting("t")
    next(steps)
    topic = store.create_topic("t", 2)
    assert [queue.min_offset for queue in topic.queues] == [16, 16]
    append(store, b"new")
    drive(steps, scheduler)
    scheduler.advance(5)
    for _ in range(2):
        assert [bodies(store, queue_id=queue) for queue in range(2)] == [{16: b"new"}, {}]
        disk.kill()
        disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
        store = open_store(disk, **SIZES)


@pytest.mark.parametrize("refused", [False, True])
def test_message_on_its_way_is_told_before_its_topic_goes(refused: bool) -> None:
    """A publish that came before is stored, and counted; what says no in the last step ends it."""
    disk = SimDisk()
    store = filled(disk)
    scheduler = beside(store, disk, Random(1))
    reported: list[object] = []
    append(store, b"staged", done=reported.append)
    scheduler.run_until_idle()
    seen: list[int] = []

    def last_look() -> None:
        seen.append(store.topics["t"].queues[0].max_offset)
        if refused:
            raise ValueError("no")

    steps = store.topic_changes.deleting("t", before=last_look)
    if refused:
        with pytest.raises(ValueError, match="no"):
            drive(steps, scheduler)
    else:
        drive(steps, scheduler)
    assert (reported, seen, "t" in store.topics) == ([None], [11], refused)


def test_topic_that_is_published_to_all_the_time_goes_all_the_same() -> None:
    """After a few waits the loop waits for the disk once."""
    disk = SimDisk()
    store = filled(disk)
    scheduler = beside(store, disk, Random(1))

    def again(error: object) -> None:
        if "t" in store.topics:
            append(store, b"more", done=again if len(reported) < 12 else reported.append)
        reported.append(error)

    reported: list[object] = []
    append(store, b"more", done=again)
    drive(store.topic_changes.deleting("t"), scheduler)
    assert "t" not in store.topics
    assert reported == [None] * 14
    assert store.create_topic("t", 1).queues[0].min_offset == behind(10 + len(reported))


def test_failed_disk_fails_the_store() -> None:
    """After an error of the disk nothing is written any more."""
    disk = SimDisk()
    store = filled(disk)
    disk.fail("write", path_part="topic_lives")
    with pytest.raises(StoreFailed):
        store.topic_changes.delete("t")
    with pytest.raises(StoreFailed):
        store.create_topic("u", 1)


def test_log_cut_by_recovery_belongs_to_the_present_life() -> None:
    """Records appended where a lost tail was are not taken for those of the deleted topic."""
    disk = SimDisk()
    store = filled(disk, count=6)
    end = store.end
    store.topic_changes.delete("t")
    disk.kill()
    disk.open(f"{ROOT}/commitlog/{0:020d}").write(end - 100, [bytes(100)])
    store = open_store(disk, **SIZES)
    assert store.recovery.truncated_to is not None
    store.create_topic("t", 2)
    append(store, b"new")
    store.flush()
    disk.kill()
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    assert bodies(open_store(disk, **SIZES)) == {8: b"new"}


@settings(max_examples=75, deadline=None)
@given(seed=st.integers(0, 2**32), stop=st.integers(0, 60), power=st.booleans(), is_beside=st.booleans())
def test_stop_at_any_change_leaves_one_life_or_the_other(seed: int, stop: int, power: bool, is_beside: bool) -> None:
    """Delete, make again, write: wherever that stops, and again at the next opening, no old message shows as new."""
    random, disk = Random(seed), SimDisk()
    store = filled(disk)
    if random.random() < 0.5:
        store.close()
        store = open_store(disk, **SIZES)
    old = [bodies(store, queue_id=queue) for queue in range(2)]
    scheduler = beside(store, disk, random) if is_beside else ManualScheduler(ManualClock())
    disk.stop_after(stop)
    reported = 0
    try:
        drive(store.topic_changes.deleting("t"), scheduler)
        reported = 1
        store.create_topic("t", 2)
        reported = 2
        append(store, b"new")
        store.flush()
        reported = 3
        store.close()
    except PowerCut:
        pass
    for again in range(2):
        if power:
            disk.crash(random)
        else:
            disk.kill()
        if random.random() < 0.3 and disk.exists(f"{ROOT}/pyddmq/checkpoint.json"):
            disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
        if not again:
            disk.stop_after(random.randrange(40))
        try:
            store = open_store(disk, **SIZES)
            store.close()
        except PowerCut:
            pass
    disk.kill()
    store = open_store(disk, **SIZES)
    if "t" not in store.topics:
        assert reported < 2
        store.create_topic("t", 2)
    found = [bodies(store, queue_id=queue) for queue in range(2)]
    if found == old:
        assert reported == 0
    else:
        assert found[0] in ([{16: b"new"}] if reported == 3 else [{}, {16: b"new"}])
        assert found[1] == {}
        assert append(store, b"newer", queue_id=1)[0].offset == 16


def test_topic_that_somebody_else_makes_again_is_taken_up() -> None:
    """RocketMQ's tools may put the name back into topics.json: then it is there, and goes on where it ended."""
    disk = SimDisk()
    store = filled(disk)
    store.topic_changes.delete("t")
    store.create_topic("u", 1)
    store.close()
    path = f"{ROOT}/config/topics.json"
    file = disk.open(path)
    text = file.read(0, file.size()).replace(b'"u"', b'"t"')
    file.truncate(0)
    file.write(0, [text])
    store = open_store(disk, **SIZES)
    assert [queue.min_offset for queue in store.topics["t"].queues] == [16]
    append(store, b"new")
    store.close()
    assert bodies(open_store(disk, **SIZES)) == {16: b"new"}
