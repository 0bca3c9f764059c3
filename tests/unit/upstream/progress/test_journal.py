"""The ack journal: its segments, and what damage costs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreFormatNewer
from broker.runtime.disk import RealDisk
from broker.runtime.steps import run_now
from tests.unit.progress_world import roll
from upstream.progress import journal_format as form
from upstream.progress.finished_marks import pack
from upstream.progress.journal import SEGMENT_BYTES_MIN, AckJournal, SegmentContent, scan_segment
from upstream.progress.replay import replay
from upstream.progress.tracker import AttemptFailures, OffsetTracker


def opened(folder: Path, *, segment_bytes: int = SEGMENT_BYTES_MIN) -> tuple[AckJournal, SegmentContent | None]:
    """Open a journal on the real disk, with what it held."""
    journal = AckJournal(str(folder), RealDisk(), segment_bytes=segment_bytes)
    return journal, run_now(journal.reading())


def snapshot(*trackers: OffsetTracker) -> list[bytes]:
    """Blocks of a snapshot."""
    entries = [
        form.encode_tracker(
            form.TrackerEntry(
                each.tracker_id, each.group, each.topic, each.queue_id, each.watermark, -1, -1, (), pack(each.marks)
            )
        )
        for each in trackers
    ]
    return [*entries, form.encode(form.SnapshotEnd(len(trackers)))]


def a_tracker(tracker_id: int = 0, watermark: int = 0) -> OffsetTracker:
    """Make a tracker of queue `tracker_id`."""
    return OffsetTracker("group", "topic", tracker_id, tracker_id=tracker_id, watermark=watermark)


def test_journal_never_written_reads_as_none(tmp_path: Path) -> None:
    """A fresh node has no journal, and that is no damage."""
    _, content = opened(tmp_path)
    assert content is None


def test_appended_blocks_are_read_after_reopening(tmp_path: Path) -> None:
    """What append returned from is in the file, in order, behind the snapshot."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker()))
    assert journal.append(form.encode_acked(0, -1, [3, 5]))
    assert journal.append(form.encode_acked(0, -1, [0, 1]))
    journal.close()
    _, content = opened(tmp_path)
    assert content is not None
    assert (content.whole, content.holes, content.torn) == (True, 0, False)
    tracker = replay(content.entries).trackers[0].tracker
    assert (tracker.watermark, tracker.finished_ranges()) == (1, [(3, 5)])


def test_segment_when_full_asks_for_a_roll_and_takes_no_more_files(tmp_path: Path) -> None:
    """However much is written, a segment and a spare are all there is; the space is claimed beforehand."""
    journal, _ = opened(tmp_path)
    tracker = a_tracker()
    roll(journal, snapshot(tracker))
    rolls = 0
    for offset in range(0, 2000, 2):
        tracker.finish(offset)
        if not journal.append(form.encode_acked(0, -1, [offset, offset + 1])):
            roll(journal, snapshot(tracker))
            rolls += 1
    journal.close()
    assert rolls > 5
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 2
    assert "spare" in sizes
    assert all(SEGMENT_BYTES_MIN <= size <= 2 * SEGMENT_BYTES_MIN + 1024 for size in sizes.values())
    _, content = opened(tmp_path)
    assert content is not None
    assert content.holes == 0
    assert bytes(replay(content.entries).trackers[0].tracker.marks) == bytes(tracker.marks)


def test_recycled_segment_never_shows_blocks_of_its_earlier_life(tmp_path: Path) -> None:
    """The spare still holds old blocks; their sums carry another segment's number."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker()))
    for offset in range(20):
        journal.append(form.encode_acked(0, -1, [100 + offset, 101 + offset]))
    for _ in range(3):
        roll(journal, snapshot(a_tracker(watermark=5)))
    journal.close()
    _, content = opened(tmp_path)
    assert content is not None
    assert (content.whole, content.holes, content.torn) == (True, 0, False)
    tracker = replay(content.entries).trackers[0].tracker
    assert (tracker.watermark, tracker.ahead) == (5, 0)


def segment_file(folder: Path) -> Path:
    """Return the one segment in a folder."""
    (found,) = folder.glob("*.acks")
    return found


def test_damaged_block_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    """One flipped bit: that block's acks come again, all others hold, and the hole is counted."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker()))
    places = []
    for offset in range(10):
        places.append(journal._position)
        journal.append(form.encode_acked(0, -1, [offset, offset + 1]))
    journal.close()
    path = segment_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[places[4] + 20] ^= 0x10
    path.write_bytes(data)
    _, content = opened(tmp_path)
    assert content is not None
    assert (content.whole, content.holes) == (True, 1)
    tracker = replay(content.entries).trackers[0].tracker
    assert (tracker.watermark, tracker.finished_ranges()) == (4, [(5, 10)])


def test_behind_a_damaged_block_dead_letters_are_not_taken_for_settled(tmp_path: Path) -> None:
    """The block that finished an origin may be the one that is gone: its dead letter is looked at again (D16)."""
    for damaged in (False, True):
        folder = tmp_path / str(damaged)
        journal, _ = opened(folder)
        roll(journal, snapshot(a_tracker()))
        places = []
        for offset in range(1, 4):
            places.append(journal._position)
            journal.append(form.encode(form.Dead(0, offset)) + form.encode_scanned("%DLQ%g", 0, offset))
        journal.close()
        path = segment_file(folder)
        data = bytearray(path.read_bytes())
        data[places[1] + 20] ^= 0x10 * damaged
        path.write_bytes(data)
        _, content = opened(folder)
        assert content is not None
        scanned = [entry.offset for entry in content.entries if isinstance(entry, form.Scanned)]
        assert scanned == ([1] if damaged else [1, 2, 3])


def test_torn_tail_is_ignored(tmp_path: Path) -> None:
    """A last block that was half written is no hole: everything before it holds."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker()))
    journal.append(form.encode_acked(0, -1, [0, 3]))
    place = journal._position
    journal.append(form.encode_acked(0, -1, [3, 6]))
    end = journal._position
    journal.close()
    path = segment_file(tmp_path)
    data = bytearray(path.read_bytes())
    for cut in range(place + 1, end):
        torn = data[:cut] + bytes(len(data) - cut)
        path.write_bytes(torn)
        _, content = opened(tmp_path)
        assert content is not None
        tracker = replay(content.entries).trackers[0].tracker
        assert tracker.watermark in (3, 6)  # 6 where only zeros were cut off
        assert content.holes == 0
        assert content.torn == (tracker.watermark == 3)


def test_new_segment_without_its_snapshot_leaves_the_one_before_it_in_charge(tmp_path: Path) -> None:
    """A crash while a segment begins: the older one is replayed, and the half-made one is used again."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker(), a_tracker(1)))
    journal.append(form.encode_acked(1, -1, [0, 9]))
    journal.close()
    old = segment_file(tmp_path)
    kept = old.read_bytes()
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker(watermark=2), a_tracker(1, watermark=9)))
    journal.close()
    new = segment_file(tmp_path)
    data = new.read_bytes()
    for cut in (0, 15, 40, 100):
        old.write_bytes(kept)
        new.write_bytes(data[:cut] + bytes(len(data) - cut))
        journal, content = opened(tmp_path)
        assert content is not None
        assert content.whole
        assert content.number == 1
        assert replay(content.entries).trackers[1].tracker.watermark == 9
        assert [path.name for path in tmp_path.glob("*.acks")] == [old.name]


def test_every_single_flipped_bit_is_noticed_and_finishes_nothing_new(tmp_path: Path) -> None:
    """Wherever one bit flips, no offset is taken for finished that was not."""
    journal, _ = opened(tmp_path)
    roll(journal, snapshot(a_tracker()))
    for offset in range(0, 40, 4):
        journal.append(form.encode_acked(0, -1, [offset, offset + 3]))
    used = journal._position
    journal.close()
    data = bytearray(segment_file(tmp_path).read_bytes())
    whole = replay(scan_segment(1, bytes(data)).entries).trackers[0].tracker
    for place in range(used):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        content = scan_segment(1, bytes(flipped))
        assert content.holes or content.torn or not content.whole
        for known in replay(content.entries).trackers.values():
            assert all(whole.is_finished(offset) or not known.tracker.is_finished(offset) for offset in range(60))


def test_one_bit_in_the_head_of_a_segment_loses_nothing(tmp_path: Path) -> None:
    """The snapshot is there twice: wherever it is damaged, its trackers and what was acknowledged behind it hold."""
    journal, _ = opened(tmp_path)
    trackers = [a_tracker(), OffsetTracker("other", "t", 1, tracker_id=1, watermark=5)]
    trackers[1].failures[7] = AttemptFailures(fails=2, due_wall_ms=9)
    table = [each for tracker in trackers for each in snapshot(tracker)[:-1]]
    roll(journal, [*table, form.encode_failure(1, 7, trackers[1].failures[7]), form.encode(form.SnapshotEnd(2))])
    head = journal._position
    journal.append(form.encode_acked(0, -1, [20, 30]) + form.encode_acked(1, -1, [5, 7]))
    journal.close()
    data = segment_file(tmp_path).read_bytes()
    for place in range(head):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        content = scan_segment(1, bytes(flipped))
        found = {known.tracker.group: known.tracker for known in replay(content.entries).trackers.values()}
        assert content.whole, place
        assert content.holes == 1, place
        assert found["other"].watermark == 7, place
        assert found["other"].failures == trackers[1].failures, place
        assert all(found["group"].is_finished(offset) for offset in range(20, 30)), place


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_random_damage_never_raises_and_finishes_nothing_new(seed: int) -> None:
    """Overwritten stretches cost redelivery only."""
    draw = random.Random(seed)
    data = bytearray(SEGMENT_BYTES_MIN)
    position = 0
    finished = set()
    blocks = [form.encode(form.SegmentHeader(form.FORMAT_VERSION, 3)), *snapshot(a_tracker())]
    for _ in range(30):
        start = draw.randrange(500)
        finished |= set(range(start, start + 5))
        blocks.append(form.encode_acked(0, -1, [start, start + 5]))
    for payload in blocks:
        block = form.encode_block(3, position, payload) + payload
        data[position : position + len(block)] = block
        position += len(block)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(position)
        data[place : place + 40] = draw.randbytes(min(40, len(data) - place))
    content = scan_segment(3, bytes(data))
    for known in replay(content.entries).trackers.values():
        assert {offset for offset in range(600) if known.tracker.is_finished(offset)} <= finished


def test_newer_format_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """A journal of a later version is not guessed at."""
    payload = (
        form.encode(form.SegmentHeader(form.FORMAT_VERSION, 1))[:1]
        + (form.FORMAT_VERSION + 1).to_bytes(2, "little")
        + (1).to_bytes(8, "little")
    )
    (tmp_path / f"{1:016d}.acks").write_bytes(form.encode_block(1, 0, payload) + payload)
    with pytest.raises(StoreFormatNewer, match="start the newer version"):
        opened(tmp_path)


def test_segment_size_below_the_minimum_is_refused(tmp_path: Path) -> None:
    """A segment must hold more than a few blocks."""
    with pytest.raises(ValueError, match="at least"):
        AckJournal(str(tmp_path), RealDisk(), segment_bytes=100)
