"""Where groups stand in their queues, and what moving them would mean.

A group's position in a queue is its tracker: the committed offset (the first one not known to be finished), and what is
finished above it. To move it to an offset N means: everything from N on is delivered, nothing below it is. So offsets
below N that were unfinished are skipped, and finished ones from N on are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import store_timestamp
from broker.queues.time_search import offset_at
from upstream.progress.replay import lag_of

if TYPE_CHECKING:
    from broker.queues.consume_queue import ConsumeQueue
    from broker.store import Store
    from upstream.progress.progress import Progress
    from upstream.progress.tracker import OffsetTracker


class Position(NamedTuple):
    """Where a group stands in one queue.

    Attributes:
        minimum: First offset that the queue holds; `maximum` is its end, the offset of the next message.
        committed: The committed offset.
        finished_above: Offsets finished above it.
        next_read: Next offset that will be taken into the pipeline.
        lag: Unfinished messages.
        oldest_ms: When the message at the committed offset was stored, wall clock; None when there is none, or it
            cannot be read.
    """

    group: str
    topic: str
    queue_id: int
    minimum: int
    maximum: int
    committed: int
    finished_above: int
    next_read: int
    lag: int
    oldest_ms: int | None


class TargetRefused(Exception):
    """A position cannot be moved there."""


class PositionUnknown(Exception):
    """A group stands nowhere in a topic or queue."""


class Target(NamedTuple):
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

    def resolve(self, tracker: OffsetTracker, queue: ConsumeQueue, store: Store) -> int:
        """Return the offset that it means in a queue.

        Raises:
            TargetRefused: It lies outside of what the queue holds.
        """
        if self.time_ms is not None:
            return offset_at(store, queue, self.time_ms)
        if self.shift is not None:
            return min(max(tracker.watermark + self.shift, queue.min_offset), queue.max_offset)
        if self.end is not None:
            return queue.min_offset if self.end == "earliest" else queue.max_offset
        assert self.offset is not None, "exactly one is set"
        if not queue.min_offset <= self.offset <= queue.max_offset:
            raise TargetRefused(
                f"Queue {queue.queue_id} can be set to {queue.min_offset} (its first message) up to {queue.max_offset} "
                f"(its end), not to {self.offset}; name one queue, or use earliest, latest or a time."
            )
        return self.offset


class Move(NamedTuple):
    """What moving one queue means.

    Attributes:
        start: Its committed offset now.
        to: Where it would stand.
        skipped: Unfinished messages that would not be delivered any more.
        repeated: Finished messages that would be delivered again: below `start`, and those finished above it.
        forgotten: How many of `repeated` were finished above `start`.
    """

    queue_id: int
    start: int
    to: int
    skipped: int
    repeated: int
    forgotten: int

    @property
    def changes(self) -> bool:
        """Whether anything would be different."""
        return self.to != self.start or self.forgotten > 0

    def document(self, *, in_flight: int) -> dict[str, Any]:
        """Return it as docs/admin.md shows it."""
        return {
            "queue": self.queue_id,
            "from": self.start,
            "to": self.to,
            "skipped": self.skipped,
            "repeated": self.repeated,
            "finishedAboveForgotten": self.forgotten,
            "inFlight": in_flight,
        }


def trackers_of(
    progress: Progress, store: Store, group: str, topic: str, queue_id: int | None = None
) -> dict[int, OffsetTracker]:
    """Return a group's trackers on a topic of the store, by queue; of one queue when given.

    Raises:
        PositionUnknown: There are none.
    """
    found = {
        number: tracker
        for (of_group, of_topic, number), tracker in sorted(progress.trackers.items())
        if (of_group, of_topic) == (group, topic) and queue_id in (None, number)
        if find_queue(store, topic, number) is not None
    }
    if not found:
        where = topic if queue_id is None else f"{topic}, queue {queue_id}"
        raise PositionUnknown(f"Group {group!r} has no offsets on {where!r}; `pyddmq offsets show` lists all.")
    return found


def plan_moves(trackers: Mapping[int, OffsetTracker], target: Target, store: Store) -> list[Move]:
    """Work out what moving these trackers means; changes nothing.

    Raises:
        TargetRefused: The target lies outside of a queue.
    """
    moves = []
    for queue_id, tracker in trackers.items():
        queue = find_queue(store, tracker.topic, queue_id)
        if queue is not None:
            moves.append(plan_move(tracker, target.resolve(tracker, queue, store)))
    return moves


def plan_move(tracker: OffsetTracker, to: int) -> Move:
    """Work out what moving a tracker to an offset means; changes nothing."""
    start = tracker.watermark
    skipped = tracker.unfinished(to) if to > start else 0
    passed = max(0, to - start) - skipped
    forgotten = tracker.ahead - passed
    return Move(tracker.queue_id, start, to, skipped, max(0, start - to) + forgotten, forgotten)


def positions(progress: Progress, store: Store, *, group: str | None = None) -> Iterator[Position]:
    """Yield where groups stand, by group, topic and queue; groups without a configuration too (D6)."""
    for name, topic, queue_id in sorted(progress.trackers):
        if group not in (None, name):
            continue
        tracker = progress.trackers[name, topic, queue_id]
        queue = find_queue(store, topic, queue_id)
        if queue is not None:
            yield Position(
                group=name,
                topic=topic,
                queue_id=queue_id,
                minimum=queue.min_offset,
                maximum=queue.max_offset,
                committed=tracker.watermark,
                finished_above=tracker.ahead,
                next_read=tracker.started,
                lag=lag_of(tracker, queue),
                oldest_ms=_stored_ms(store, queue, tracker.watermark),
            )


def find_queue(store: Store, topic: str, queue_id: int) -> ConsumeQueue | None:
    """Return a queue of the store, None when there is none of that name and number."""
    found = store.topics.get(topic)
    return found.queues[queue_id] if found is not None and queue_id < len(found.queues) else None


def _stored_ms(store: Store, queue: ConsumeQueue, offset: int) -> int | None:
    if offset >= queue.max_offset:
        return None
    try:
        physical, size, _ = queue.read(max(offset, queue.min_offset), 1)[0]
        return store_timestamp(store.read(physical, size))
    except (DamagedRecord, RecordGone, IndexError):
        return None
