"""From the ack journal's entries, the log and consumerOffset.json to trackers that may be trusted.

No I/O of its own: `replay` applies entries, queues answer what they hold, and the checks after it move trackers to the
safe side. Safe means: an offset is taken for finished only when the message that was acknowledged is still the one at
that offset. Everything that is in doubt comes again.

Each offset above a watermark costs a byte, and a block of a few bytes may say a thousand million. So no more of what is
finished is taken over than the queue, which is recovered, can hold; anything above is reported as beyond
the log. Of queues that are not here that is unknown: they have a bound together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

from broker.runtime.steps import run_now
from upstream.progress.journal_format import (
    Acked,
    Counted,
    Dead,
    Entry,
    FailedAttempt,
    Reset,
    ResetEnd,
    Scanned,
    TrackerEntry,
    Truncated,
    Writing,
    Written,
)
from upstream.progress.tracker import AttemptFailures, OffsetTracker
from upstream.queues import UNKNOWN, Queues, QueueView

_STEP_ENTRIES = 1024
UNSEEN_AHEAD_MAX = 1 << 26
"""Offsets above watermarks of queues that are not here: all together."""

EndOf = Callable[[str, int], int | None]
"""Tells where a queue of a topic ends; None for one that is not here."""


def identity_at(queue: QueueView | None, offset: int, *, checked: bool = True) -> int:
    """Return the identity of the message at a queue offset, or UNKNOWN where there is none to be had.

    Unchecked for fences that are being written: a damaged queue makes one that will not match, and so a redelivery.
    """
    if queue is None or not queue.min_offset <= offset < queue.max_offset:
        return UNKNOWN
    return queue.identity(offset, checked=checked)


@dataclass(slots=True)
class Replayed:
    """One tracker as the journal left it."""

    tracker: OffsetTracker
    file_values: list[int]
    """What consumerOffset.json may hold by our own hand: the last one written, then those that may have been."""
    fences: list[tuple[int, int]]
    """(offset, physical) of finished records; one matching fence vouches for every offset below it."""
    end: int | None = None
    """Where its queue ends, None where unknown: nothing from there on was taken over."""
    claimed: int = 0
    """One past the highest finished offset beyond that end; 0 without one."""
    dropped: int = 0
    """How many finished offsets do."""

    @property
    def high(self) -> int:
        """One past the highest offset that the journal says is finished."""
        return max(self.tracker.high, self.claimed)


@dataclass(slots=True)
class JournalReplay:
    """All that the journal says."""

    trackers: dict[int, Replayed] = field(default_factory=dict)
    scanned: dict[tuple[str, int], int] = field(default_factory=dict)
    orphans: int = 0
    """Entries of trackers whose declaration was lost, or that no tracker can hold; their acks come again."""
    unseen_left: int = 0
    """How many offsets queues that are not here may still have above their watermarks."""


def _unseen(topic: str, queue_id: int) -> None:
    return None


def replay(entries: Iterable[Entry], end_of: EndOf = _unseen) -> JournalReplay:
    """Do `replaying` in one go."""
    return run_now(replaying(entries, end_of))


def replaying(entries: Iterable[Entry], end_of: EndOf = _unseen) -> Generator[None, None, JournalReplay]:
    """Apply a segment's entries in order, in steps of some entries; of what is finished, nothing beyond its queue."""
    result = JournalReplay(unseen_left=UNSEEN_AHEAD_MAX)
    trackers = result.trackers
    for place, entry in enumerate(entries, 1):
        if place % _STEP_ENTRIES == 0:
            yield
        if isinstance(entry, (Acked, FailedAttempt, Dead, Reset, ResetEnd, Truncated, Writing, Counted)):
            known = trackers.get(entry.tracker_id)
            if known is None:
                result.orphans += 1
            else:
                try:
                    _apply(result, known, entry)
                except ValueError:
                    # No tracker reaches so far above its watermark: what the entry says comes again.
                    result.orphans += 1
        elif isinstance(entry, TrackerEntry):
            trackers[entry.tracker_id] = _declare(result, entry, end_of(entry.topic, entry.queue_id))
        elif isinstance(entry, Written):
            for each in trackers.values():
                del each.file_values[:-1]
        elif isinstance(entry, Scanned):
            result.scanned[entry.topic, entry.queue_id] = entry.offset
    return result


def _declare(found: JournalReplay, entry: TrackerEntry, end: int | None) -> Replayed:
    tracker = OffsetTracker(entry.group, entry.topic, entry.queue_id, tracker_id=entry.tracker_id)
    known = Replayed(tracker, list(entry.file_values), [], end)
    before = found.trackers.get(entry.tracker_id)
    if before is not None and before.end is None:
        # The second copy of a damaged snapshot takes the place of the first.
        found.unseen_left += len(before.tracker.marks)
    if end is None and entry.marks.span > found.unseen_left:
        found.orphans += 1
        row, known.dropped = b"", 0
    else:
        row, known.dropped = entry.marks.row(entry.marks.span if end is None else max(0, end - entry.watermark))
        found.unseen_left -= len(row) if end is None else 0
    tracker.load(entry.watermark, row)
    if entry.fence >= 0:
        known.fences.append((entry.watermark - 1, entry.fence))
    if known.dropped:
        known.claimed = entry.watermark + entry.marks.span
    elif entry.high_fence >= 0:
        known.fences.append((tracker.high - 1, entry.high_fence))
    return known


def _apply(
    found: JournalReplay,
    known: Replayed,
    entry: Acked | FailedAttempt | Dead | Reset | ResetEnd | Truncated | Writing | Counted,
) -> None:
    tracker = known.tracker
    if isinstance(entry, Acked):
        ranges = entry.ranges
        for index in range(0, len(ranges), 2):
            _finish(found, known, ranges[index], ranges[index + 1])
        if entry.fence >= 0:
            known.fences.append((ranges[-1] - 1, entry.fence))
    elif isinstance(entry, FailedAttempt):
        beyond = known.end is not None and entry.offset >= known.end
        if not (beyond or tracker.is_finished(entry.offset)):
            before = tracker.failures.get(entry.offset, AttemptFailures())
            tracker.failures[entry.offset] = before.with_count(entry.kind, entry.count, entry.due_wall_ms)
    elif isinstance(entry, Dead):
        _finish(found, known, entry.offset, entry.offset + 1)
        tracker.dead_letters += 1
    elif isinstance(entry, Counted):
        tracker.expired, tracker.expired_ms, tracker.dead_letters = entry[1:]
    elif isinstance(entry, ResetEnd):
        tracker.reset_end = entry.end
    elif isinstance(entry, Writing):
        known.file_values.append(entry.value)
    elif isinstance(entry, Reset):
        tracker.reset(entry.offset)
        known.fences.clear()
        known.claimed = known.dropped = 0
    else:
        tracker.clamp(entry.end)
        known.fences = [fence for fence in known.fences if fence[0] < entry.end]
        if known.end is not None and entry.end <= known.end:
            known.claimed = known.dropped = 0


def _finish(found: JournalReplay, known: Replayed, start: int, end: int) -> None:
    """Finish a range as far as its queue reaches. Raises ValueError: the reach is unknown, and it is too much."""
    tracker = known.tracker
    if known.end is None:
        # Only a range with a gap before it takes memory for the gap.
        more = end - tracker.high if start > tracker.watermark else 0
        if more > found.unseen_left:
            raise ValueError(f"{more} offsets more of a queue that is not here")
        found.unseen_left -= max(0, more)
    elif end > known.end:
        known.claimed = max(known.claimed, end)
        # What the queue does not reach any more: counted once, not as finished.
        known.dropped += end - max(start, known.end, tracker.watermark)
        end = known.end
    tracker.finish_range(start, end)


def drop_unvouched(known: Replayed, queues: Queues) -> int:
    """Forget acks of records that the log no longer holds: it was cut and written on without this journal (D11).

    A segment is written during one life of the log and a cut takes a suffix, so the highest fence that still matches
    vouches for everything below it. Fences that cannot be compared (gone by retention, above the queue's end, a
    filler) say nothing.

    Returns:
        How many finished offsets were forgotten; 0 in the ordinary case.
    """
    tracker = known.tracker
    queue = queues.queue(tracker.topic, tracker.queue_id)
    if queue is None:
        return 0
    trusted = None
    for offset, physical in sorted(known.fences, reverse=True):
        found = identity_at(queue, offset)
        if found == UNKNOWN:
            continue
        if found == physical:
            break
        trusted = queue.min_offset
    else:
        return tracker.clamp(trusted) if trusted is not None else 0
    return tracker.clamp(offset + 1) if trusted is not None else 0


def finish_gone(tracker: OffsetTracker, queue: QueueView, start: int) -> int:
    """Finish the offsets from `start` on that lie below the oldest message; return how many messages were skipped.

    Offsets between two lives of a topic are finished, too: they never held a message.
    """
    void = range(max(start, queue.void_from), queue.base_offset)
    if not void:
        return tracker.finish_range(start, queue.min_offset)
    lost = tracker.finish_range(start, void.start) if start < void.start else 0
    tracker.finish_range(void.start, void.stop)
    return lost + (tracker.finish_range(void.stop, queue.min_offset) if queue.min_offset > void.stop else 0)


def lag_of(tracker: OffsetTracker, queue: QueueView) -> int:
    """How many messages of a queue are not finished; offsets between two lives of its topic are none."""
    return max(0, tracker.unfinished(queue.max_offset) - queue.void_above(tracker.watermark))
