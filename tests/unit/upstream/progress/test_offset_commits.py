"""Commits: `consumerOffset.json` holds watermarks and is never ahead of the ack journal (D10)."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from broker.runtime.file_writes import FileWrite
from broker.runtime.seams import DiskFile
from pyddmq.testing import PowerCut, SimDisk
from tests.unit.progress_world import GROUP, OFFSETS, TOPIC, Node, cut, finished, killed
from upstream.progress import offset_commits, reconcile
from upstream.progress.progress import ProgressFailed


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


@pytest.mark.parametrize("power", [False, True])
def test_commit_beside_the_loop_keeps_file_and_journal_in_line(power: bool) -> None:
    """The same at every change while acks, a reset and a new journal segment come between its steps."""
    stopped = 0
    for changes in range(120):
        disk = SimDisk()
        node = Node(disk, beside=True)
        node.publish(200)
        node.ack(*range(10), 20)
        node.scheduler.advance(1)
        acked, reported = {*range(10), 20}, set(finished(node))
        disk.stop_after(changes)
        try:
            node.progress.begin_commit()
            for step in range(12):
                node.scheduler.advance(0.0007)
                node.ack(10 + step % 10 + 20 * (step // 10), 100 + 2 * step)
                acked |= {10 + step % 10 + 20 * (step // 10), 100 + 2 * step}
                if step == changes % 12:
                    node.progress.begin_commit()
                reported = set(acked)
            node.progress.reset(node.tracker(1), 40)
            node.progress.flush()
            node.progress.begin_commit()
            node.scheduler.advance(1)
            node.close()
        except PowerCut:
            stopped += 1
        node = cut(node, changes) if power else killed(node)
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
        found = finished(node)
        # What the power takes is what was acked last; nothing comes up that nobody acked.
        assert found <= acked
        assert found >= ({*range(10), 20} if power else reported)
    assert stopped > 50


def test_begun_commit_writes_the_watermarks_of_its_beginning() -> None:
    """What is acked meanwhile is for the next one; one that is asked for meanwhile is not begun."""
    node = Node(SimDisk(), beside=True)
    node.publish(50)
    node.ack(*range(3))
    node.progress.begin_commit()
    node.ack(3, 4)
    node.progress.begin_commit()
    node.scheduler.advance(1)
    assert node.progress.offsets.get(GROUP, TOPIC, 0) == 3
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1
    node.progress.begin_commit()
    node.scheduler.advance(1)
    file = node.disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 5}}
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 2


def test_commit_at_once_ends_the_one_that_was_begun() -> None:
    """Its caller finds everything in the file, as ever."""
    node = Node(SimDisk(), beside=True)
    node.publish(50)
    node.ack(*range(3))
    node.progress.begin_commit()
    node.ack(3, 4)
    node.progress.commit()
    operations = node.disk.operations if isinstance(node.disk, SimDisk) else 0
    file = node.disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 5}}
    node.scheduler.advance(0.01)
    assert isinstance(node.disk, SimDisk)
    assert node.disk.operations == operations


def test_commit_that_failed_is_made_again_without_any_progress() -> None:
    """A watermark that could not be written is written by the next commit, though nothing was acked since (W29)."""
    disk = SimDisk()
    node = Node(disk)
    node.publish(50)
    node.ack(0)
    disk.fail("write", path_part="consumerOffset.json")
    node.progress.commit()
    disk.heal()
    node.progress.commit()
    file = disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 1}}


def test_commits_go_on_when_the_store_fails_while_one_waits() -> None:
    """Its file writes are dropped, that one among them; acks are still recorded, and how far they are."""
    node = Node(SimDisk(), beside=True)
    node.publish(50)
    node.ack(0)
    node.store.file_writes.add(one_sync(node.disk.open(f"{node.store.root}/lock")))
    node.progress.begin_commit()
    node.store.writes.fail("something else", OSError(5, "broken"))
    node.ack(1)
    node.progress.begin_commit()
    node.scheduler.advance(1)
    file = node.disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 2}}


def one_sync(file: DiskFile) -> FileWrite:
    """A file write of one sync."""
    yield file


def test_begun_commit_that_cannot_be_made_is_seen_by_the_next_flush() -> None:
    """The journal could not say what the file would get: the file stays as it was, and acks are refused."""
    disk = SimDisk()
    node = Node(disk, beside=True)
    node.publish(50)
    node.ack(0)
    node.progress.commit()
    node.ack(1)
    node.progress.begin_commit()
    disk.fail("sync", path_part="/acks/")
    node.scheduler.advance(1)
    with pytest.raises(ProgressFailed, match="syncing"):
        node.progress.flush()
    with pytest.raises(ProgressFailed, match="syncing"):
        node.progress.begin_commit()
    file = disk.open(OFFSETS)
    assert json.loads(file.read(0, file.size()))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 1}}


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
    with capture_logs() as lines:
        for offset in range(150):
            node.ack(offset)
            disk.fail("write", path_part="consumerOffset.json")
            node.progress.commit()
            disk.heal()
    assert [(line["event"], line["log_level"], line["count"]) for line in lines] == [
        ("offsets_not_written", "error", 1)
    ]
    assert node.metrics.value(offset_commits.OFFSETS_COMMIT_ERRORS) == 150
    node.ack(180)
    node = killed(node)
    assert finished(node) == {*range(150), 180}
    node.progress.commit()
    assert node.metrics.value(offset_commits.OFFSETS_COMMITTED) == 1
    node = killed(node)
    assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
    assert finished(node) == {*range(150), 180}
