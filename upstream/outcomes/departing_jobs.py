"""Messages on their way out of their queue: to the group's dead letters, or to its retry topic.

A record takes the message's place, and it is durable before the offset is finished and the key continues (D16, D27).
Until then the job is BURYING or SENDING. If the disk fails meanwhile only the log shows what became of it: it is
UNDECIDED, and the key waits (`apart`). A dead letter that the store refuses is tried again, and may be called off
until then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from upstream.figures.counters import SubscriptionCounters
from upstream.figures.endings import MessageEnding
from upstream.figures.latency import Latency
from upstream.group_parts import GroupParts
from upstream.history import FAILING_ATTEMPTS, history_of
from upstream.job import UpstreamJob
from upstream.outcomes.parked_jobs import Apart, complete_successor
from upstream.retry.dead_letters import UNDECIDED
from upstream.state import WITHOUT_PERMIT, JobEvent, JobState, move


class JobRelease(Protocol):
    """Forgets a job that just became FINISHED, frees its permit if it had one, and lets its key continue."""

    def __call__(self, job: UpstreamJob, *, held_permit: bool = True) -> None:
        """Do so."""


class DepartingJobs:
    """The messages of one subscription that leave.

    Attributes:
        count: How many are on their way, without those that are UNDECIDED.
        stopped: The subscription has ended; what becomes durable now is the next generation's business.
    """

    def __init__(
        self,
        parts: GroupParts,
        *,
        apart: Apart,
        counters: SubscriptionCounters,
        latency: Latency,
        over: JobRelease,
        pump: Callable[[], None],
    ) -> None:
        """Set up.

        Args:
            parts: What the subscription has of its group; its log says what was dead-lettered and refused.
            apart: Keeps what is undecided.
            counters: Series of the subscription.
            latency: Receives endings.
            over: Ends a job.
            pump: Called when something was freed.
        """
        self.count = 0
        self.stopped = False
        self._group = parts.group
        self._dead_letters = parts.dead_letters
        self._retry_topic = parts.retry_topic
        self._apart = apart
        self._counters = counters
        self._latency = latency
        self._limited_log = parts.node.runtime.limited_log
        self._over = over
        self._pump = pump

    # To the retry topic

    def send_back(self, job: UpstreamJob, wait_ms: int) -> bool:
        """Put a failed job into the retry topic (D37); False when it is to be retried in place.

        That is so where the store takes no record, and where another client may still answer for the message: a
        delivery of it timed out, or may have been made before this generation. Such a success must count (D12), and
        what has left its queue can no longer be finished there. So too where retention has appended a dead letter.
        """
        history = history_of(job)
        if (
            history.timeouts
            or job.offset < job.group_queue.delivered_until
            or job.offset in job.group_queue.tracker.expiring
        ):
            self._counters.kept_in_place.value += 1
            return False
        held_permit = job.state not in WITHOUT_PERMIT
        resolved = partial(self._sent_back, held_permit)
        if self._retry_topic is None or not self._retry_topic.send(job, wait_ms, resolved):
            return False
        if history.attempts >= FAILING_ATTEMPTS:
            self._counters.sent_back_again.value += 1
        move(job, JobEvent.SEND_BACK)
        self.count += 1
        return True

    def _sent_back(self, held_permit: bool, job: UpstreamJob, durable: bool) -> None:
        if self.stopped:
            complete_successor(job)
            return
        self.count -= 1
        if durable:
            move(job, JobEvent.COMPLETE)
            self._latency.ended(job, MessageEnding.SENT_BACK)
            self._over(job, held_permit=held_permit)
        else:
            self._apart.leave(job, held_permit=held_permit)
        self._pump()

    # To the dead letters

    def is_dead_letter(self, job: UpstreamJob) -> bool:
        """Whether a job is a dead letter itself, of which there is none (D16)."""
        return self._dead_letters.holds(job.topic)

    def dead_letter(self, job: UpstreamJob, kind: str, reason: str) -> None:
        """Give up on a job that is no dead letter itself; its key waits until the record is durable (D16).

        Args:
            job: READ, RUNNING or OUT; for an operator in any state but WAITING and HELD.
            kind: Label of the counter: fails, errors, timeouts, unprocessable or operator.
            reason: Sentence for the record.
        """
        assert not self.is_dead_letter(job), "there are no dead letters of dead letters"
        held_permit = job.state not in WITHOUT_PERMIT
        job.drop_data()
        move(job, JobEvent.DEAD_LETTER)
        self.count += 1
        if not self._dead_letters.write(job, reason, partial(self._dead_lettered, kind, held_permit)):
            self._counters.refused.add()
            self._limited_log.note("dead_letter_refused", self._group, **job.log_facts)

    def _dead_lettered(self, kind: str, held_permit: bool, job: UpstreamJob, problem: str | None) -> None:
        if self.stopped:
            complete_successor(job)
            return
        self.count -= 1
        if problem == UNDECIDED:
            self._apart.leave(job, held_permit=held_permit)
            self._pump()
            return
        if problem is None:
            self._counters.dead_letters(kind).add()
            reason = job.history.reason if job.history else kind
            self._limited_log.note("message_dead_lettered", self._group, **job.log_facts, reason=reason)
        else:
            job.group_queue.tracker.finish(job.offset)
            self._counters.skipped(problem).add()
        move(job, JobEvent.COMPLETE)
        self._latency.ended(job, MessageEnding.DEAD_LETTERED if problem is None else MessageEnding.SKIPPED)
        self._over(job, held_permit=held_permit)
        self._pump()

    def is_refused(self, job: UpstreamJob) -> bool:
        """Whether the dead letter of a BURYING or UNDECIDED job has been refused so far; it is tried again."""
        return self._dead_letters.refused(job)

    def is_departing(self, job: UpstreamJob) -> bool:
        """Whether only the write of the dead letter remains, and the store has not refused it; then it is not stuck."""
        return job.state is JobState.BURYING and not self.is_refused(job)

    def call_off(self, job: UpstreamJob) -> bool:
        """Give up writing the dead letter of a BURYING or UNDECIDED job; False when that is under way or done."""
        assert job.state in (JobState.BURYING, JobState.UNDECIDED), "only a dead letter can be called off"
        if not self._dead_letters.withdraw(job):
            return False
        self.count -= job.state is JobState.BURYING
        return True
