"""Progress over a real store: acks outlive kills and power cuts, and whatever is in doubt comes again.

Everything runs on the simulated disk and a clock that stands still. `Node` is a store with its progress; `killed` and
`cut` bring it back after SIGKILL and after a power cut.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.disk import RealDisk
from broker.metrics import Metrics
from broker.options import StoreOptions
from broker.put import Put
from broker.seams import Disk
from broker.store import Store
from broker.testing import ManualClock, ManualScheduler, PowerCut, SimDisk
from upstream import ack_writer, offset_commits, progress, reconcile
from upstream.losses import MESSAGES_EXPIRED
from upstream.progress import Origin, Progress, ProgressFailed, ProgressFull
from upstream.tracker import FailureKind, OffsetTracker

ROOT = "/data"
OFFSETS = f"{ROOT}/config/consumerOffset.json"
ACKS = f"{ROOT}/pyddmq/acks"
TOPIC, GROUP = "orders", "audit"
OPTIONS = StoreOptions(segment_bytes=1 << 16, queue_file_units=1000)


def first() -> int:
    """Start a new group at the first message."""
    return 0


def open_store(
    disk: Disk,
    *,
    root: str = ROOT,
    options: StoreOptions = OPTIONS,
    clock: ManualClock | None = None,
    metrics: Metrics | None = None,
) -> Store:
    """Open a store by itself, as a program does that knows nothing of acks."""
    return Store.open(
        root, options=options, disk=disk, clock=clock or ManualClock(), random=Random(1), metrics=metrics or Metrics()
    )


def append(store: Store, count: int, *, queue_id: int = 0, body: bytes = b"x") -> None:
    """Append messages and make them visible."""
    put = Put(store.topics[TOPIC], queue_id, body, b"")
    store.append([put] * count, born_ms=0, born_host=b"\x7f\0\0\1\0\0\0\0")
    store.flush()


class Node:
    """A store and its progress on one disk."""

    def __init__(
        self,
        disk: Disk,
        *,
        root: str = ROOT,
        options: StoreOptions = OPTIONS,
        segment_bytes: int = 4096,
        ack_flush: Literal["async", "sync"] = "async",
    ) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.metrics = Metrics()
        self.store = open_store(disk, root=root, options=options, clock=self.clock, metrics=self.metrics)
        self.store.create_topic(TOPIC, 2)
        self.progress = Progress.open(
            root,
            store=self.store,
            disk=disk,
            clock=self.clock,
            metrics=self.metrics,
            scheduler=self.scheduler,
            segment_bytes=segment_bytes,
            ack_flush=ack_flush,
        )

    def publish(self, count: int, *, queue_id: int = 0, body: bytes = b"x") -> None:
        """Append messages and make them visible."""
        append(self.store, count, queue_id=queue_id, body=body)

    def tracker(self, queue_id: int = 0, *, start: Callable[[], int] = first) -> OffsetTracker:
        """Return the group's tracker of a queue."""
        return self.progress.tracker(GROUP, TOPIC, queue_id, first_offset=start)

    def ack(self, *offsets: int, queue_id: int = 0) -> None:
        """Finish and flush, as one turn does."""
        self.tracker(queue_id).finish_many(offsets)
        self.progress.flush()

    def close(self) -> None:
        """Stop in an orderly way."""
        self.progress.close()
        self.store.close()


def killed(node: Node, *, ack_flush: Literal["async", "sync"] = "async") -> Node:
    """Kill the process and start it again."""
    assert isinstance(node.disk, SimDisk)
    node.disk.kill()
    return Node(node.disk, ack_flush=ack_flush)


def cut(node: Node, seed: int) -> Node:
    """Cut the power and start again."""
    assert isinstance(node.disk, SimDisk)
    node.disk.crash(Random(seed))
    return Node(node.disk)


def finished(node: Node, queue_id: int = 0, end: int = 200) -> set[int]:
    """All finished offsets below `end`."""
    tracker = node.tracker(queue_id)
    return {offset for offset in range(end) if tracker.is_finished(offset)}


def rewrite_offset(disk: SimDisk, value: int | None, *, queue_id: int = 0) -> None:
    """Change the file behind the node's back, as mqadmin or a restore would; None removes the queue's entry."""
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))
    queues = table["offsetTable"].setdefault(f"{TOPIC}@{GROUP}", {})
    if value is None:
        queues.pop(str(queue_id))
    else:
        queues[str(queue_id)] = value
    text = json.dumps(table).encode()
    file.truncate(0)
    file.write(0, [text])
    file.sync()


def test_acks_out_of_order_survive_a_kill() -> None:
    """What flush returned from is finished after SIGKILL, above the watermark too (promise 2)."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(3, 4, 5, 20)
    node.ack(0)
    node = killed(node)
    assert finished(node) == {0, 3, 4, 5, 20}
    assert node.tracker().watermark == 1


def test_ack_not_flushed_comes_again_after_a_kill() -> None:
    """Before flush nothing is promised."""
    node = Node(SimDisk())
    node.publish(5)
    node.ack(0)
    node.tracker().finish(1)
    assert finished(killed(node)) == {0}


def test_sync_timer_makes_acks_durable_after_100_ms() -> None:
    """Without any other sync an ack survives a power cut 100 ms after its flush (D9)."""
    for seed in range(10):
        node = Node(SimDisk())
        node.publish(50)
        node.ack(0)  # durable, as it declares the tracker
        node.ack(7, 9)
        syncs = node.metrics.value(ack_writer.JOURNAL_SYNCS)
        node.scheduler.advance(ack_writer.SYNC_SECONDS)
        assert node.metrics.value(ack_writer.JOURNAL_SYNCS) == syncs + 1
        assert finished(cut(node, seed)) == {0, 7, 9}


def test_staged_acks_that_no_turn_flushes_are_written_by_the_timer() -> None:
    """An ack staged outside a turn is not left in memory."""
    node = Node(SimDisk())
    node.publish(50)
    node.tracker().finish(8)
    node.scheduler.advance(ack_writer.SYNC_SECONDS)
    assert not node.progress.pending
    assert finished(killed(node)) == {8}


def test_ack_flush_sync_makes_every_flush_durable() -> None:
    """`ackFlush: sync`: what flush returned from survives a power cut at once."""
    for seed in range(10):
        node = Node(SimDisk(), ack_flush="sync")
        node.publish(50)
        node.ack(0)
        node.ack(7, 9)
        assert finished(cut(node, seed)) == {0, 7, 9}


def test_on_pending_is_called_once_between_flushes() -> None:
    """The first staged entry asks for a turn, the others ride along."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(0)
    calls: list[int] = []
    node.progress.on_pending = lambda: calls.append(1)
    node.tracker().finish(1)
    node.tracker(1).finish(1)
    node.progress.fail(node.tracker(), 5, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
    assert calls == [1]
    node.progress.flush()
    node.tracker().finish(2)
    assert calls == [1, 1]


def run_until_power_cut(node: Node, seed: int, flushed: list[set[int]], attempted: list[set[int]]) -> None:
    """Ack at random on two queues, with syncs, commits and failures between; account for what was promised."""
    draw = Random(seed)
    for _ in range(60):
        queue_id = draw.randrange(2)
        offsets = [draw.randrange(100) for _ in range(draw.randrange(1, 6))]
        attempted[queue_id] |= set(offsets)
        node.ack(*offsets, queue_id=queue_id)
        flushed[queue_id] |= set(offsets)
        choice = draw.randrange(12)
        if choice == 0:
            node.progress.commit()
        elif choice == 1:
            node.progress.sync()
        elif choice < 5:
            for count in range(1, 40):  # fills segments, so that new ones begin
                node.progress.fail(node.tracker(), 150, kind=FailureKind.FAIL, count=count, due_wall_ms=5)


@pytest.mark.parametrize("seed", range(3))
def test_kill_at_every_change_of_the_disk_loses_no_flushed_ack(seed: int) -> None:
    """Wherever the process dies: flushed means finished, and nothing is finished that nobody acknowledged.

    Small segments, so that segments begin and end, commits and syncs are all among the places of death.
    """
    deaths = segments = 0
    for changes in range(500):
        disk = SimDisk()
        node = Node(disk)
        node.publish(200)
        node.publish(200, queue_id=1)
        node.tracker(0)
        node.tracker(1)
        node.progress.sync()
        flushed: list[set[int]] = [set(), set()]
        attempted: list[set[int]] = [set(), set()]
        disk.stop_after(changes)
        try:
            run_until_power_cut(node, seed, flushed, attempted)
        except PowerCut:
            deaths += 1
        segments += node.metrics.value(ack_writer.JOURNAL_SEGMENTS)
        again = killed(node)
        for queue_id in (0, 1):
            assert flushed[queue_id] <= finished(again, queue_id) <= attempted[queue_id]
        assert again.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
        if deaths <= changes:  # it came to its end
            break
    assert deaths > 80
    assert segments > 1.5 * deaths


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 120))
def test_power_cut_anywhere_keeps_synced_acks_and_finishes_nothing_else(seed: int, changes: int) -> None:
    """After a power cut, acks of before the last sync hold, and only acknowledged offsets are finished."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(200)
    tracker = node.tracker()
    node.progress.sync()
    draw = Random(seed)
    synced: set[int] = set()
    attempted: set[int] = set()
    disk.stop_after(changes)
    try:
        for _ in range(80):
            offsets = [draw.randrange(200) for _ in range(4)]
            attempted |= set(offsets)
            tracker.finish_many(offsets)
            node.progress.flush()
            choice = draw.randrange(5)
            if choice == 0:
                node.progress.sync()
                synced = set(attempted)
            elif choice == 1:
                node.progress.commit()
                synced = set(attempted)
            elif choice == 2:
                for count in range(1, 100):  # fills segments, so that new ones begin
                    node.progress.fail(tracker, 300, kind=FailureKind.FAIL, count=count, due_wall_ms=5)
    except PowerCut:
        pass
    disk.crash(Random(seed))
    again = Node(disk)
    assert synced <= finished(again) <= attempted
    assert again.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


def test_million_acks_above_one_unfinished_survive_in_a_small_journal() -> None:
    """They cost no more bytes than any others, and none comes again after a kill (D10)."""
    disk = SimDisk()
    node = Node(disk, segment_bytes=1 << 16)
    count = 1_000_000
    before = 0
    sizes = []
    # The store need not hold the topic: only what the acks cost is looked at.
    tracker = node.progress.tracker(GROUP, "elsewhere", 0, first_offset=first)
    for start in range(1, count + 1, 1000):
        tracker.finish_many(range(start, start + 1000))
        node.progress.flush()
        if start % 100_000 == 1:
            written = node.metrics.value(ack_writer.JOURNAL_BYTES)
            sizes.append(written - before)
            before = written
    assert max(sizes[2:]) <= min(sizes[2:]) + 100
    disk.kill()
    node = Node(disk, segment_bytes=1 << 16)
    tracker = node.progress.tracker(GROUP, "elsewhere", 0, first_offset=first)
    assert (tracker.watermark, tracker.ahead, tracker.next_unfinished(0)) == (0, count, 0)
    assert tracker.next_unfinished(1) == count + 1
    assert sum(disk.open(f"{ACKS}/{name}").size() for name in disk.list(ACKS)) <= 3 << 16


def test_new_tracker_starts_where_it_is_told_once_and_for_all() -> None:
    """The first offset is asked for once, and fixed durably with the first flush (D6)."""
    node = Node(SimDisk())
    node.publish(30)
    assert node.tracker(start=lambda: 30).watermark == 30
    node.progress.flush()
    node.publish(10)
    for seed in range(5):
        node = cut(node, seed)
        assert node.tracker(start=lambda: 40).watermark == 30


def test_tracker_of_a_group_known_to_the_file_only_starts_there() -> None:
    """A group that RocketMQ's consumers used goes on where they stopped."""
    node = Node(SimDisk())
    node.publish(30)
    node.ack(*range(12))
    node.close()
    disk = node.disk
    for name in disk.list(ACKS):
        disk.remove(f"{ACKS}/{name}")
    node = Node(disk)
    assert node.tracker().watermark == 12
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


def test_commit_writes_watermarks_only() -> None:
    """consumerOffset.json has the next offset to read (R72), and nothing of what is finished above it."""
    node = Node(SimDisk())
    node.publish(30)
    node.ack(0, 1, 2, 10, 11)
    node.progress.commit()
    file = node.disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 3}}
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1


def test_commit_never_puts_the_file_ahead_of_the_journal() -> None:
    """At every change of the disk while committing: the durable journal holds what the durable file says."""
    for changes in range(30):
        for seed in range(4):
            disk = SimDisk()
            node = Node(disk)
            node.publish(50)
            node.ack(*range(10), 20)
            disk.stop_after(changes)
            try:
                node.progress.commit()
                node.ack(*range(10, 15))
                node.progress.commit()
            except PowerCut:
                pass
            node = cut(node, seed)
            assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
            assert finished(node) in (set(), {*range(10), 20}, {*range(15), 20})


def test_offset_changed_by_others_wins_and_drops_the_acks_above_it() -> None:
    """Mqadmin or a restore moved the offset: the file wins, forward and back (D10)."""
    for value in (2, 12):
        disk = SimDisk()
        node = Node(disk)
        node.publish(50)
        node.ack(*range(5), 20, 21)
        node.progress.fail(node.tracker(), 7, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
        node.close()
        rewrite_offset(disk, value)
        node = Node(disk)
        assert finished(node) == set(range(value))
        assert node.progress.failures(node.tracker()) == {}
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN, GROUP) == 1
        assert node.metrics.value(reconcile.ACKS_DROPPED, GROUP) == 2
        node.ack(30)
        node = killed(node)
        assert finished(node) == {*range(value), 30}
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN, GROUP) == 0


def test_offset_gone_from_the_file_is_written_again() -> None:
    """A missing entry is not a move: what the journal knows stands."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.ack(*range(5), 20)
    node.close()
    rewrite_offset(disk, None)
    node = Node(disk)
    assert finished(node) == {*range(5), 20}
    assert node.metrics.value(reconcile.OFFSETS_MISSING, GROUP) == 1
    node = killed(node)
    assert node.metrics.value(reconcile.OFFSETS_MISSING, GROUP) == 0
    assert finished(node) == {*range(5), 20}


def test_offset_written_before_a_kill_is_known_as_our_own() -> None:
    """Whether or not the journal heard that the file was written, our own value is never taken for foreign."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(*range(5), 20)
    node.progress.commit()
    node = killed(node)
    assert finished(node) == {*range(5), 20}
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


def test_offsets_file_that_cannot_be_written_is_made_up_for_later() -> None:
    """A failed write of consumerOffset.json costs nothing but time, and its values stay known."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(200)
    for offset in range(150):
        node.ack(offset)
        disk.fail("write", path_part="consumerOffset.json")
        node.progress.commit()
        disk.heal()
    assert node.metrics.value(offset_commits.OFFSETS_COMMIT_ERRORS) == 150
    node.ack(180)
    node = killed(node)
    assert finished(node) == {*range(150), 180}
    node.progress.commit()
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1
    node = killed(node)
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
    assert finished(node) == {*range(150), 180}


def lose_tail(disk: SimDisk, *, keep: int) -> None:
    """Let the log end before the record of queue offset `keep`, as a power cut under `flush: async` may."""
    physical = open_store(disk).topics[TOPIC].queues[0].read(keep, 1)[0][0]
    disk.kill()
    name = disk.list(f"{ROOT}/commitlog")[0]
    file = disk.open(f"{ROOT}/commitlog/{name}")
    file.write(physical, [bytes(file.size() - physical)])
    file.sync()
    for queue_file in disk.list(f"{ROOT}/consumequeue/{TOPIC}/0"):
        units = disk.open(f"{ROOT}/consumequeue/{TOPIC}/0/{queue_file}")
        units.write(keep * 20, [bytes(units.size() - keep * 20)])
        units.sync()


def test_offsets_beyond_a_lost_tail_are_clamped_before_the_first_append() -> None:
    """The log lost records that were acknowledged: what is written there next is not taken for finished (D11)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(10), 20, 29, 30, 39)
    node.progress.fail(node.tracker(), 35, kind=FailureKind.ERROR, count=1, due_wall_ms=0)
    node.progress.commit()
    disk.kill()
    lose_tail(disk, keep=30)
    node = Node(disk)
    assert node.store.topics[TOPIC].queues[0].max_offset == 30
    node.publish(10)
    assert finished(node) == {*range(10), 20, 29}
    assert node.progress.failures(node.tracker()) == {}
    node = killed(node)
    assert finished(node) == {*range(10), 20, 29}
    assert node.metrics.value(reconcile.OFFSETS_CLAMPED) == 0


def test_watermark_beyond_a_lost_tail_is_clamped_in_journal_and_file() -> None:
    """Also for a group that has no tracker here."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(40))
    node.close()
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))
    table["offsetTable"][f"{TOPIC}@stranger"] = {"0": 37}
    text = json.dumps(table).encode()
    file.truncate(0)
    file.write(0, [text])
    file.sync()
    disk.kill()
    lose_tail(disk, keep=30)
    node = Node(disk)
    assert node.tracker().watermark == 30
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))["offsetTable"]
    assert table == {f"{TOPIC}@{GROUP}": {"0": 30}, f"{TOPIC}@stranger": {"0": 30}}


def test_acks_of_records_that_were_replaced_behind_our_back_come_again() -> None:
    """The log was cut and written on without this journal: queue offsets there mean other messages now (D11)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(40)
    node.ack(*range(10), 20)
    node.ack(35)
    disk.kill()
    lose_tail(disk, keep=30)
    append(open_store(disk), 20, body=b"other and longer")
    disk.kill()
    node = Node(disk)
    # The fence at 35 does not match, the one at 20 does: what it vouches for holds.
    assert finished(node) == {*range(10), 20}
    assert node.metrics.value(reconcile.ACKS_UNVOUCHED, GROUP) == 1


def test_watermark_below_the_oldest_message_is_moved_up_and_counted() -> None:
    """What retention deleted before the group finished it is counted, not waited for."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(3, 15)
    node.store.topics[TOPIC].queues[0].min_offset = 10
    tracker = node.tracker()
    assert tracker.watermark == 10
    assert tracker.is_finished(15)
    assert node.metrics.value(MESSAGES_EXPIRED, GROUP) == 9


def test_failures_survive_a_kill_with_counts_and_due_times() -> None:
    """Attempts are counted by kind, and a retry waits what is left of its wait (D12, D17)."""
    node = Node(SimDisk())
    node.publish(50)
    tracker = node.tracker()
    node.progress.fail(tracker, 4, kind=FailureKind.FAIL, count=1, due_wall_ms=100)
    node.progress.fail(tracker, 4, kind=FailureKind.FAIL, count=2, due_wall_ms=900)
    node.progress.fail(tracker, 4, kind=FailureKind.TIMEOUT, count=1, due_wall_ms=950)
    node.progress.fail(tracker, 6, kind=FailureKind.ERROR, count=1, due_wall_ms=70)
    node.progress.flush()
    node.ack(6)
    for _ in range(2):  # from entries, and then from a snapshot
        node = killed(node)
        failures = node.progress.failures(node.tracker())
        assert list(failures) == [4]
        assert [failures[4].count(kind) for kind in FailureKind] == [2, 0, 1]
        assert failures[4].due_wall_ms == 950


def test_failure_of_a_finished_offset_is_ignored() -> None:
    """A late fail does not bring a finished message back."""
    node = Node(SimDisk())
    node.publish(5)
    node.ack(3)
    node.progress.fail(node.tracker(), 3, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
    assert not node.progress.pending
    assert node.progress.failures(node.tracker()) == {}


def test_dead_lettered_offset_is_finished_and_its_position_remembered() -> None:
    """The journal entry follows the dead letter; recovery has nothing to look at behind it (D16)."""
    node = Node(SimDisk())
    node.publish(50)
    node.progress.dead_lettered(node.tracker(), 8)
    node.progress.dead_letters_settled(f"%DLQ%{GROUP}", 0, 3)
    node.progress.flush()
    for _ in range(2):
        node = killed(node)
        assert finished(node) == {8}
        assert node.progress.scan_position(f"%DLQ%{GROUP}", 0) == 3
    assert node.progress.scan_position("%DLQ%other", 0) == 0


def test_dead_letters_newer_than_the_journal_finish_their_origins() -> None:
    """The durable record decides, not the entry that the kill prevented; foreign and stale origins are left alone."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(1)
    node = killed(node)
    physical = node.store.topics[TOPIC].queues[0].read(9, 1)[0][0]
    origins = [
        Origin(GROUP, TOPIC, 0, 1),
        Origin(GROUP, TOPIC, 0, 9, physical),
        Origin(GROUP, TOPIC, 0, 10, physical),  # names another record
        Origin(GROUP, TOPIC, 0, 70),  # beyond the log
        Origin("nobody", TOPIC, 0, 5),
    ]
    assert node.progress.mark_dead_lettered_from(f"%DLQ%{GROUP}", 0, 5, origins) == 1
    node.progress.flush()
    assert node.metrics.value(progress.DEAD_LETTERS_RECOVERED, GROUP) == 1
    node = killed(node)
    assert finished(node) == {1, 9}
    assert node.progress.scan_position(f"%DLQ%{GROUP}", 0) == 5


def test_position_beyond_a_dead_letter_queue_that_lost_its_tail_is_clamped() -> None:
    """Dead letters appended after the cut are looked at again."""
    node = Node(SimDisk())
    node.store.create_topic(f"%DLQ%{GROUP}", 1, system=True)
    node.progress.dead_letters_settled(f"%DLQ%{GROUP}", 0, 3)
    node.progress.flush()
    assert killed(node).progress.scan_position(f"%DLQ%{GROUP}", 0) == 0


def test_reset_is_durable_with_its_flush_in_journal_and_file() -> None:
    """An operator's reset forgets acks and failures above it, survives a power cut, and no old entry undoes it."""
    for target in (3, 30):
        for seed in range(5):
            disk = SimDisk()
            node = Node(disk)
            node.publish(50)
            node.ack(*range(10), 20)
            node.progress.fail(node.tracker(), 12, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
            node.progress.commit()
            node.progress.reset(node.tracker(), target)
            node.progress.flush()
            node = cut(node, seed)
            assert finished(node) == set(range(target))
            assert node.progress.failures(node.tracker()) == {}
            assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failed_write_or_sync_refuses_acks_for_good(operation: str) -> None:
    """After an error of the disk no ack is promised any more, and the file is not tried again."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.ack(0)
    node.progress.sync()
    disk.fail(operation, path_part="/acks/")
    node.tracker().finish(1)
    with pytest.raises(ProgressFailed, match="restart"):
        node.progress.sync()
    assert node.progress.failed is not None
    operations = disk.operations
    node.tracker().finish(2)
    for call in (node.progress.flush, node.progress.sync, node.progress.commit):
        with pytest.raises(ProgressFailed):
            call()
    node.scheduler.advance(10)
    node.progress.close()
    assert disk.operations == operations
    assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 1
    assert finished(killed(node)) >= {0}


def test_failed_write_still_makes_earlier_acks_durable() -> None:
    """What was answered before a write failed is not lost with the power later on (D9: 100 ms at the latest)."""
    for seed in range(20):
        disk = SimDisk()
        node = Node(disk)
        node.publish(50)
        node.ack(0)
        node.progress.sync()
        node.ack(4)
        disk.fail("write", path_part="/acks/")
        node.tracker().finish(1)
        with pytest.raises(ProgressFailed):
            node.progress.flush()
        node.scheduler.advance(1)
        assert finished(cut(node, seed)) >= {0, 4}


def test_failed_sync_of_the_timer_is_seen_by_the_next_flush() -> None:
    """The timer raises nothing into the loop; the next turn's replies are refused."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.ack(0)  # durable, as it declares the tracker
    node.ack(4)
    disk.fail("sync", path_part="/acks/")
    node.scheduler.advance(1)
    node.tracker().finish(1)
    with pytest.raises(ProgressFailed):
        node.progress.flush()


def test_full_disk_does_not_stop_acks() -> None:
    """The space of the next segments is set aside, so acks go on however full the disk is (D5)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(200)
    node.ack(0)
    disk.capacity_bytes = 0
    for offset in range(2, 200, 2):
        for _ in range(4):
            node.ack(offset)
            node.progress.fail(node.tracker(), 199, kind=FailureKind.FAIL, count=offset, due_wall_ms=0)
            node.progress.flush()
    assert node.metrics.value(ack_writer.JOURNAL_SEGMENTS) > 3
    assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 0
    node = killed(node)
    assert finished(node) == {0, *range(2, 200, 2)}


def test_full_disk_without_its_reserve_refuses_acks_until_there_is_space() -> None:
    """With the spare gone too, acks are refused, visibly; nothing is lost, and it ends by itself."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(200)
    node.ack(0)
    disk.remove(f"{ACKS}/spare")
    disk.capacity_bytes = 0
    promised = {0}

    def ack_all() -> None:
        for offset in range(2, 200, 2):
            for _ in range(5):
                node.progress.fail(node.tracker(), 199, kind=FailureKind.FAIL, count=offset, due_wall_ms=0)
            node.ack(offset)
            promised.add(offset)

    with pytest.raises(ProgressFull, match="by themselves"):
        ack_all()
    with pytest.raises(ProgressFull):
        node.ack(197)
    assert len(promised) > 10
    disk.capacity_bytes = None
    node.scheduler.advance(1)
    assert node.progress.failed is None
    node.ack(199)
    node = killed(node)
    assert finished(node) >= promised | {197, 199}


def test_damaged_journal_is_counted_and_costs_redelivery_only() -> None:
    """Wherever the segment is damaged: the node starts, and only acknowledged offsets are finished."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(100)
    for offset in range(0, 60, 2):
        node.ack(offset)
    node.progress.commit()
    node.ack(*range(40, 50))
    (name,) = [name for name in disk.list(ACKS) if name.endswith(".acks")]
    file = disk.open(f"{ACKS}/{name}")
    data = file.read(0, file.size())
    used = len(data.rstrip(b"\0"))
    promised = {*range(0, 60, 2), *range(40, 50)}
    for place in range(0, used, 7):
        disk.kill()
        for each in disk.list(ACKS):
            disk.remove(f"{ACKS}/{each}")
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        disk.open(f"{ACKS}/{name}", create=True).write(0, [damaged])
        node = Node(disk)
        assert finished(node) <= promised
        assert node.metrics.value(reconcile.JOURNAL_DAMAGE) >= 1


def test_lost_snapshot_never_makes_a_group_skip_messages() -> None:
    """A tracker that was lost with its segment's beginning starts at the file's value, or at the oldest message."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.publish(50, queue_id=1)
    node.ack(*range(5))
    node.progress.commit()
    assert node.tracker(1, start=lambda: 20).watermark == 20
    node.ack(20, queue_id=1)
    disk.kill()
    (name,) = [name for name in disk.list(ACKS) if name.endswith(".acks")]
    disk.open(f"{ACKS}/{name}").write(0, [bytes(600)])
    node = Node(disk)
    assert node.metrics.value(reconcile.JOURNAL_DAMAGE, "snapshot") == 1
    assert node.tracker().watermark == 5
    assert node.tracker(1, start=lambda: 50).watermark == 0


def test_progress_runs_on_the_real_disk(tmp_path: object) -> None:
    """The same on real files, closed and opened again."""
    root = str(tmp_path)
    node = Node(RealDisk(), root=root)
    node.publish(100)
    for offset in range(1, 100, 3):
        node.ack(offset)
    node.close()
    node = Node(RealDisk(), root=root)
    assert finished(node) == set(range(1, 100, 3))
    node.close()


def test_disk_error_while_opening_is_told() -> None:
    """A journal that cannot be read stops the start with a sentence."""
    disk = SimDisk()
    node = Node(disk)
    node.close()
    disk.kill()
    disk.fail("read", path_part="/acks/", error=errno.EIO)
    with pytest.raises(ProgressFailed, match="reading the ack journal failed"):
        Node(disk)
