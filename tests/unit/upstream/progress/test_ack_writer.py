"""The ack journal's write side: when acks are written and synced, and when they are refused (D5, D9)."""

from __future__ import annotations

import pytest

from pyddmq.testing import SimDisk
from tests.unit.progress_world import ACKS, Node, cut, finished, killed
from upstream.progress import ack_writer
from upstream.progress.ack_writer import Driver
from upstream.progress.progress import ProgressFailed, ProgressFull
from upstream.progress.tracker import FailureKind


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


def test_sync_after_the_log_comes_at_most_every_20_ms() -> None:
    """Turns at a high rate share one sync of the acks; those of the last turns are left to the timer (D9)."""
    node = Node(SimDisk())
    node.publish(50)
    node.ack(0)
    node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
    syncs = node.metrics.value(ack_writer.JOURNAL_SYNCS)
    for offset in range(1, 9):
        node.ack(offset)
        node.progress.sync_after_log()
    assert node.metrics.value(ack_writer.JOURNAL_SYNCS) == syncs + 1
    node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
    node.progress.sync_after_log()
    assert finished(cut(node, 1)) == set(range(9))


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
    calls: list[int] = []
    node = Node(SimDisk(), driver=Driver(lambda: calls.append(1), lambda what, error: None))
    node.publish(50)
    node.ack(0)
    calls.clear()
    node.tracker().finish(1)
    node.tracker(1).finish(1)
    node.progress.fail(node.tracker(), 5, kind=FailureKind.FAIL, count=1, due_wall_ms=0)
    assert calls == [1]
    node.progress.flush()
    node.tracker().finish(2)
    assert calls == [1, 1]


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

    with pytest.raises(ProgressFull, match="without a restart"):
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
