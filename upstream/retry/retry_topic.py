"""The retry topic of one group: what failed leaves its queue until its next attempt (D37, `retryTopic`).

The durable record is the commit point (D27): it names the record that it replaces, and only when the store reports it
is that one finished. It waits in a timer, to the millisecond, and then is in `%RETRY%<group>`, which every unkeyed
subscription of the group reads beside its own topic: each takes what was sent to that topic. After a restart the
records that the ack journal does not know yet finish what they replace.

What the store refuses, as on a full disk, is retried in place. Where the disk fails after the append it is unknown
whether the record is there: the message stays as it is until a restart, when the log says it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.errors import DiskFull, MessageRefused, StoreError
from broker.retry.metrics import REFUSED, SENT_BACK
from broker.runtime.bundle import Runtime
from pyddmq.actions import MessageUnreadable
from upstream.job import UpstreamJob
from upstream.progress.progress import Begin, Progress
from upstream.source import RetryQueues

Resolved = Callable[[UpstreamJob, bool], None]
"""Called when the retry record of a job is durable, or the disk failed and a restart has to show it."""


class RetryTopic:
    """Sends the failed messages of one group back.

    Attributes:
        topic: Its name.
        pending: Jobs whose record is not durable yet.
        recovered: Whether `recover` was run.
    """

    def __init__(self, group: str, broker: RetryQueues, *, progress: Progress, runtime: Runtime) -> None:
        self._group = group
        self._broker = broker
        self.topic = broker.retry_topic(group)
        self._progress = progress
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self.pending = 0
        self.recovered = False

    def send(self, job: UpstreamJob, wait_ms: int, resolved: Resolved) -> bool:
        """Append a job's message to the retry topic.

        Args:
            job: The job, its failure counted.
            wait_ms: Until its next attempt.
            resolved: Called once, when the record is durable or the disk has failed.

        Returns:
            Whether the store took the append; otherwise `resolved` is not called, and nothing was written.
        """
        try:
            self._broker.append_retry(self._group, job, wait_ms, partial(self._done, job, resolved))
            job.group_queue.tracker.undecided[job.offset] = True
        except (StoreError, MessageUnreadable) as error:
            self._refused(job, error)
            return False
        self.pending += 1
        return True

    # Positional, as the broker calls it.
    def _done(  # noqa: PLR0917
        self, job: UpstreamJob, resolved: Resolved, error: StoreError | None, topic: str, queue_id: int, offset: int
    ) -> None:
        if error is None:
            self.pending -= 1
            if job.group_queue.revoked:
                return
            job.group_queue.tracker.undecided.pop(job.offset, None)
            job.group_queue.tracker.finish(job.offset)
            self._progress.dead_letters_done(topic, queue_id, offset + 1)
            self._metrics.counter(SENT_BACK, self._group).add()
        resolved(job, error is None)

    def _refused(self, job: UpstreamJob, error: StoreError | MessageUnreadable) -> None:
        reason = (
            "full"
            if isinstance(error, DiskFull)
            else "refused"
            if isinstance(error, MessageRefused)
            else "unreadable"
            if isinstance(error, MessageUnreadable)
            else "failed"
        )
        self._metrics.counter(REFUSED, self._group, reason).add()
        self._limited_log.note("retry_in_place", self._group, **job.log_facts, error=str(error))

    def recover(self, begin: Begin) -> None:
        """Finish the messages whose retry records exist although the ack journal does not know it (D27, D37).

        To be called after a restart, before the group reads anything. `begin`: as for `Progress.finish_replaced`.
        """
        for queue in self._broker.retry_queues(self._group):
            if queue.topic != self.topic:
                shared_read = self._progress.shared_read
                if (queue.topic, queue.queue_id) in shared_read:
                    # Its records are those of all groups, and what this process appended it has finished.
                    continue
                shared_read.add((queue.topic, queue.queue_id))
            self._progress.finish_replaced(queue, self._broker.replaced_by_retries, begin=begin, sent_back=True)
        self.recovered = True

    def stop(self) -> None:
        """Remember how far the records have been dealt with, so that the next start need not read them."""
        if self.recovered and not self.pending:
            for queue in self._broker.retry_queues(self._group):
                self._progress.dead_letters_done(queue.topic, queue.queue_id, queue.max_offset)
