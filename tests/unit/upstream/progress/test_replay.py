"""From entries of the ack journal to trackers: what each entry does, and what of it is believed of a log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from broker.queues.consume_queue import FILLER_BYTES, UNIT, ConsumeQueue
from pyddmq.testing import SimDisk
from upstream.progress import journal_format as form
from upstream.progress import replay as module
from upstream.progress.finished_marks import FinishedMarks, pack
from upstream.progress.replay import Replayed, drop_unvouched, finish_gone, lag_of, replay
from upstream.progress.tracker import FailureKind, OffsetTracker
from upstream.queues import Queues

DECLARED = form.TrackerEntry(1, "g", "t", 0, 10, -1, -1, (), FinishedMarks())


def replayed(*entries: form.Entry) -> Replayed:
    """The tracker 1 after a declaration at 10 and these entries."""
    return replay([DECLARED, *entries]).trackers[1]


def test_acks_move_the_watermark_as_far_as_there_is_no_gap() -> None:
    """What is above a gap is finished there; dead letters count as finished."""
    known = replayed(form.Acked(1, 700, [10, 12, 14, 15]), form.Dead(1, 16))
    assert (known.tracker.watermark, known.tracker.finished_ranges()) == (12, [(14, 15), (16, 17)])
    assert known.fences == [(14, 700)]


def test_declaration_brings_fences_of_both_its_ends() -> None:
    """The record below the watermark, and the highest that is finished above it."""
    entry = DECLARED._replace(fence=600, high_fence=900, marks=pack(b"\x00\x01"))
    assert replay([entry]).trackers[1].fences == [(9, 600), (11, 900)]


def test_failures_count_by_kind_until_the_offset_is_finished() -> None:
    """The last due time holds; an entry of a finished offset is late and says nothing."""
    failed = [form.FailedAttempt(1, 11, FailureKind.FAIL, 1, 50), form.FailedAttempt(1, 11, FailureKind.TIMEOUT, 2, 70)]
    known = replayed(*failed)
    assert (known.tracker.failures[11].fails, known.tracker.failures[11].timeouts) == (1, 2)
    assert known.tracker.failures[11].due_wall_ms == 70
    assert not replayed(form.Dead(1, 11), *failed).tracker.failures


def test_counts_are_those_that_were_written_and_the_dead_letters_since() -> None:
    """A reset, and what is forgotten with it, does not change what was lost."""
    counted = form.Counted(1, 5, 70, 2)
    tracker = replayed(form.Dead(1, 11), counted, form.Dead(1, 12), form.Reset(1, 5)).tracker
    assert (tracker.expired, tracker.expired_ms, tracker.dead_letters) == (5, 70, 3)


def test_reset_forgets_acks_and_what_vouched_for_them() -> None:
    """A fence of before would be compared with records that the group is to get again."""
    known = replayed(form.Acked(1, 700, [10, 20]), form.Reset(1, 5))
    assert (known.tracker.watermark, known.tracker.finished_ranges(), known.fences) == (5, [], [])


def test_cut_log_takes_acks_above_its_end_with_it() -> None:
    """Other records stand there now."""
    known = replayed(form.Acked(1, 700, [10, 20]), form.Acked(1, 900, [25, 30]), form.Truncated(1, 18, 500))
    assert (known.tracker.watermark, known.tracker.finished_ranges(), known.fences) == (18, [], [])


def test_written_values_leave_the_last_and_what_was_announced_since() -> None:
    """Before that, the file may hold any of those that were announced."""
    entries: list[form.Entry] = [form.Writing(1, 3), form.Writing(1, 4)]
    assert replayed(*entries).file_values == [3, 4]
    assert replayed(*entries, form.Written(), form.Writing(1, 5)).file_values == [4, 5]


def test_entry_of_an_unknown_tracker_and_one_that_no_tracker_reaches_are_orphans() -> None:
    """Its declaration stood in a block that is damaged: those acks come again, all others hold."""
    result = replay([DECLARED, form.Dead(2, 5), form.Dead(1, 1 << 50), form.Dead(1, 10), form.Scanned("%DLQ%g", 0, 7)])
    assert (result.orphans, result.trackers[1].tracker.watermark) == (2, 11)
    assert result.scanned == {("%DLQ%g", 0): 7}


def ends_at_50(topic: str, queue_id: int) -> int:
    """End of the queue as recovery left it."""
    return 50


BEYOND: list[tuple[list[form.Entry], list[tuple[int, int]], int, int]] = [
    ([form.Acked(1, 700, [12, 14, 40, 1 << 28])], [(12, 14), (40, 50)], 1 << 28, (1 << 28) - 50),
    ([form.Acked(1, 700, [60, 70])], [], 70, 10),
    ([form.Dead(1, 1 << 29)], [], (1 << 29) + 1, 1),
    ([form.Acked(1, 700, [60, 70]), form.Reset(1, 20)], [], 20, 0),
    ([form.Acked(1, 700, [60, 70]), form.Truncated(1, 45, 500)], [], 10, 0),
    ([form.Acked(1, 700, [60, 70]), form.Truncated(1, 65, 500)], [], 70, 10),
]


@pytest.mark.parametrize(("entries", "ranges", "high", "dropped"), BEYOND)
def test_what_no_queue_can_hold_is_told_and_takes_no_memory(
    entries: list[form.Entry], ranges: list[tuple[int, int]], high: int, dropped: int
) -> None:
    """A block of a few bytes, whose sum is right, may finish a thousand million offsets."""
    known = replay([DECLARED, *entries], ends_at_50).trackers[1]
    assert known.tracker.finished_ranges() == ranges
    assert len(known.tracker.marks) <= 40
    assert (known.high, known.dropped) == (high, dropped)


def test_snapshot_of_more_than_a_queue_can_hold_is_taken_over_to_its_end() -> None:
    """Its fence is of an offset behind that end, and vouches for nothing."""
    entry = DECLARED._replace(
        fence=600, high_fence=900, marks=FinishedMarks(1, 1 << 28, pack(bytes(5) + b"\x01" * 100).data)
    )
    known = replay([entry], ends_at_50).trackers[1]
    assert (known.tracker.finished_ranges(), known.fences) == ([(15, 50)], [(9, 600)])
    assert (known.high, known.dropped) == (10 + (1 << 28), 65)


def test_failure_of_a_message_that_is_gone_is_not_that_of_the_next_one_there() -> None:
    """The log lost its tail: who gets the offset next has its attempts before it."""
    entries: list[form.Entry] = [
        form.FailedAttempt(1, 49, FailureKind.FAIL, 1, 50),
        form.FailedAttempt(1, 50, FailureKind.FAIL, 1, 50),
    ]
    assert set(replay([DECLARED, *entries], ends_at_50).trackers[1].tracker.failures) == {49}


def test_queues_that_are_not_here_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far they reach nobody knows; what moves a watermark takes no memory, and so nothing of it."""
    monkeypatch.setattr(module, "UNSEEN_AHEAD_MAX", 100)
    entries: list[form.Entry] = [
        form.Acked(1, -1, [10, 10_000]),
        form.Acked(1, -1, [10_040, 10_060]),
        form.Acked(1, -1, [10_070, 10_200]),
    ]
    other = DECLARED._replace(tracker_id=2, queue_id=1, marks=pack(bytes(50) + b"\x01"))
    result = replay([DECLARED, *entries, other])
    assert result.orphans == 2
    assert result.trackers[1].tracker.finished_ranges() == [(10_040, 10_060)]
    assert (result.trackers[2].tracker.watermark, result.trackers[2].tracker.ahead) == (10, 0)


def new_queue(*physicals: int | None, base: int = 0, void_from: int = 0) -> ConsumeQueue:
    """A queue whose records lie there; None stands for one that was lost."""
    queue = ConsumeQueue("t", 0, root="/s", disk=SimDisk(), file_units=1000)
    queue.begin_life(base, void_from=void_from or base)
    for offset, physical in enumerate(physicals, base):
        queue.restore(offset, FILLER_BYTES if physical is None else UNIT.pack(physical, 100, 0))
    return queue


def vouched(fences: list[tuple[int, int]], *physicals: int | None) -> int:
    """Watermark after all offsets below 8 were finished, with these fences, over a log with these records."""
    tracker = OffsetTracker("g", "t", 0, tracker_id=1)
    tracker.finish_range(0, 8)
    queue = new_queue(*physicals)
    drop_unvouched(Replayed(tracker, [], fences), cast(Queues, SimpleNamespace(queue=lambda topic, queue_id: queue)))
    return tracker.watermark


@pytest.mark.parametrize(
    ("fences", "watermark"),
    [
        ([(7, 700)], 8),
        ([(3, 300), (7, 777)], 4),
        ([(3, 333), (7, 700)], 8),
        ([(3, 333), (7, 777)], 0),
        ([(5, 555), (2, 200)], 3),
        ([(9, 900)], 8),
        ([], 8),
    ],
)
def test_highest_fence_that_still_matches_vouches_for_all_below_it(
    fences: list[tuple[int, int]], watermark: int
) -> None:
    """D11: acks above it are of records that the log no longer holds; a fence above the queue's end says nothing."""
    assert vouched(fences, *[100 * offset for offset in range(8)]) == watermark


def test_filler_says_nothing_of_a_fence() -> None:
    """Its record was lost to damage, which is no sign of another log."""
    assert vouched([(7, 700)], *[100 * offset for offset in range(7)], None) == 8


def test_offsets_between_two_lives_of_a_topic_are_no_messages() -> None:
    """They are finished without being counted as skipped, and are no lag."""
    tracker = OffsetTracker("g", "t", 0, tracker_id=1, watermark=3)
    queue = new_queue(100, 200, base=10, void_from=5)
    assert lag_of(tracker, queue) == 2 + 2
    assert finish_gone(tracker, queue, 3) == 2
    assert (tracker.watermark, lag_of(tracker, queue)) == (10, 2)
