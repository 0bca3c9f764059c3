"""Jobs that nothing is done with, and that keep their keys, until another client answers or a restart decides.

- UNDECIDED: the disk failed while a message's retry or dead letter was written. It is unknown whether it is there;
  the log says it after a restart (D27).
- What an earlier generation left open (`GroupQueue.apart`): such a message, a finished one that a client still has, and
  one that is in a call of an action. The new generation reads it like any other, so that it is in the chain of its
  key, and leaves it alone in its turn.
"""

from __future__ import annotations

from collections.abc import Callable

from upstream.figures.counters import SubscriptionCounters
from upstream.group_parts import GroupParts
from upstream.job import DeliveredBatch, UpstreamJob
from upstream.state import JobEvent, JobState, move
from upstream.waiting.limits import Permits
from upstream.waiting.timers import Deadlines


class Apart:
    """Those of one subscription.

    Args:
        parts: What the subscription has of its group: monotonic time, and log lines.
        permits, counters, deadlines: The subscription's.
        over: Forgets a job that just became FINISHED and holds no permit; its key continues.
        pump: Called when something was freed.
    """

    def __init__(
        self,
        parts: GroupParts,
        *,
        permits: Permits,
        counters: SubscriptionCounters,
        deadlines: Deadlines,
        over: Callable[[UpstreamJob], None],
        pump: Callable[[], None],
    ) -> None:
        self._group = parts.group
        self._permits = permits
        self._counters = counters
        self._deadlines = deadlines
        self._clock = parts.node.runtime.clock
        self._limited_log = parts.node.runtime.limited_log
        self._over = over
        self._pump = pump

    def take(self, job: UpstreamJob) -> bool:
        """Whether a READY job is one that an earlier generation left open; then it takes that one's place.

        Its key waits on: for the answer of who holds a finished message, for the end of the call that it is in, or for
        a restart to show whether its retry or dead letter is there.
        """
        group_queue, offset = job.group_queue, job.offset
        if offset not in group_queue.apart:
            return False
        group_queue.apart.discard(offset)
        finished = group_queue.tracker.is_finished(offset)
        if not finished and offset in group_queue.tracker.undecided:
            move(job, JobEvent.LEAVE)
            return True
        call = group_queue.calls.get(offset)
        if call is not None:
            move(job, JobEvent.HOLD if finished else JobEvent.ADMIT)
            self._permits.used += 1
            call.successors.append(job)
            return True
        if not finished:
            return False
        delivery = group_queue.adopted.pop(offset, None)
        if delivery is not None and delivery.deadline > self._clock.monotonic():
            move(job, JobEvent.HOLD)
            self._permits.used += 1
            self.adopt(job, delivery)
        else:
            move(job, JobEvent.SUCCEED)
            self._over(job)
        return True

    def adopt(self, job: UpstreamJob, delivery: DeliveredBatch) -> None:
        """Make a delivery of an earlier generation one of this."""
        job.delivery = delivery.moved_on([job])
        self._deadlines.add(job.delivery)

    def leave(self, job: UpstreamJob, *, held_permit: bool) -> None:
        """Leave a job alone until a restart: the disk failed after the record that takes its place was appended.

        It holds its key and no permit. A success that came meanwhile has finished it, whatever the log says.
        """
        move(job, JobEvent.SYNC_FAILS)
        if held_permit:
            self._permits.release(1)
        if job.group_queue.tracker.is_finished(job.offset):
            self.complete(job)
            return
        self._counters.undecided.add()
        self._limited_log.note("message_undecided", self._group, **job.log_facts)

    def complete(self, job: UpstreamJob) -> None:
        """End an UNDECIDED job whose offset is finished: by a late success, or by its record after all."""
        job.group_queue.tracker.undecided.pop(job.offset, None)
        move(job, JobEvent.COMPLETE)
        self._over(job)
        self._pump()


def complete_successor(job: UpstreamJob) -> None:
    """End the job that took the place of one whose generation has ended, if its record is durable by now."""
    successor = job.group_queue.live.get(job.offset)
    if (
        successor is not None
        and successor.state is JobState.UNDECIDED
        and job.group_queue.tracker.is_finished(job.offset)
    ):
        successor.subscription.complete_undecided(successor)
