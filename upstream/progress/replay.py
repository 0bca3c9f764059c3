"""From the ack journal's entries, the log and consumerOffset.json to trackers that may be trusted.

No I/O of its own: `replay` applies entries, `LogView` answers what the log holds, and the checks after it move
trackers to the safe side. Safe means: an offset is taken for finished only when the record that was acknowledged is
still the one at that offset. Everything that is in doubt comes again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.errors import StoreError
from broker.opening.opening import run_to_end
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue, Unit
from upstream.progress.journal_format import (
    Acked,
    Dead,
    Entry,
    Failed,
    Reset,
    Scanned,
    TrackerEntry,
    Truncated,
    Writing,
    Written,
)
from upstream.progress.tracker import Failure, OffsetTracker

_STEP_ENTRIES = 1024
UNKNOWN = -1
"""A physical offset that cannot be told."""


class QueuesOfTopic(Protocol):
    """What is read of a topic."""

    @property
    def queues(self) -> list[ConsumeQueue]: ...


class Recovery(Protocol):
    """What is read of the store's recovery."""

    @property
    def truncated_to(self) -> int | None: ...


class LogStore(Protocol):
    """What is read of the store."""

    @property
    def topics(self) -> Mapping[str, QueuesOfTopic]: ...

    def read(self, physical: int, size: int) -> memoryview: ...

    @property
    def recovery(self) -> Recovery: ...


class LogView:
    """What the log holds at a queue offset."""

    def __init__(self, topics: Mapping[str, QueuesOfTopic]) -> None:
        self._topics = topics

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None when the store has none of that name and number."""
        found = self._topics.get(topic)
        if found is None or queue_id >= len(found.queues):
            return None
        return found.queues[queue_id]

    def physical(self, queue: ConsumeQueue | None, offset: int) -> int:
        """Return the commit-log offset of the record at a queue offset, or UNKNOWN where there is none to be had."""
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return UNKNOWN
        try:
            units = queue.read(offset, 1)
        except (StoreError, OSError):
            return UNKNOWN
        return _physical_of(units)

    def physical_unchecked(self, queue: ConsumeQueue | None, offset: int) -> int:
        """Return the same without comparing the unit with its record, which costs more than all the rest of an ack.

        For fences that are being written: a damaged unit makes one that will not match, and so a redelivery.
        """
        if queue is None:
            return UNKNOWN
        checker, queue.checker = queue.checker, None
        try:
            return self.physical(queue, offset)
        finally:
            queue.checker = checker


def _physical_of(units: Sequence[Unit]) -> int:
    """Commit-log offset in a unit; UNKNOWN for fillers and for units that are missing from their file."""
    return units[0][0] if units and units[0][1] not in (0, FILLER_SIZE) else UNKNOWN


@dataclass(slots=True)
class Replayed:
    """One tracker as the journal left it."""

    tracker: OffsetTracker
    file_values: list[int]
    """What consumerOffset.json may hold by our own hand: the last one written, then those that may have been."""
    fences: list[tuple[int, int]]
    """(offset, physical) of finished records; one matching fence vouches for every offset below it."""


@dataclass(slots=True)
class Replay:
    """All that the journal says."""

    trackers: dict[int, Replayed] = field(default_factory=dict)
    scanned: dict[tuple[str, int], int] = field(default_factory=dict)
    orphans: int = 0
    """Entries of trackers whose declaration was lost; their acks come again."""


def replay(entries: Iterable[Entry]) -> Replay:
    """Do `replaying` in one go."""
    return run_to_end(replaying(entries))


def replaying(entries: Iterable[Entry]) -> Generator[None, None, Replay]:
    """Apply a segment's entries in order, in steps of some entries."""
    result = Replay()
    trackers = result.trackers
    for place, entry in enumerate(entries, 1):
        if place % _STEP_ENTRIES == 0:
            yield
        if isinstance(entry, (Acked, Failed, Dead, Reset, Truncated, Writing)):
            known = trackers.get(entry.tracker_id)
            if known is None:
                result.orphans += 1
            else:
                try:
                    _apply(known, entry)
                except ValueError:
                    # No tracker reaches so far above its watermark: what the entry says comes again.
                    result.orphans += 1
        elif isinstance(entry, TrackerEntry):
            trackers[entry.tracker_id] = _declare(entry)
        elif isinstance(entry, Written):
            for each in trackers.values():
                del each.file_values[:-1]
        elif isinstance(entry, Scanned):
            result.scanned[entry.topic, entry.queue_id] = entry.offset
    return result


def _declare(entry: TrackerEntry) -> Replayed:
    tracker = OffsetTracker(entry.group, entry.topic, entry.queue_id, tracker_id=entry.tracker_id)
    tracker.load(entry.watermark, entry.marks)
    fences = []
    if entry.fence >= 0:
        fences.append((entry.watermark - 1, entry.fence))
    if entry.high_fence >= 0:
        fences.append((tracker.high - 1, entry.high_fence))
    return Replayed(tracker, list(entry.file_values), fences)


def _apply(known: Replayed, entry: Acked | Failed | Dead | Reset | Truncated | Writing) -> None:
    tracker = known.tracker
    if isinstance(entry, Acked):
        ranges = entry.ranges
        for index in range(0, len(ranges), 2):
            tracker.finish_range(ranges[index], ranges[index + 1])
        if entry.fence >= 0:
            known.fences.append((ranges[-1] - 1, entry.fence))
    elif isinstance(entry, Failed):
        if not tracker.is_finished(entry.offset):
            before = tracker.failures.get(entry.offset, Failure())
            tracker.failures[entry.offset] = before.with_count(entry.kind, entry.count, entry.due_wall_ms)
    elif isinstance(entry, Dead):
        tracker.finish(entry.offset)
    elif isinstance(entry, Writing):
        known.file_values.append(entry.value)
    elif isinstance(entry, Reset):
        tracker.reset(entry.offset)
        known.fences.clear()
    else:
        tracker.clamp(entry.end)
        known.fences = [fence for fence in known.fences if fence[0] < entry.end]


def drop_unvouched(known: Replayed, log: LogView) -> int:
    """Forget acks of records that the log no longer holds: it was cut and written on without this journal (D11).

    A segment is written during one life of the log and a cut takes a suffix, so the highest fence that still matches
    vouches for everything below it. Fences that cannot be compared (gone by retention, above the queue's end, a
    filler) say nothing.

    Returns:
        How many finished offsets were forgotten; 0 in the ordinary case.
    """
    tracker = known.tracker
    queue = log.queue(tracker.topic, tracker.queue_id)
    if queue is None:
        return 0
    trusted = None
    for offset, physical in sorted(known.fences, reverse=True):
        found = log.physical(queue, offset)
        if found == UNKNOWN:
            continue
        if found == physical:
            break
        trusted = queue.min_offset
    else:
        return tracker.clamp(trusted) if trusted is not None else 0
    return tracker.clamp(offset + 1) if trusted is not None else 0


def raise_to_minimum(tracker: OffsetTracker, queue: ConsumeQueue | None) -> int:
    """Move a tracker that stands below the oldest message up to it; return how many unfinished offsets were skipped."""
    if queue is None or tracker.watermark >= queue.min_offset:
        return 0
    return finish_gone(tracker, queue, tracker.watermark)


def finish_gone(tracker: OffsetTracker, queue: ConsumeQueue, start: int) -> int:
    """Finish the offsets from `start` on that lie below the oldest message; return how many messages were skipped.

    Offsets between two lives of a topic are finished, too: they never held a message.
    """
    void = range(max(start, queue.void_from), queue.base_offset)
    if not void:
        return tracker.finish_range(start, queue.min_offset)
    lost = tracker.finish_range(start, void.start) if start < void.start else 0
    tracker.finish_range(void.start, void.stop)
    return lost + (tracker.finish_range(void.stop, queue.min_offset) if queue.min_offset > void.stop else 0)


def lag_of(tracker: OffsetTracker, queue: ConsumeQueue) -> int:
    """How many messages of a queue are not finished; offsets between two lives of its topic are none."""
    return max(0, tracker.unfinished(queue.max_offset) - queue.void_above(tracker.watermark))
