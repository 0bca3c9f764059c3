"""Progress over a real store: acks outlive kills and power cuts, and are durable when promised."""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.runtime.disk import RealDisk
from pyddmq.testing import PowerCut, SimDisk
from tests.unit.progress_world import ACKS, GROUP, ROOT, TOPIC, Node, cut, finished, first, killed
from upstream.progress import ack_writer, progress, reconcile
from upstream.progress.progress import DeadLetterOrigin, ProgressFailed
from upstream.progress.tracker import FailureKind


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


@settings(max_examples=100, deadline=None)
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


def lose(node: Node) -> int:
    """Have retention take ten messages at a time, and dead-letter one, until the power is cut; how many are gone."""
    queue, tracker = node.store.topics[TOPIC].queues[0], node.tracker()
    for gone in range(10, 100, 10):
        queue.min_offset = gone
        count = tracker.finish_range(tracker.watermark, gone)
        node.progress.lost(tracker, count)
        node.progress.dead_lettered(tracker, gone + 5)
        for attempt in range(1, 40):  # fills segments, so that new ones begin
            node.progress.fail(tracker, 150, kind=FailureKind.FAIL, count=attempt, due_wall_ms=5)
        node.progress.flush()
    return 90


def test_kill_at_every_change_of_the_disk_counts_what_retention_took_once() -> None:
    """Loss and dead letters add up to what is gone, whichever of them the killed process had written."""
    for changes in range(200):
        disk = SimDisk()
        node = Node(disk)
        node.publish(200)
        node.tracker()
        node.progress.sync()
        disk.stop_after(changes)
        over = False
        with contextlib.suppress(PowerCut):
            over = lose(node) == 90
        gone = node.store.topics[TOPIC].queues[0].min_offset
        disk.kill()
        again = Node(disk)
        again.store.topics[TOPIC].queues[0].min_offset = gone
        tracker = again.tracker()
        dead = sum(tracker.is_finished(offset) for offset in range(gone, 200))
        assert tracker.expired + tracker.dead_letters == gone + dead
        again.progress.flush()
        third = killed(again).tracker()
        assert (third.expired, third.dead_letters) == (tracker.expired, tracker.dead_letters)
        if over:
            break
    assert over
    assert changes > 10


def test_losses_of_a_topic_are_those_of_its_queues_over_restarts() -> None:
    """The status page's figure is made of what the journal keeps; the last of them tells the moment."""
    node = Node(SimDisk())
    node.publish(20)
    node.publish(20, queue_id=1)
    for queue_id in (0, 1):
        tracker = node.tracker(queue_id)
        node.progress.lost(tracker, tracker.finish_range(0, 3 + queue_id))
        node.clock.advance(1)
    node.progress.flush()
    before = node.progress.losses.of(GROUP, TOPIC)
    assert before.messages == 7
    assert killed(node).progress.losses.of(GROUP, TOPIC) == before


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
        failures = node.tracker().failures
        assert list(failures) == [4]
        assert [failures[4].count(kind) for kind in FailureKind] == [2, 0, 1, 0]
        assert failures[4].due_wall_ms == 950


def test_failure_of_a_finished_offset_is_ignored() -> None:
    """A late fail does not bring a finished message back."""
    node = Node(SimDisk())
    node.publish(5)
    node.ack(3)
    node.progress.fail(node.tracker(), 3, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
    assert not node.progress.pending
    assert node.tracker().failures == {}


def test_dead_lettered_offset_is_finished_and_its_position_remembered() -> None:
    """The journal entry follows the dead letter; recovery has nothing to look at behind it (D16)."""
    node = Node(SimDisk())
    node.publish(50)
    node.progress.dead_lettered(node.tracker(), 8)
    node.progress.dead_letters_done(f"%DLQ%{GROUP}", 0, 3)
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
        DeadLetterOrigin(GROUP, TOPIC, 0, 1),
        DeadLetterOrigin(GROUP, TOPIC, 0, 9, physical),
        DeadLetterOrigin(GROUP, TOPIC, 0, 10, physical),  # names another record
        DeadLetterOrigin(GROUP, TOPIC, 0, 70),  # beyond the log
        DeadLetterOrigin("nobody", TOPIC, 0, 5),
    ]
    dead_letters = Mock(topic=f"%DLQ%{GROUP}", queue_id=0, max_offset=5)
    node.progress.finish_replaced(dead_letters, lambda queue, start: origins, begin=lambda *_: None)
    node.progress.flush()
    assert node.metrics.value(progress.DEAD_LETTERS_RECOVERED, GROUP) == 1
    node = killed(node)
    assert finished(node) == {1, 9}
    assert node.progress.scan_position(f"%DLQ%{GROUP}", 0) == 5


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
            assert node.tracker().failures == {}
            assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0


def save_later(node: Node) -> list[str]:
    """Let the store and the offsets be saved ten seconds later; return the events that the log has of it."""
    with capture_logs() as logs:
        node.clock.advance(11)
        node.store.checkpoint()
        node.progress.begin_commit()
    return [each["event"] for each in logs if each["event"].endswith("_deleted")]


@pytest.mark.parametrize(
    "path", ["config/topics.json", "pyddmq/topics.json", "config/consumerOffset.json", "pyddmq/acks"]
)
def test_file_that_is_deleted_while_the_node_runs_is_written_again(path: str) -> None:
    """The next save writes it, so that a kill after it loses nothing; the log says once what was deleted."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(10)
    node.ack(0, 1, 5)
    node.progress.commit()
    for deleted in [f"{ROOT}/{path}/{name}" for name in disk.list(f"{ROOT}/{path}")] or [f"{ROOT}/{path}"]:
        disk.remove(deleted)
    event = "ack_journal_deleted" if path == "pyddmq/acks" else "state_file_deleted"
    assert save_later(node) == [event]
    assert save_later(node) == []
    node.ack(7)
    node = killed(node)
    assert finished(node) == {0, 1, 5, 7}
    assert disk.exists(f"{ROOT}/{path}") or disk.list(f"{ROOT}/{path}")


def test_folders_that_are_deleted_while_the_node_runs_are_made_again(tmp_path: Path) -> None:
    """As files are."""
    node = Node(RealDisk(), root=str(tmp_path))
    node.publish(10)
    node.ack(0, 1, 5)
    node.progress.commit()
    for name in ("config", "pyddmq/acks"):
        shutil.rmtree(tmp_path / name)
    assert len(save_later(node)) == 3
    node.ack(7)
    node.close()
    assert finished(Node(RealDisk(), root=str(tmp_path))) == {0, 1, 5, 7}


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
    """A journal that may not be read stops the start with a sentence; a bad sector of it does not."""
    disk = SimDisk()
    node = Node(disk)
    node.close()
    disk.kill()
    disk.fail("read", path_part="/acks/", error=errno.EACCES)
    with pytest.raises(ProgressFailed, match="reading the ack journal failed"):
        Node(disk)
