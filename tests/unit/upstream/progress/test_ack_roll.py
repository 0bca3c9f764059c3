"""A new segment of the ack journal is made durable beside the loop, and no stop amid it loses an ack (D9, D10)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.runtime.steps import run_now
from pyddmq.testing import PowerCut, SimDisk
from tests.insides import ack_writer_of, journal_of
from tests.unit.progress_world import ACKS, GROUP, SYNC_TAKES, TOPIC, Node, cut, finished, killed, roll
from upstream.progress import ack_writer, reconcile
from upstream.progress.journal import AckJournal
from upstream.progress.journal_format import SnapshotEnd, Written, encode
from upstream.progress.progress import ProgressFailed, ProgressFull
from upstream.progress.tracker import FailureKind

Act = Callable[[Node], None]
LAST = 199
"""An offset that is never acked; what fails again and again, to fill segments."""


def fill(node: Node, count: int = 1) -> None:
    """Write so many entries that say nothing about what is finished."""
    for attempt in range(count):
        node.progress.fail(node.tracker(), LAST, kind=FailureKind.FAIL, count=attempt + 1, due_wall_ms=0)
    node.progress.flush()


def segments(node: Node) -> int:
    """How many segments it has begun."""
    return int(node.metrics.value(ack_writer.JOURNAL_SEGMENTS))


def names(node: Node) -> list[str]:
    """The segments that are there."""
    return [name for name in node.disk.list(ACKS) if name != "spare"]


def full(disk: SimDisk | None = None, *, fails: int = 0, seed: int = 2) -> Node:
    """A node that acked 0 and 7, durably, and whose segment the next ack fills; `seed` says how long syncs take."""
    node = Node(disk or SimDisk(), beside=True, seed=seed)
    node.publish(200)
    node.ack(0)
    for _ in range(fails):
        fill(node)
    node.ack(7)
    node.progress.sync()
    begun = segments(node)
    journal = journal_of(node)
    while journal.position + 100 < journal.capacity:
        fill(node)
    node.progress.sync()
    assert segments(node) == begun
    return node


def rolling(disk: SimDisk | None = None, *, seed: int = 2) -> Node:
    """The same, after the ack of 9, with which a new segment begins."""
    node = full(disk, seed=seed)
    begun = segments(node)
    fill(node, 3)
    node.ack(9)
    assert segments(node) == begun + 1
    return node


def test_segment_begins_without_a_sync_in_the_turn() -> None:
    """Acks are answered while its syncs are on their way, and the one before it goes when they have ended."""
    node = full()
    assert isinstance(node.disk, SimDisk)
    assert node.syncs is not None
    begun, synced, ended = segments(node), node.disk.synced_files, node.syncs.ended
    fill(node, 3)
    node.ack(9)
    node.ack(11)
    assert (segments(node), node.disk.synced_files, node.syncs.ended) == (begun + 1, synced, ended)
    assert len(names(node)) == 2
    node.scheduler.advance(2 * SYNC_TAKES)
    assert (node.disk.synced_files, node.syncs.ended) == (synced + 1, ended + 2)
    assert len(names(node)) == 1
    assert node.disk.exists(f"{ACKS}/spare")
    assert finished(killed(node)) == {0, 7, 9, 11}


@pytest.mark.parametrize("power", [False, True])
def test_no_answered_ack_is_lost_wherever_a_roll_stops(power: bool) -> None:
    """At every change, while acks, commits and resets come between its steps and the next segments begin."""
    stopped = amid = 0
    for changes in range(150):
        disk = SimDisk()
        node = full(disk, seed=changes)
        acked = {0, 7}
        reported, durable = set(acked), set(acked)
        disk.stop_after(changes)
        try:
            for step in range(60):
                offset = 20 + 2 * step
                acked.add(offset)
                fill(node, 3 + step % 5)
                node.ack(offset)
                reported.add(offset)
                if step % 7 == changes % 7:
                    node.progress.sync()
                    durable = set(reported)
                if step % 11 == changes % 11:
                    node.progress.begin_commit()
                if step % 13 == changes % 13:
                    node.progress.reset(node.tracker(1), step)
                    node.progress.flush()
                    durable = set(reported)
                amid += len(names(node)) == 2
                node.scheduler.advance(0.0004 * (step % 4))
            node.close()
            reported = durable = set(acked)
        except PowerCut:
            stopped += 1
        node = cut(node, changes) if power else killed(node)
        found = finished(node)
        assert (durable if power else reported) <= found <= acked, changes
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
    assert stopped > 100
    assert amid > 100


def test_what_was_synced_before_a_roll_holds_until_it_is_durable() -> None:
    """A power loss at any moment of it: failed attempts, too, which lie behind the trackers in a snapshot."""
    lost = 0
    for seed in range(60):
        node = full(fails=3, seed=seed)
        for offset in range(50, 150):
            node.progress.fail(node.tracker(), offset, kind=FailureKind.ERROR, count=2, due_wall_ms=5)
            if offset % 10 == 0:
                node.progress.flush()
        node.progress.sync()
        begun = segments(node)
        while segments(node) == begun:
            fill(node)
        node.ack(9)
        node.scheduler.advance(SYNC_TAKES * (seed % 4) / 4)
        node = cut(node, seed)
        found = finished(node)
        lost += 9 not in found
        assert {0, 7} <= found <= {0, 7, 9}
        assert set(range(50, 150)) <= set(node.tracker().failures)
    assert lost, "no power loss took what was not synced"


@pytest.mark.parametrize("ended", [1, 2])
def test_entry_is_durable_when_the_roll_and_the_sync_after_it_are(ended: int) -> None:
    """What is written while a segment becomes durable is so 100 ms later, as ever (D9)."""
    for seed in range(10):
        node = rolling(seed=seed)
        node.ack(11)
        if ended == 2:
            node.progress.sync_after_log()
        node.scheduler.advance(0.1)
        assert finished(cut(node, seed)) == {0, 7, 9, 11}


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_failed_sync_of_a_roll_refuses_acks_for_good(operation: str) -> None:
    """Nothing is written or synced after it; the segment before stays, and holds what was answered before."""
    for seed in range(10):
        disk = SimDisk()
        node = full(disk, seed=seed)
        node.ack(8)
        begun = segments(node)
        while segments(node) == begun:
            fill(node)
        disk.fail(operation, path_part="/acks")
        node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
        assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 1
        operations = disk.operations
        for call in (node.progress.flush, node.progress.sync, node.progress.commit, node.progress.sync_after_log):
            with pytest.raises(ProgressFailed, match="syncing"):
                call()
        node.scheduler.advance(10)
        node.progress.close()
        assert disk.operations == operations
        assert len(names(node)) == 2
        assert finished(cut(node, seed)) == {0, 7, 8}


def test_failed_write_amid_a_roll_still_makes_earlier_acks_durable() -> None:
    """What was answered before it is in a segment that counts (D9)."""
    for seed in range(20):
        disk = SimDisk()
        node = rolling(disk, seed=seed)
        node.ack(11)
        disk.fail("write", path_part="/acks/")
        node.tracker().finish(13)
        with pytest.raises(ProgressFailed, match="writing"):
            node.progress.flush()
        node.scheduler.advance(1)
        assert finished(cut(node, seed)) >= {0, 7, 9, 11}


def test_failed_sync_of_the_segment_before_refuses_acks_and_it_is_not_given_up() -> None:
    """One that was on its way when the new segment began, and that fails before this one is durable."""
    amid = 0
    for seed in range(20):
        disk = SimDisk()
        node = full(disk, seed=seed)
        node.ack(8)
        node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
        node.progress.sync_after_log()
        begun = segments(node)
        while segments(node) == begun:
            fill(node)
        assert node.progress.failed is None
        disk.fail("sync", path_part=names(node)[0])
        for _ in range(50):
            node.scheduler.advance(SYNC_TAKES / 20)
            if node.metrics.value(ack_writer.JOURNAL_FAILURES):
                break
        else:
            # The new one was durable first, and this one a spare by then.
            continue
        amid += len(names(node)) == 2
        node.scheduler.advance(0.1)
        with pytest.raises(ProgressFailed, match="syncing"):
            node.ack(9)
        assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 1
        assert len(names(node)) == 2
        assert finished(killed(node)) == {0, 7, 8}
    assert amid > 3, "the sync of the segment before failed after its end alone"


def reset_it(node: Node) -> None:
    """Move the group, which is durable with its flush."""
    node.progress.reset(node.tracker(), 5)
    node.progress.flush()


def declare_another(node: Node) -> None:
    """Begin a queue, whose first offset is durable with its flush."""
    node.tracker(1)
    node.progress.flush()


def sync_it(node: Node) -> None:
    """Make everything durable."""
    node.progress.sync()


def commit_it(node: Node) -> None:
    """Write the committed offsets, which says that the journal is durable."""
    node.progress.commit()


def close_it(node: Node) -> None:
    """Stop in an orderly way."""
    node.close()


@pytest.mark.parametrize("act", [reset_it, declare_another, sync_it, commit_it, close_it])
def test_what_is_durable_on_return_is_so_amid_a_roll(act: Act) -> None:
    """It waits for the segment's syncs, and a power loss after it takes nothing."""
    for seed in range(10):
        node = rolling(seed=seed)
        act(node)
        expected = set(range(5)) if act is reset_it else {0, 7, 9}
        node = cut(node, seed)
        assert finished(node) == expected
        if act is declare_another:
            assert (GROUP, TOPIC, 1) in node.progress.trackers


@pytest.mark.parametrize("act", [sync_it, commit_it, reset_it, declare_another])
@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_who_waits_for_a_roll_hears_that_it_failed(act: Act, operation: str) -> None:
    """And nobody syncs once more."""
    disk = SimDisk()
    node = rolling(disk)
    disk.fail(operation, path_part="/acks")
    with pytest.raises(ProgressFailed, match="syncing"):
        act(node)
    operations = disk.operations
    node.scheduler.advance(1)
    node.progress.close()
    assert disk.operations == operations


def test_begun_commit_amid_a_roll_waits_for_it_beside_the_loop() -> None:
    """The file never has a value that the journal does not know, wherever the power goes."""
    for changes in range(40):
        disk = SimDisk()
        node = rolling(disk, seed=changes)
        synced = disk.synced_files
        disk.stop_after(changes)
        try:
            node.ack(1, 2)
            node.progress.begin_commit()
            assert disk.synced_files == synced
            node.scheduler.advance(1)
            assert node.progress.offsets.get(GROUP, TOPIC, 0) == 3
        except PowerCut:
            pass
        node = cut(node, changes)
        assert node.metrics.value(reconcile.OFFSETS_FOREIGN) == 0
        assert finished(node) >= {0, 7}


def test_sync_that_falls_due_amid_a_roll_is_that_of_the_roll() -> None:
    """The disk is asked once for what was written once: the segment, and its folder."""
    for tenths in range(1, 10):
        node = full(seed=tenths)
        assert node.syncs is not None
        # The timer of the first entry is due while the segment becomes durable.
        node.scheduler.advance(ack_writer.SYNC_SECONDS - SYNC_TAKES * tenths / 10)
        begun, ended, synced = segments(node), node.syncs.ended, node.metrics.value(ack_writer.JOURNAL_SYNCS)
        while segments(node) == begun:
            fill(node)
        node.scheduler.advance(ack_writer.SYNC_SECONDS / 2)
        assert (node.syncs.ended, node.metrics.value(ack_writer.JOURNAL_SYNCS)) == (ended + 2, synced + 1)


def test_sync_that_falls_due_amid_a_roll_follows_it_for_what_came_meanwhile() -> None:
    """An ack that the roll does not cover has no timer of its own: it is durable soon after all the same (D9)."""
    for seed in range(1, 10):
        node = full(seed=seed)
        node.scheduler.advance(ack_writer.SYNC_SECONDS - SYNC_TAKES / 10)
        begun = segments(node)
        while segments(node) == begun:
            fill(node)
        node.ack(9)
        node.scheduler.advance(3 * SYNC_TAKES)
        assert finished(cut(node, seed)) == {0, 7, 9}


def test_space_of_the_next_segment_is_not_claimed_amid_a_roll() -> None:
    """The segment that is given up will be it, so there are never three of them."""
    node = rolling()
    ack_writer_of(node).set_space_aside()
    assert len(node.disk.list(ACKS)) == 2
    node.scheduler.advance(2 * SYNC_TAKES)
    assert (len(names(node)), node.disk.exists(f"{ACKS}/spare")) == (1, True)


def test_segment_that_is_full_before_it_is_durable_is_waited_for() -> None:
    """There are never more than two segments, and no ack is lost between them."""
    for power in (False, True):
        node = rolling()
        begun = segments(node)
        promised = {0, 7, 9}
        for _ in range(500):
            fill(node)
            offset = 11 + 2 * len(promised)
            if offset < LAST:
                node.ack(offset)
                promised.add(offset)
            assert len(names(node)) <= 2
            if segments(node) == begun + 3:
                break
        assert segments(node) == begun + 3
        if power:
            node.progress.sync()
        assert finished(cut(node, 3) if power else killed(node)) == promised


def test_ack_flush_sync_waits_for_the_segment() -> None:
    """`ackFlush: sync`: what flush returned from survives a power cut, also where a segment begins."""
    for seed in range(10):
        node = Node(SimDisk(), ack_flush="sync", beside=True)
        node.publish(200)
        begun = segments(node)
        offsets = iter(range(0, LAST - 1, 2))
        promised: set[int] = set()
        while segments(node) == begun:
            fill(node, 6)
            offset = next(offsets)
            node.ack(offset)
            promised.add(offset)
        assert finished(cut(node, seed)) == promised


def test_acks_go_on_beside_the_loop_while_the_disk_is_full() -> None:
    """The segment before the new one becomes the spare only then, and nothing more is claimed meanwhile (D5)."""
    disk = SimDisk()
    node = Node(disk, beside=True)
    node.publish(200)
    node.ack(0)
    disk.capacity_bytes = 0
    for offset in range(2, LAST, 2):
        fill(node, 8)
        node.ack(offset)
        node.progress.begin_commit()
        node.scheduler.advance(0.0003)
    assert segments(node) > 3
    assert node.metrics.value(ack_writer.JOURNAL_FAILURES) == 0
    assert finished(killed(node)) == {0, *range(2, LAST, 2)}


def test_sync_that_finds_no_space_is_not_tried_again() -> None:
    """Delayed allocation: what was written may be gone, so waiting for space is no use."""
    disk = SimDisk()
    node = rolling(disk)
    disk.fail("sync", path_part="/acks/", error=28)
    node.scheduler.advance(SYNC_TAKES)
    failed = node.progress.failed
    assert failed is not None
    assert not isinstance(failed, ProgressFull)


def test_entry_that_asks_for_a_sync_gets_its_own() -> None:
    """One that ends between its staging and its flush is not taken for it."""
    for seed in range(10):
        node = Node(SimDisk(), beside=True)
        node.publish(50)
        node.ack(0)
        node.scheduler.advance(ack_writer.SYNC_SPACING_SECONDS)
        node.ack(7)
        node.progress.sync_after_log()
        node.tracker(1)
        node.scheduler.advance(SYNC_TAKES)
        node.progress.flush()
        assert (GROUP, TOPIC, 1) in cut(node, seed).progress.trackers


# The start after it


def test_start_after_a_kill_amid_a_roll_gives_up_no_segment_before_another_is_durable() -> None:
    """The new one counts, from the page cache; the power may go at each change that the start makes."""
    stopped = 0
    for changes in range(40):
        for seed in range(6):
            disk = SimDisk()
            node = rolling(disk)
            disk.kill()
            disk.stop_after(changes)
            try:
                Node(disk)
            except PowerCut:
                stopped += 1
            assert finished(cut(node, seed)) >= {0, 7}, changes
    assert 150 < stopped < 240, "the start has other changes than those that are tried"


def test_start_that_cannot_sync_the_segment_that_counts_gives_up_none_for_it() -> None:
    """The next segment is another file: it is made durable first, wherever the power goes."""
    for changes in range(40):
        disk = SimDisk()
        node = rolling(disk)
        disk.kill()
        disk.fail("sync", path_part="/acks/")
        disk.stop_after(changes)
        try:
            node = Node(disk)
        except PowerCut:
            assert finished(cut(node, changes)) >= {0, 7}, changes
            continue
        assert finished(node) == {0, 7, 9}
        assert len(names(node)) == 1


def test_segment_shows_nothing_of_one_whose_name_the_power_took() -> None:
    """Its number is given again, and so is its space, whose blocks were of that number."""
    seen = 0
    for seed in range(20):
        disk = SimDisk()
        journal = AckJournal(ACKS, disk, segment_bytes=4096)
        run_now(journal.reading())
        roll(journal, [encode(SnapshotEnd(0))])
        disk.sync_folder(ACKS)
        journal.begin_segment([encode(SnapshotEnd(0))])
        for _ in range(20):
            journal.append(encode(Written()) * 10)
        journal.sync()
        disk.crash(Random(seed))
        if disk.list(ACKS) != [f"{1:016d}.acks", "spare"]:
            continue
        seen += 1
        journal = AckJournal(ACKS, disk, segment_bytes=4096)
        run_now(journal.reading())
        roll(journal, [encode(SnapshotEnd(0))])
        content = run_now(AckJournal(ACKS, disk, segment_bytes=4096).reading())
        assert content is not None
        assert (content.number, content.whole, content.holes, len(content.entries)) == (2, True, 0, 2)
    assert seen > 3
