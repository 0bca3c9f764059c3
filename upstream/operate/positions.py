"""Where groups stand in their queues, and what moving them would mean.

A group's position in a queue is its tracker: the committed offset (the first one not known to be finished), and what is
finished above it. To move it to an offset N means: everything from N on is delivered, nothing below it is. So offsets
below N that were unfinished are skipped, and finished ones from N on are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from upstream.progress.replay import lag_of
from upstream.views import Move, Position

if TYPE_CHECKING:
    from upstream.progress.progress import Progress
    from upstream.progress.tracker import OffsetTracker
    from upstream.queues import QueueView
    from upstream.source import Times


class TargetRefused(Exception):
    """A position cannot be moved there."""


class PositionUnknown(Exception):
    """A group has no position in a topic or queue."""


class PositionTarget(NamedTuple):
    """Where positions are to be moved: exactly one of these is set.

    Attributes:
        offset: This offset.
        time_ms: The first message stored at or after this moment, wall clock.
        shift: So far from the committed offset, at most to the ends of the queue.
        end: `earliest` or `latest`.
    """

    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None
    end: str | None = None

    @property
    def is_one(self) -> bool:
        """Whether exactly one is set."""
        return sum(each is not None for each in self) == 1

    def resolve(self, tracker: OffsetTracker, queue: QueueView, times: Times) -> int:
        """Return the offset that it means in a queue.

        Raises:
            TargetRefused: It is outside of the queue.
        """
        if self.time_ms is not None:
            return times.offset_at(queue, self.time_ms)
        if self.shift is not None:
            return min(max(tracker.watermark + self.shift, queue.min_offset), queue.max_offset)
        if self.offset is None:
            return queue.min_offset if self.end == "earliest" else queue.max_offset
        if not queue.min_offset <= self.offset <= queue.max_offset:
            raise TargetRefused(
                f"Queue {queue.queue_id} can be set to {queue.min_offset} (its first message) up to "
                f"{queue.max_offset} (its end), not to {self.offset}; select one queue, or use earliest, "
                "latest or a time."
            )
        return self.offset


def trackers_of(
    progress: Progress, times: Times, group: str, topic: str, queue_id: int | None = None
) -> dict[int, OffsetTracker]:
    """Return a group's trackers on a topic of the store, by queue; of one queue when given.

    Raises:
        PositionUnknown: There are none.
    """
    found = {
        number: tracker
        for (of_group, of_topic, number), tracker in sorted(progress.trackers.items())
        if (of_group, of_topic) == (group, topic) and queue_id in (None, number)
        if times.queue(topic, number) is not None
    }
    if not found:
        where = topic if queue_id is None else f"{topic}, queue {queue_id}"
        raise PositionUnknown(f"Group {group!r} has no offsets on {where!r}; `pyddmq offsets show` lists all offsets.")
    return found


def plan_moves(trackers: Mapping[int, OffsetTracker], target: PositionTarget, times: Times) -> list[Move]:
    """Work out what moving these trackers means; changes nothing.

    Raises:
        TargetRefused: The target is outside of a queue.
    """
    moves = []
    for queue_id, tracker in trackers.items():
        queue = times.queue(tracker.topic, queue_id)
        if queue is not None:
            moves.append(plan_move(tracker, target.resolve(tracker, queue, times)))
    return moves


def plan_move(tracker: OffsetTracker, to: int) -> Move:
    """Work out what moving a tracker to an offset means; changes nothing."""
    start = tracker.watermark
    skipped = tracker.unfinished(to) if to > start else 0
    passed = max(0, to - start) - skipped
    forgotten = tracker.ahead - passed
    return Move(
        queue=tracker.queue_id,
        start=start,
        to=to,
        skipped=skipped,
        repeated=max(0, start - to) + forgotten,
        finished_above_forgotten=forgotten,
    )


def positions(progress: Progress, times: Times, *, group: str | None = None) -> Iterator[Position]:
    """Yield where groups stand, by group, topic and queue; groups without a configuration too (D6)."""
    for name, topic, queue_id in sorted(progress.trackers):
        if group not in (None, name):
            continue
        tracker = progress.trackers[name, topic, queue_id]
        queue = times.queue(topic, queue_id)
        if queue is not None:
            yield Position(
                group=name,
                topic=topic,
                queue=queue_id,
                min=queue.min_offset,
                max=queue.max_offset,
                committed=tracker.watermark,
                finished_above=tracker.ahead,
                next=tracker.started,
                lag=lag_of(tracker, queue),
                oldest_ms=None if (stored := times.stored(queue, tracker.watermark)) is None else stored.stored_ms,
            )
