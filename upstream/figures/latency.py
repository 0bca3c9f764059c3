"""How long messages of one subscription took: from the log to a client, and to their end.

Both are counted from the record's store timestamp, by the wall clock: what was published with a delay, or comes again
from the retry topic, is stored again when it is due, so that a wait that was asked for is not in it. The messages of a
batch are observed at once, as if each were as old as the oldest; where some of them come again, each is by itself, so
that an old one does not make the others old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.runtime.metrics import Metrics, declare_histogram
from broker.runtime.seams import Clock
from upstream.figures.endings import EndingHook, MessageEnding
from upstream.job import DeliveredBatch, Generation, Unit, UpstreamJob

_LABELS = ("group", "topic")
_BOUNDS = range(10, 34)
"""From 1 ms, which is the unit of a store timestamp, to over two hours."""

HAND_OUT_SECONDS = declare_histogram(
    "pyddmq_hand_out_seconds",
    "Time from storing a message to its first delivery to a client, since the start",
    _LABELS,
    bounds=_BOUNDS,
)
END_TO_END_SECONDS = declare_histogram(
    "pyddmq_end_to_end_seconds",
    "Time from storing a message to its success, retries in place included; only messages read since the start",
    _LABELS,
    bounds=_BOUNDS,
)


class Latency:
    """The series of one group on one topic.

    Args:
        metrics: Where they are.
        group, topic: Their labels.
        clock: Its wall clock is that of store timestamps.
        endings: Further listeners.
    """

    def __init__(self, metrics: Metrics, group: str, topic: str, clock: Clock, endings: EndingHook) -> None:
        self._hand_out = metrics.histogram(HAND_OUT_SECONDS, group, topic)
        self._end_to_end = metrics.histogram(END_TO_END_SECONDS, group, topic)
        self._wall_us = clock.wall_us
        self._endings = endings

    def handed_out(self, delivery: DeliveredBatch, stored_ms_of: Callable[[UpstreamJob], int | None]) -> None:
        """Observe a batch that goes to a client.

        Args:
            delivery: The batch; all of its jobs are out.
            stored_ms_of: When a message was stored; `Source.stored_ms`.
        """
        jobs = delivery.jobs
        assert jobs, "it goes out with messages"
        for listener in self._endings.listeners:
            listener.handed_out(delivery)
        if not delivery.again:
            stored_ms = delivery.stored_ms = stored_ms_of(jobs[0])
            if stored_ms is not None:
                self._hand_out.observe(self._wall_us() - stored_ms * 1000, delivery.open)
            return
        delivery.stored_ms = each_ms = {}
        for job in jobs:
            stored_ms = stored_ms_of(job)
            if stored_ms is not None:
                each_ms[job.offset] = stored_ms
                if job.deliveries == 1:
                    self._hand_out.observe(self._wall_us() - stored_ms * 1000)

    def finished(self, delivery: DeliveredBatch, offsets: Sequence[int]) -> None:
        """Observe messages of one delivery that its client finished."""
        for listener in self._endings.listeners:
            listener.finished(delivery, offsets)
        stored_ms = delivery.stored_ms
        if isinstance(stored_ms, int):
            self._end_to_end.observe(self._wall_us() - stored_ms * 1000, len(offsets))
        elif stored_ms is not None:
            now_us = self._wall_us()
            for offset in offsets:
                if offset in stored_ms:
                    self._end_to_end.observe(now_us - stored_ms[offset] * 1000)

    def finished_singly(self, job: UpstreamJob) -> None:
        """Observe a message that was finished in another way: by an action, or by a late success."""
        self.ended(job, MessageEnding.SUCCEEDED)
        stored_ms = job.subscription.stored_ms(job)
        if stored_ms is not None:
            self._end_to_end.observe(self._wall_us() - stored_ms * 1000)

    def ended(self, job: UpstreamJob, ending: MessageEnding) -> None:
        """Tell who records what becomes of single messages."""
        for listener in self._endings.listeners:
            listener.ended(job, ending)

    def failed(self, job: UpstreamJob, reason: str) -> None:
        """Report an attempt that failed."""
        if self._endings.failed is not None:
            self._endings.failed(job, reason)

    def refused(self, generation: Generation, unit: Unit) -> None:
        """Report a message that the group does not get: its tags, or the stress flag, rule it out."""
        if self._endings.listeners:
            physical, size, _, offset, group_queue = unit
            self.ended(UpstreamJob(generation, group_queue, offset, physical, size, None), MessageEnding.REFUSED)
