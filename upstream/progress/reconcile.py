"""Where ack journal, consumerOffset.json and log disagree at start, and who gives way (D10, D11).

| disagreement | who wins |
| --- | --- |
| the file holds a value that this journal never wrote | the file: the queue's acks above it are dropped |
| the file has no value where the journal wrote one | the journal; the value is written again |
| an offset is beyond the end of its queue (recovery cut the log's tail) | the log, for file and journal |
| the log holds another record at an acknowledged offset (cut, then written on without this journal) | the log |

Every case is counted and logged once per queue; each costs redelivery only.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import structlog

from broker.runtime.metrics import Metrics, declare
from upstream.progress import journal_format as form
from upstream.progress.journal import SegmentContent
from upstream.progress.replay import JournalReplay, Replayed, drop_unvouched
from upstream.progress.tracker import OffsetTracker
from upstream.queues import CommittedOffsets, Queues

log = structlog.get_logger()

JOURNAL_DAMAGE = declare(
    "pyddmq_ack_journal_damage_total",
    "Places of the ack journal found damaged at start, by kind; their messages are delivered again.",
    ("kind",),
)
OFFSETS_FOREIGN = declare(
    "pyddmq_offsets_foreign_total", "Queues whose offset another process changed in consumerOffset.json.", ("group",)
)
OFFSETS_MISSING = declare(
    "pyddmq_offsets_missing_total", "Queues whose offset was missing in consumerOffset.json at start.", ("group",)
)
OFFSETS_CLAMPED = declare(
    "pyddmq_offsets_clamped_total", "Queues whose offset was beyond the end of the log at start.", ("group",)
)
ACKS_UNVOUCHED = declare(
    "pyddmq_acks_unvouched_total", "Acks dropped because the log has another record at their offset.", ("group",)
)
ACKS_DROPPED = declare(
    "pyddmq_acks_dropped_total",
    "Acks above a watermark that were dropped; their messages are delivered again.",
    ("group",),
)


def names_of(tracker: OffsetTracker) -> dict[str, Any]:
    """Return what a log line says of a tracker."""
    return {"group": tracker.group, "topic": tracker.topic, "queue": tracker.queue_id}


def report_damage(content: SegmentContent, found: JournalReplay, metrics: Metrics) -> None:
    """Count and log what could not be read of the journal."""
    kinds = {
        "hole": content.holes,
        "torn_tail": int(content.torn),
        "snapshot": int(not content.whole),
        "orphan": found.orphans,
    }
    for kind, count in kinds.items():
        if count:
            metrics.counter(JOURNAL_DAMAGE, kind).add(count)
    if content.holes or found.orphans or not content.whole:
        log.error("ack_journal_damaged", holes=content.holes, orphans=found.orphans, snapshot_whole=content.whole)


class Reconciler:
    """Resolves the disagreements of one start.

    Attributes:
        changed: Whether consumerOffset.json has to be written.
        markers: Journal entries that say what was done.
    """

    def __init__(self, offsets: CommittedOffsets, queues: Queues, metrics: Metrics) -> None:
        self.changed = False
        self.markers: list[bytes] = []
        self._offsets = offsets
        self._queues = queues
        self._metrics = metrics

    def resolve(self, each: Replayed) -> None:
        """Bring one tracker in line with the file first, and then with the log."""
        self._follow_file(each)
        self._follow_end_of_log(each)
        self._follow_records(each)

    def clamp_others(self, trackers: Container[tuple[str, str, int]]) -> None:
        """Bring the file's offsets of groups that have no tracker here within the log, too."""
        for group, topic, queue_id, offset in list(self._offsets.items()):
            queue = self._queues.queue(topic, queue_id)
            if (group, topic, queue_id) in trackers or queue is None or offset <= queue.max_offset:
                continue
            self._offsets.set(group, topic, queue_id, queue.max_offset)
            self._metrics.counter(OFFSETS_CLAMPED, group).add()
            log.warning(
                "offset_beyond_log", group=group, topic=topic, queue=queue_id, found=offset, end=queue.max_offset
            )
            self.changed = True

    def _follow_file(self, each: Replayed) -> None:
        tracker = each.tracker
        value = self._offsets.get(tracker.group, tracker.topic, tracker.queue_id)
        if value is None:
            if each.file_values:
                # The offset was not moved, its entry is missing: the journal's value counts.
                self._metrics.counter(OFFSETS_MISSING, tracker.group).add()
                each.file_values.clear()
                self.changed = True
            return
        if value in each.file_values:
            return
        self._metrics.counter(OFFSETS_FOREIGN, tracker.group).add()
        self._metrics.counter(ACKS_DROPPED, tracker.group).add(tracker.ahead + each.dropped)
        log.warning(
            "offset_changed_by_others",
            **names_of(tracker),
            found=value,
            watermark=tracker.watermark,
            acks_dropped=tracker.ahead + each.dropped,
        )
        queue = self._queues.queue(tracker.topic, tracker.queue_id)
        tracker.reset(value)
        tracker.reset_end = value if queue is None else queue.max_offset
        each.claimed = 0
        each.fences.clear()
        each.file_values[:] = [value]
        self.markers.append(form.encode(form.Reset(tracker.tracker_id, value)))
        self.changed = True

    def _follow_end_of_log(self, each: Replayed) -> None:
        tracker = each.tracker
        queue = self._queues.queue(tracker.topic, tracker.queue_id)
        if queue is None or each.high <= queue.max_offset:
            return
        found, ahead = each.high, tracker.ahead + each.dropped
        tracker.clamp(queue.max_offset)
        self._metrics.counter(OFFSETS_CLAMPED, tracker.group).add()
        self._metrics.counter(ACKS_DROPPED, tracker.group).add(ahead - tracker.ahead)
        log.warning("offset_beyond_log", **names_of(tracker), found=found, end=queue.max_offset)
        self._mark_truncated(tracker, queue.max_offset)

    def _follow_records(self, each: Replayed) -> None:
        lost = drop_unvouched(each, self._queues)
        if lost:
            tracker = each.tracker
            self._metrics.counter(ACKS_UNVOUCHED, tracker.group).add(lost)
            log.error("acks_of_other_records", **names_of(tracker), count=lost, watermark=tracker.watermark)
            self._mark_truncated(tracker, tracker.high)

    def _mark_truncated(self, tracker: OffsetTracker, end: int) -> None:
        self.markers.append(form.encode(form.Truncated(tracker.tracker_id, end, self._queues.truncated_to)))
        self.changed = True
