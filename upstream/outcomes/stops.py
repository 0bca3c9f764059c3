"""Messages that are out of attempts and wait for an operator, with their key or with their whole queue (onExhausted).

Where a group would rather stand still than continue without a message, exhaustion does not lead to the dead letters:

    RUNNING, OUT  --stop-->  STOPPED  --retry-->       BUFFERED or RUNNING, its attempts counted again
                                      --skip-->        FINISHED
                                      --dead-letter--> BURYING
                                      --a success that still comes--> FINISHED

A STOPPED job has no permit: as many keys may stand still as want to, and the others have all of `concurrency`. It keeps
its place in its key, so what follows waits as behind any job. The stop is journaled as a kind of failure of the offset,
so it outlives restarts and generations; the job is found stopped when its turn comes again.

`stopQueue` holds the message's queue besides, whatever the keys in it: nothing more of it is handed out or run, but
what is out may be answered. What was ready is kept here, what was in the pull buffer comes here, too, and gives its
permit back. All of it continues when the last stopped message of the queue has ended or is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from upstream.figures.counters import SubscriptionCounters
from upstream.group_parts import GroupParts
from upstream.history import history_of
from upstream.job import GroupQueue, UpstreamJob
from upstream.progress.tracker import FailureKind, Stop
from upstream.state import JobEvent, JobState, move
from upstream.waiting.limits import Permits


class Stops:
    """The stopped messages of one subscription.

    Attributes:
        queues: The group queues that stand still, each with the offsets of the messages that it waits for.
        held: How many jobs of those queues are kept here.
    """

    def __init__(
        self,
        parts: GroupParts,
        *,
        ready: deque[UpstreamJob],
        permits: Permits,
        counters: SubscriptionCounters,
        rerun: Callable[[list[UpstreamJob]], None],
    ) -> None:
        """Set up.

        Args:
            parts: What the subscription has of its group: the clock dates stops, which its progress journals.
            ready: Jobs that wait for a permit.
            permits: Concurrency.
            counters: Series of the subscription.
            rerun: Runs RUNNING jobs through their actions again.
        """
        self.queues: dict[GroupQueue, set[int]] = {}
        self.held = 0
        self._held: dict[GroupQueue, list[UpstreamJob]] = {}
        self._group = parts.group
        self._ready = ready
        self._permits = permits
        self._buffer = parts.buffer
        self._counters = counters
        self._progress = parts.node.progress
        self._clock = parts.node.runtime.clock
        self._limited_log = parts.node.runtime.limited_log
        self._rerun = rerun

    def begin(self, group_queues: Iterable[GroupQueue]) -> None:
        """Find the queues that an earlier process or generation has stopped."""
        for group_queue in group_queues:
            group_queue.stopped = False
            for offset, failure in group_queue.tracker.failures.items():
                if failure.stopped == Stop.QUEUE:
                    self._hold(group_queue, offset)

    def clear(self) -> None:
        """Forget all, at the end of the generation: the next one finds the stops in the trackers."""
        for group_queue in self.queues:
            group_queue.stopped = False
        self.queues.clear()
        self._held.clear()
        self.held = 0

    def stop(self, job: UpstreamJob, stop: Stop, kind: str, reason: str) -> None:
        """Have a job that is RUNNING or was OUT wait for an operator.

        Args:
            job: Out of attempts; its history says how.
            stop: What waits with it.
            kind: Label of the counter, as of dead letters.
            reason: Of its last failure.
        """
        history = history_of(job)
        assert stop, "something waits with it"
        history.stopped = stop
        self._note(job, FailureKind.STOPPED, stop)
        job.drop_data()
        move(job, JobEvent.STOP)
        self._permits.release(1)
        self._counters.stopped(kind).add()
        self._limited_log.note(
            "message_stopped",
            self._group,
            **job.log_facts,
            waits=stop.name.lower(),
            reason=reason,
        )
        if stop is Stop.QUEUE:
            self._hold(job.group_queue, job.offset)
            self.withdraw()

    def stop_again(self, job: UpstreamJob) -> None:
        """Have a job wait that had been stopped before it was read: it was just made RUNNING and has no permit yet."""
        job.drop_data()
        job.step = -1
        move(job, JobEvent.STOP)

    def try_again(self, job: UpstreamJob) -> None:
        """Let a STOPPED job continue as an operator wishes, its attempts counted again."""
        history = history_of(job)
        failure = job.group_queue.tracker.failures.get(job.offset)
        for kind in FailureKind if failure is not None else ():
            if failure is not None and failure.count(kind):
                self._note(job, kind, 0)
        history.fails = history.errors = history.timeouts = history.stopped = 0
        history.due_wall_ms = self._clock.wall_ms()
        self._permits.used += 1
        if job.deliveries:
            self.ended(job)
            self._buffer.put_back([job])
            if self.queues:
                self.withdraw()
        else:
            move(job, JobEvent.RERUN)
            self.ended(job)
            self._rerun([job])

    def ended(self, job: UpstreamJob) -> None:
        """Note that a job is stopped no more; its queue continues if it was the last one that this waited for."""
        group_queue = job.group_queue
        offsets = self.queues.get(group_queue)
        if offsets is None or job.offset not in offsets:
            return
        offsets.discard(job.offset)
        if offsets:
            return
        del self.queues[group_queue]
        group_queue.stopped = False
        kept = self._held.pop(group_queue, [])
        self.held -= len(kept)
        # In front, and in the order of the queue: what the other queues have ready was read later, or ties with it.
        self._ready.extendleft(
            sorted((job for job in kept if job.state is JobState.READY), key=lambda each: -each.offset)
        )
        self._buffer.wake(group_queue.line)

    def keep(self) -> None:
        """Take the jobs of stopped queues out of those that are ready, but for stopped ones whose turn it is."""
        going = [job for job in self._ready if not self._keeps(job)]
        if len(going) < len(self._ready):
            for job in self._ready:
                if self._keeps(job):
                    self._held.setdefault(job.group_queue, []).append(job)
                    self.held += 1
            self._ready.clear()
            self._ready.extend(going)

    def withdraw(self) -> None:
        """Take what stopped queues have in the pull buffer, so that it holds no permits."""
        for group_queue in self.queues:
            jobs = self._buffer.withdraw(group_queue)
            for job in jobs:
                job.step = -1
            self._permits.release(len(jobs))
            self._held.setdefault(group_queue, []).extend(jobs)
            self.held += len(jobs)

    def _keeps(self, job: UpstreamJob) -> bool:
        return job.group_queue in self.queues and not (job.history is not None and job.history.stopped)

    def _hold(self, group_queue: GroupQueue, offset: int) -> None:
        group_queue.stopped = True
        self.queues.setdefault(group_queue, set()).add(offset)

    def _note(self, job: UpstreamJob, kind: FailureKind, count: int) -> None:
        self._progress.fail(
            job.group_queue.tracker, job.offset, kind=kind, count=count, due_wall_ms=self._clock.wall_ms()
        )
