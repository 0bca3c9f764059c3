"""Which log files go, what a stop at any step leaves, and what is still there afterwards."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import RecordGone
from broker.log.durability import AwaitedSteps
from broker.log.put import Put
from broker.retention import ExpiringSegment, Relocation, RetentionLimits
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import HOST, ROOT, append, bodies, open_store

SEGMENT_BYTES = 4096
BODY = bytes(800)
"""Four records of a segment."""


def filled(disk: SimDisk, clock: ManualClock, *, count: int = 24, metrics: Metrics | None = None) -> Store:
    """A store with a message every ten seconds, in two queues of one topic, covered by a checkpoint."""
    store = open_store(disk, clock=clock, metrics=metrics)
    store.create_topic("t", 2)
    for number in range(count):
        append(store, BODY, queue_id=number % 2)
        store.flush()
        clock.advance(10)
    clock.advance(11)
    store.checkpoint()
    return store


def starts(disk: SimDisk) -> list[int]:
    """First commit-log offsets of the log's files."""
    return [int(name) for name in disk.list(f"{ROOT}/commitlog")]


def run(store: Store) -> None:
    """Let retention do all that is due, with the checkpoints between its steps."""
    while store.retention.step():
        store.checkpoint()
    store.checkpoint()
    store.retention.step()


def test_file_is_looked_at_some_queues_at_a_time() -> None:
    """A store may have them by the thousand, and the loop serves others meanwhile; what is deleted then is left out."""
    disk, clock = SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    topics = [store.create_topic(f"t{number}", 4) for number in range(50)]
    puts = [Put(topic, queue, b"x" * 20, b"") for topic in topics for queue in range(4)]
    store.append(puts, born_ms=0, born_host=HOST)
    store.flush()
    clock.advance(11)
    store.checkpoint()
    store.retention.limits = RetentionLimits(log_bytes=SEGMENT_BYTES)
    steps = store.retention.steps()
    assert next(steps) is None
    store.topic_changes.delete("t10")
    assert sum(1 for _ in steps) >= 200 // 64
    assert not store.damage.left(0)
    assert starts(disk)[0] == SEGMENT_BYTES
    assert [store.topics[name].queues[0].min_offset for name in ("t0", "t49")] == [1, 0]


def test_queue_files_are_deleted_some_queues_at_a_time() -> None:
    """A store may have them by the thousand, most with nothing to delete, and the loop serves others meanwhile."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    for number in range(200):
        store.create_topic(f"t{number}", 1)
    store.retention.limits = RetentionLimits(log_bytes=2 * SEGMENT_BYTES)
    for _ in range(4):
        assert store.retention.step()
    store.retention.limits = RetentionLimits()
    store.checkpoint()
    steps = store.retention.steps()
    assert sum(1 for _ in steps) >= 200 // 64
    assert store.topics["t"].queues[0].min_offset == 8
    assert [int(name) for name in disk.list(f"{ROOT}/consumequeue/t/0")] == [160]


class Hold:
    """A hold that needs some steps per file, and notes what it is told."""

    def __init__(self, steps: int = 0, *, needed: bool = True) -> None:
        self.steps = steps
        self.needed = needed
        self.asked: list[int] = []
        self.gone: list[ExpiringSegment] = []

    def needs(self, expiring: ExpiringSegment) -> bool:
        return self.needed

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        yield from ()
        self.asked.append(expiring.start)
        return Relocation.DONE if self.asked.count(expiring.start) > self.steps else Relocation.MORE

    def dropped(self, expiring: ExpiringSegment) -> None:
        self.gone.append(expiring)


def test_nothing_goes_without_limits() -> None:
    """A store by itself keeps everything."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    clock.advance(1e6)
    assert store.retention.step() is False
    assert len(bodies(store, queue_id=0)) == 12


def test_age_counts_from_the_last_record_of_a_file() -> None:
    """A file goes when its last record is older; the one with the newest records never does."""
    disk, clock, metrics = SimDisk(), ManualClock(), Metrics()
    store = filled(disk, clock, metrics=metrics)
    store.retention.limits = RetentionLimits(age_ms=3_600_000)
    # The first file holds the messages of 0, 10, 20 and 30 s; the clock stands at 251 s.
    clock.advance(3600 - 251 + 29)
    assert store.retention.step() is False
    clock.advance(1)
    assert store.retention.step() is True
    assert store.retention.step() is False
    assert store.min_offset == SEGMENT_BYTES
    assert [queue.min_offset for queue in store.topics["t"].queues] == [2, 2]
    clock.advance(1e6)
    run(store)
    assert len([each for each in starts(disk) if each < store.end]) == 1
    assert metrics.value("pyddmq_retention_files_total", "age") == 5


def test_size_keeps_the_newest_files() -> None:
    """The log's files take no more than the limit; what is read stays what it was."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    before = bodies(store)
    store.retention.limits = RetentionLimits(log_bytes=3 * SEGMENT_BYTES)
    run(store)
    assert store.retention.log_bytes <= 3 * SEGMENT_BYTES
    kept = bodies(store)
    assert kept
    assert kept == {offset: body for offset, body in before.items() if offset >= min(kept)}
    with pytest.raises(RecordGone):
        store.topics["t"].queues[0].read(0, 1)
    with pytest.raises(RecordGone):
        store.read(0, 100)


def test_used_disk_takes_what_nobody_needs_and_only_the_forced_limit_more() -> None:
    """Above diskRatio a needed file stays; above the forced ratio it goes, too."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    hold = Hold(needed=True)
    store.retention.holds.append(hold)
    used = disk.total_bytes(ROOT) - disk.free_bytes(ROOT)
    disk.capacity_bytes = used * 100 // 90
    store.retention.limits = RetentionLimits(disk_ratio=0.8)
    assert store.retention.step() is False
    hold.needed = False
    run(store)
    assert 0 < len(hold.gone) < 6
    assert store.retention.disk_ratio <= 0.8
    gone = len(hold.gone)
    hold.needed = True
    store.retention.limits = RetentionLimits(disk_ratio=0.5, disk_ratio_forced=0.6)
    run(store)
    assert len(hold.gone) > gone
    assert {each.reason for each in hold.gone} == {"disk"}


def test_full_disk_is_no_obstacle_to_retention() -> None:
    """Files go although no checkpoint can be written; queue files follow when there is space again."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock, count=60)
    disk.capacity_bytes = 0
    append(store, b"more")
    store.flush()
    store.retention.limits = RetentionLimits(log_bytes=3 * SEGMENT_BYTES)
    files = disk.list(f"{ROOT}/consumequeue/t/0")
    while store.retention.step():
        store.checkpoint()
    assert store.retention.log_bytes == 3 * SEGMENT_BYTES
    assert disk.list(f"{ROOT}/consumequeue/t/0") == files
    disk.capacity_bytes = None
    store.checkpoint()
    store.retention.step()
    assert len(disk.list(f"{ROOT}/consumequeue/t/0")) < len(files)
    assert store.failed is None


def test_file_waits_for_its_holds() -> None:
    """A file goes when the slowest hold has put everything elsewhere; each is then told what is gone."""
    disk, clock, metrics = SimDisk(), ManualClock(), Metrics()
    store = filled(disk, clock, metrics=metrics)
    slow, quick = Hold(steps=3), Hold()
    store.retention.holds += [slow, quick]
    store.retention.limits = RetentionLimits(log_bytes=6 * SEGMENT_BYTES)
    for _ in range(3):
        assert store.retention.step() is True
        assert store.retention.waiting is not None
        assert store.min_offset == 0
    store.retention.step()
    assert (store.min_offset, store.retention.waiting) == (SEGMENT_BYTES, None)
    assert [each.start for each in quick.gone] == [each.start for each in slow.gone] == [0]
    assert quick.gone[0].minimums == {("t", 0): 2, ("t", 1): 2}
    assert metrics.value("pyddmq_retention_waits_total") == 1


def test_queue_that_lost_all_its_messages_goes_on_where_it_stood() -> None:
    """Offsets never start anew, also when every derived file but one is lost (D11)."""
    for lost in ((), ("pyddmq/checkpoint.json",), ("consumequeue/rare/0/" + f"{0:020d}",)):
        disk, clock = SimDisk(), ManualClock()
        store = open_store(disk, clock=clock)
        store.create_topic("rare", 1)
        append(store, b"a", b"b", b"c", topic="rare")
        store.flush()
        store.close()
        store = filled(disk, clock)
        store.retention.limits = RetentionLimits(log_bytes=3 * SEGMENT_BYTES)
        run(store)
        queue = store.topics["rare"].queues[0]
        assert (queue.min_offset, queue.max_offset) == (3, 3)
        store.close()
        for name in lost:
            disk.remove(f"{ROOT}/{name}")
        store = open_store(disk, clock=clock)
        [position] = append(store, b"d", topic="rare")
        store.flush()
        assert position.offset == 3
        assert bodies(store, "rare") == {3: b"d"}


def test_queue_files_go_with_their_messages_but_never_the_last() -> None:
    """RocketMQ finds a queue's end in its last file and its beginning by the first unit that is kept."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock, count=60)
    store.retention.limits = RetentionLimits(age_ms=1)
    clock.advance(1e6)
    run(store)
    queue = store.topics["t"].queues[0]
    # Units of 20 bytes, 8 to a file: what is left begins with the file that holds the first message kept.
    names = [int(name) // 160 for name in disk.list(f"{ROOT}/consumequeue/t/0")]
    assert names == list(range(queue.min_offset // 8, (queue.max_offset - 1) // 8 + 1))


def test_lost_queue_file_after_retention_skips_nothing() -> None:
    """A unit that is missing is not taken for one of a deleted record: the queues are rebuilt from the log."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock, count=60)
    store.retention.limits = RetentionLimits(log_bytes=8 * SEGMENT_BYTES)
    run(store)
    before = bodies(store)
    store.close()
    disk.remove(f"{ROOT}/consumequeue/t/0/{disk.list(f'{ROOT}/consumequeue/t/0')[0]}")
    assert bodies(open_store(disk, clock=clock)) == before


def test_deletion_that_fails_stops_the_write_side() -> None:
    """EIO while a file is deleted: nothing more is written, reading goes on."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    store.retention.limits = RetentionLimits(log_bytes=SEGMENT_BYTES)
    disk.fail("sync_folder", path_part="commitlog")
    assert store.retention.step() is False
    assert store.failed is not None
    assert store.retention.step() is False
    assert bodies(store)


@given(st.integers(0, 150), st.booleans(), st.integers(0, 1 << 30))
@settings(deadline=None)
def test_stop_at_any_change_leaves_a_store_that_opens(changes: int, power: bool, seed: int) -> None:
    """Killed or cut from power at any step: what is kept is whole, offsets name the same messages, and it goes on."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock, count=40)
    before = [bodies(store, queue_id=number) for number in (0, 1)]
    store.retention.limits = RetentionLimits(log_bytes=4 * SEGMENT_BYTES)
    disk.stop_after(changes)
    try:
        run(store)
        disk.stop_after(1 << 30)
    except PowerCut:
        pass
    if power:
        disk.crash(Random(seed))
    else:
        disk.kill()
    store = open_store(disk, clock=clock)
    assert store.recovery.holes == ()
    for number in (0, 1):
        found = bodies(store, queue_id=number)
        assert found == {offset: body for offset, body in before[number].items() if offset >= min(found)}
    store.retention.limits = RetentionLimits(log_bytes=4 * SEGMENT_BYTES)
    run(store)
    [position] = append(store, b"next")
    store.flush()
    assert position.offset == 20
    assert store.retention.log_bytes <= 4 * SEGMENT_BYTES
    store.close()
    assert bodies(open_store(disk, clock=clock))[20] == b"next"


def test_what_is_left_follows_the_nearest_limit() -> None:
    """Seconds by age, bytes by the log's size, and the part of the nearer limit."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    now = clock.wall_ms()
    assert store.retention.left(0, now) == (None, None, None)
    store.retention.limits = RetentionLimits(age_ms=10_000, log_bytes=100 * SEGMENT_BYTES)
    seconds, room, share = store.retention.left(0, now - 9_500)
    assert (seconds, share) == (0.5, 0.05)
    assert room == 100 * SEGMENT_BYTES - store.retention.log_bytes
    assert store.retention.left(5 * SEGMENT_BYTES + 7, now).bytes == room + 5 * SEGMENT_BYTES


def test_file_that_the_checkpoint_does_not_cover_stays() -> None:
    """Recovery must never have to begin in a file that is gone: only what the checkpoint names as passed may go."""
    disk, clock = SimDisk(), ManualClock()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    for _ in range(12):
        append(store, BODY)
        store.flush()
    store.retention.limits = RetentionLimits(log_bytes=1)
    assert store.retention.step() is False
    clock.advance(11)
    store.checkpoint()
    assert store.retention.step() is True


@pytest.mark.parametrize(
    "limits",
    [
        RetentionLimits(age_ms=3_600_000),
        RetentionLimits(age_ms=120_000),
        RetentionLimits(age_ms=1_000),
        RetentionLimits(log_bytes=3 * SEGMENT_BYTES),
        RetentionLimits(log_bytes=SEGMENT_BYTES, age_ms=200_000),
        RetentionLimits(),
    ],
)
@pytest.mark.parametrize("gap_seconds", [0, 5_000])
def test_what_would_go_is_what_goes(limits: RetentionLimits, gap_seconds: int) -> None:
    """Also where nothing came for long: the last record of a file is old, and the first one behind it is new."""
    disk, clock = SimDisk(), ManualClock()
    store = filled(disk, clock)
    clock.advance(gap_seconds)
    for number in range(3):
        append(store, BODY, queue_id=number % 2)
    store.flush()
    clock.advance(11)
    store.checkpoint()
    end = store.retention.end_under(limits)
    store.retention.limits = limits
    run(store)
    assert store.min_offset == end
