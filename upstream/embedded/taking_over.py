"""What RocketMQ had in hand at a hand-over becomes unfinished here, in place (D10).

A POP consumer's message is below the committed offset from the moment it was handed out. Where the committed offsets
are RocketMQ's, those that were not acknowledged are made unfinished again: the watermark goes down to the first of
them, and what is between is finished above it. RocketMQ's revive records stay in the log. Its revive group is moved
behind them in the same write of `consumerOffset.json` that lowers the watermarks, so that after the way back a message
comes from its queue, and not from there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

import structlog

from broker.queues.consume_queue import ConsumeQueue
from broker.queues.offsets import REVIVE_GROUP, ConsumerOffsets
from broker.runtime.metrics import Metrics, declare
from broker.scheduled.pop_records import Popped, popped
from broker.store import Store
from upstream.progress.tracker import OffsetTracker
from upstream.queues import TakeOver, TrackerOf

POPPED_TAKEN = declare(
    "pyddmq_popped_taken_over_total",
    "Messages in flight with POP consumers of RocketMQ at the handover; they are delivered again.",
    ("group",),
)

log = structlog.get_logger()


QueueOf = Callable[[str, int], ConsumeQueue | None]
"""Returns a queue by topic and number, None when there is none."""


def taking_over(store: Store, queue_of: QueueOf, offsets: ConsumerOffsets) -> Generator[None, None, TakeOver]:
    """Read what RocketMQ had in hand, in steps of bounded work. Raises OSError."""
    for found in popped(store, offsets):
        if found is not None:
            return partial(take_over, found, queue_of, offsets)
        yield
    raise AssertionError("it ends with its findings")


def take_over(
    hand: Popped, queue_of: QueueOf, offsets: ConsumerOffsets, tracker_of: TrackerOf, metrics: Metrics
) -> bool:
    """Make what is in hand unfinished, in memory; the caller makes journal and offsets durable.

    Args:
        hand: What is in hand.
        queue_of: Finds queues; what names none is passed over.
        offsets: Committed offsets; the revive group's are moved.
        tracker_of: Returns the tracker of a group's queue, which is at the committed offset at least.
        metrics: Counts messages.

    Returns:
        Whether anything changed.
    """
    changed = False
    for (group, topic, queue_id), unacked in hand.in_hand.items():
        queue = queue_of(topic, queue_id)
        if queue is None or offsets.get(group, topic, queue_id) is None:
            # Without a committed offset the group begins below them anyway.
            continue
        tracker = tracker_of(group, topic, queue_id)
        count = make_unfinished(tracker, [each for each in unacked if queue.min_offset <= each < queue.max_offset])
        if count:
            changed = True
            metrics.counter(POPPED_TAKEN, group).add(count)
            log.info(
                "popped_taken_over", group=group, topic=topic, queue=queue_id, count=count, watermark=tracker.watermark
            )
    for (topic, queue_id), last in hand.read_to.items():
        if offsets.get(REVIVE_GROUP, topic, queue_id) != last:
            offsets.set(REVIVE_GROUP, topic, queue_id, last)
            changed = True
    return changed


def make_unfinished(tracker: OffsetTracker, offsets: Sequence[int]) -> int:
    """Have a tracker take finished offsets for unfinished again; what else is finished stays so.

    Args:
        tracker: Nothing was handed out of it yet.
        offsets: Ascending.

    Returns:
        How many were finished.
    """
    again = [offset for offset in offsets if tracker.is_finished(offset)]
    if not again:
        return 0
    finished = [(min(again[0], tracker.watermark), tracker.watermark), *tracker.finished_ranges()]
    tracker.reset(finished[0][0])
    left = iter([*again, tracker.watermark + (1 << 62)])
    following = next(left)
    for start, end in finished:
        at = start
        while at < end:
            while following < at:
                following = next(left)
            tracker.finish_range(at, min(end, following))
            at = following + 1 if following < end else end
    return len(again)
