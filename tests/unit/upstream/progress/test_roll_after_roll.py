"""What is staged when a roll of the ack journal ends, and needs one segment more (D9, D10)."""

from __future__ import annotations

import errno

import pytest

from pyddmq.testing import SimDisk
from tests.insides import ack_writer_of, journal_of
from tests.unit.progress_world import ACKS, SYNC_TAKES, Node, finished, killed
from tests.unit.upstream.progress.test_ack_roll import fill, rolling, segments
from upstream.progress.progress import ProgressFailed, ProgressFull


def staged_at_the_end_of_a_roll() -> Node:
    """A segment is made durable, it is full already, a sync is to follow, and an ack of 11 waits for its flush."""
    node = rolling()
    begun = segments(node)
    journal = journal_of(node)
    while journal.position + 40 < journal.capacity:
        fill(node)
    assert segments(node) == begun
    ack_writer_of(node).begin_sync()
    node.tracker().finish(11)
    return node


def test_ack_that_the_next_segment_cannot_take_is_refused() -> None:
    """Nobody is told that it is kept: its flush fails, in whichever turn the roll before it ends."""
    node = staged_at_the_end_of_a_roll()
    assert isinstance(node.disk, SimDisk)
    node.disk.fail("write", path_part=ACKS)
    node.scheduler.advance(2 * SYNC_TAKES)
    with pytest.raises(ProgressFailed):
        node.progress.flush()
    assert 11 not in finished(killed(node))


def test_ack_for_whose_segment_there_was_no_space_is_written_with_the_next_flush() -> None:
    """A full disk ends by itself: what was staged is still to be written."""
    node = staged_at_the_end_of_a_roll()
    assert isinstance(node.disk, SimDisk)
    node.disk.fail("write", path_part=ACKS, error=errno.ENOSPC)
    node.scheduler.advance(2 * SYNC_TAKES)
    failed = node.progress.failed
    assert isinstance(failed, ProgressFull)
    node.progress.flush()
    assert node.progress.failed is None
    assert finished(killed(node)) == {0, 7, 9, 11}


def test_ack_that_the_next_segment_takes_is_kept() -> None:
    """The turn's flush has nothing left to write, and its ack is there after a kill."""
    node = staged_at_the_end_of_a_roll()
    begun = segments(node)
    node.scheduler.advance(2 * SYNC_TAKES)
    node.progress.flush()
    assert segments(node) == begun + 1
    assert finished(killed(node)) == {0, 7, 9, 11}
