"""All trackers of a node, with what is kept beside each, and how they stand in the ack journal."""

from __future__ import annotations

from upstream.progress import journal_format as form
from upstream.progress.finished_marks import pack
from upstream.progress.replay import identity_at
from upstream.progress.tracker import OffsetTracker
from upstream.queues import UNKNOWN, Queues, QueueView

Key = tuple[str, str, int]
"""(group, topic, queue id)."""


class TrackerExtras:
    """What is kept beside a tracker.

    Attributes:
        file_values: Values that consumerOffset.json may hold for it; the last one is the one wanted there.
        queue: Its queue in the log, once looked up.
        let_go: Somebody inside the program may consume the queue for this group: what the file has is not ours (D36).
        fence_offset: The finished offset that the last fence vouched for, -1 before the first.
    """

    __slots__ = ("fence_offset", "file_values", "let_go", "queue", "tracker")

    def __init__(self, tracker: OffsetTracker, file_values: list[int]) -> None:
        self.tracker = tracker
        self.file_values = file_values
        self.queue: QueueView | None = None
        self.fence_offset = -1
        self.let_go = False


class TrackerTable:
    """What the ack journal must be able to say of a node: trackers, failures, positions in dead-letter queues.

    Attributes:
        known: By tracker id.
        by_key: Every tracker, also of groups that are no longer configured (D6).
        scanned: First dead letter of a (topic, queue id) whose origin may not be finished here.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.known: list[TrackerExtras] = []
        self.by_key: dict[Key, OffsetTracker] = {}
        self.scanned: dict[tuple[str, int], int] = {}

    def add(self, tracker: OffsetTracker, file_values: list[int]) -> TrackerExtras:
        """Give a tracker its id and its place."""
        tracker.tracker_id = len(self.known)
        known = TrackerExtras(tracker, file_values)
        self.known.append(known)
        self.by_key[tracker.group, tracker.topic, tracker.queue_id] = tracker
        return known

    def fence(self, tracker: OffsetTracker, offset: int) -> int:
        """Identity of a finished message, where it vouches for more than an earlier fence does; else -1."""
        known = self.known[tracker.tracker_id]
        place, tracker.place = tracker.place, None
        if offset <= known.fence_offset:
            return UNKNOWN
        if place is not None and place[0] == offset:
            # Whoever acknowledged it had its job: the queue's file need not be read.
            known.fence_offset = offset
            return place[1]
        queue = known.queue
        if queue is None:
            queue = known.queue = self._queues.queue(tracker.topic, tracker.queue_id)
        identity = identity_at(queue, offset, checked=False)
        if identity != UNKNOWN:
            known.fence_offset = offset
        return identity

    def snapshot(self) -> list[bytes]:
        """Blocks that say everything: a block per tracker, failures, counts, resets, scanned dead letters, the end."""
        blocks = [self.entry(known) for known in self.known]
        for known in self.known:
            tracker = known.tracker
            if tracker.failures:
                parts = [form.encode_failure(tracker.tracker_id, *each) for each in tracker.failures.items()]
                blocks.append(b"".join(parts))
            if tracker.expired or tracker.dead_letters:
                counts = tracker.expired, tracker.expired_ms, tracker.dead_letters
                blocks.append(form.encode_counted(tracker.tracker_id, *counts))
            if tracker.reset_end > tracker.watermark:
                blocks.append(form.encode(form.ResetEnd(tracker.tracker_id, tracker.reset_end)))
        blocks += [form.encode_scanned(*key, offset) for key, offset in self.scanned.items()]
        blocks.append(form.encode(form.SnapshotEnd(len(self.known))))
        return blocks

    def entry(self, known: TrackerExtras) -> bytes:
        """The journal's entry with a tracker's position."""
        tracker = known.tracker
        queue = self._queues.queue(tracker.topic, tracker.queue_id)
        return form.encode_tracker(
            form.TrackerEntry(
                tracker_id=tracker.tracker_id,
                group=tracker.group,
                topic=tracker.topic,
                queue_id=tracker.queue_id,
                watermark=tracker.watermark,
                fence=identity_at(queue, tracker.watermark - 1),
                high_fence=identity_at(queue, tracker.high - 1) if tracker.ahead else UNKNOWN,
                file_values=tuple(known.file_values),
                marks=pack(tracker.marks),
            )
        )
