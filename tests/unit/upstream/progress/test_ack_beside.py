"""Syncs of the ack journal beside the loop: what they cover, and what becomes of their failure (D9)."""

from __future__ import annotations

import pytest

from pyddmq.testing import SimDisk
from tests.unit.progress_world import SYNC_TAKES, Node, cut, finished
from upstream.progress import ack_writer
from upstream.progress.progress import ProgressFailed


def begun(disk: SimDisk | None = None) -> Node:
    """A node whose ack of 7 is in a sync that has begun and not ended; its ack of 9 came after that began."""
    node = Node(disk or SimDisk(), beside=True)
    node.publish(50)
    node.ack(0)  # durable, as it declares the tracker
    node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
    node.ack(7)
    node.progress.sync_after_log()
    node.ack(9)
    return node


def test_sync_makes_durable_what_was_written_before_it_began_and_is_not_taken_for_more() -> None:
    """An ack that comes while a sync is on its way waits for the next one, at most 100 ms."""
    lost: set[int] = set()
    for seed in range(10):
        node = begun()
        syncs = node.metrics.value(ack_writer.JOURNAL_SYNCS)
        node.scheduler.advance(SYNC_TAKES)
        assert node.metrics.value(ack_writer.JOURNAL_SYNCS) == syncs + 1
        found = finished(cut(node, seed))
        assert found >= {0, 7}
        lost |= {9} - found
        node = begun()
        node.scheduler.advance(0.1)
        assert finished(cut(node, seed)) == {0, 7, 9}
    assert lost, "no power loss took what was not synced"


def test_sync_on_its_way_is_believed_when_it_has_ended() -> None:
    """Before that a power loss may take what it covers."""
    assert any(7 not in finished(cut(begun(), seed)) for seed in range(10))


def test_timer_lets_a_sync_end_and_begins_the_next() -> None:
    """What was written while one was on its way is durable in time, though the timer found that one still there."""
    for seed in range(10):
        node = Node(SimDisk(), beside=True)
        node.publish(50)
        node.ack(0)
        node.ack(3)
        # The timer is due while the sync of a turn is on its way.
        node.clock.advance(ack_writer.SYNC_SECONDS)
        node.progress.sync_after_log()
        node.ack(5)
        node.scheduler.advance(2 * SYNC_TAKES)
        assert finished(cut(node, seed)) == {0, 3, 5}


def test_failed_sync_refuses_what_comes_after_it() -> None:
    """It is told when it ends; from then on acks are refused, for good."""
    disk = SimDisk()
    node = begun(disk)
    disk.fail("sync", path_part="/acks/")
    node.scheduler.advance(SYNC_TAKES)
    assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 1
    for call in (node.progress.flush, node.progress.sync, node.progress.commit, node.progress.sync_after_log):
        with pytest.raises(ProgressFailed, match="syncing"):
            call()
    operations = disk.operations
    node.scheduler.advance(10)
    node.progress.close()
    assert disk.operations == operations


def test_sync_at_once_hears_how_the_one_on_its_way_ended() -> None:
    """The system tells a failure to one of the two, and the pages that it was for may be gone."""
    disk = SimDisk()
    node = begun(disk)
    disk.fail("sync", path_part="/acks/")
    with pytest.raises(ProgressFailed, match="syncing"):
        node.progress.sync()
    node.scheduler.advance(1)
    assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 1


def test_close_with_a_sync_on_its_way_keeps_everything() -> None:
    """The close waits for it, and syncs what came later."""
    disk = SimDisk()
    node = begun(disk)
    node.close()
    disk.fail("sync", path_part="/acks/")
    node.scheduler.advance(1)
    disk.heal()
    assert node.progress.failed is None
    assert finished(cut(node, 1)) == {0, 7, 9}
