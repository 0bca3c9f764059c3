"""Dead letters: messages that ran out of attempts or that nothing can process go to `%DLQ%<group>` (D16, D17).

The durable record in that topic is the commit point. Only when the store reports it does the origin count as finished
and its key continue. A refused append (disk full) is tried again; the key waits, visibly. Where the disk fails after
the append it is unknown whether the record is there: the message stays as it is, and its key waits, until a restart.
Then the records that the ack journal does not know yet finish their origins.

What such a record holds is the broker's business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.errors import StoreError
from broker.runtime.later import Later
from broker.runtime.seams import Scheduler
from pyddmq.actions import MessageUnreadable
from upstream.job import UpstreamJob
from upstream.progress.progress import Begin, Progress
from upstream.source import Broker
from upstream.state import JobState

Resolved = Callable[[UpstreamJob, str | None], None]
"""Called when a dead letter is done: with None, with `damaged` or `gone`, or with UNDECIDED: the disk has failed."""

UNDECIDED = "undecided"
"""Whether the record is there is not known before a restart."""

RETRY_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""


class DeadLetters:
    """The dead-letter topic of one group.

    Attributes:
        pending: Jobs whose record is not durable yet.
    """

    def __init__(self, group: str, *, broker: Broker, progress: Progress, scheduler: Scheduler) -> None:
        self.group = group
        self._broker = broker
        self._progress = progress
        self._refused: dict[UpstreamJob, tuple[str, Resolved]] = {}
        """Jobs that wait for the next try, in this order, with the reason and the callback."""
        self._next_try = Later(scheduler, self._try_again)
        self.pending = 0

    def write(self, job: UpstreamJob, reason: str, resolved: Resolved) -> bool:
        """Append a BURYING job's message to the dead-letter topic.

        Args:
            job: The job.
            reason: Sentence for the record.
            resolved: Called once, with None when the record is durable and the journal entry staged, or with
                `damaged` or `gone` when the message cannot be read any more, or with UNDECIDED. Not called for a
                withdrawn job.

        Returns:
            Whether the store took the append; otherwise it is tried again after RETRY_SECONDS.
        """
        self.pending += 1
        return self._append(job, reason, resolved)

    def holds(self, topic: str) -> bool:
        """Whether a topic holds dead letters; what is exhausted there is abandoned where it is (D16)."""
        return self._broker.is_dead_letter_topic(topic)

    def refused(self, job: UpstreamJob) -> bool:
        """Whether the broker has not taken a job's record; it is tried again."""
        return job in self._refused or self._broker.is_dead_letter_refused(job)

    def withdraw(self, job: UpstreamJob) -> bool:
        """Give up a dead letter whose append was refused so far; False when it is under way already."""
        if self._refused.pop(job, None) is not None:
            self.pending -= 1
            return True
        if not self._broker.withdraw_dead_letter(job):
            return False
        job.group_queue.tracker.undecided.pop(job.offset, None)
        self.pending -= job.state is JobState.BURYING
        return True

    def stop(self) -> None:
        """Forget what was refused: those messages are read again by the next process or generation."""
        self._next_try.cancel()
        self.pending -= len(self._refused)
        self._refused.clear()

    def _append(self, job: UpstreamJob, reason: str, resolved: Resolved) -> bool:
        tracker = job.group_queue.tracker
        if job.offset in tracker.expiring or job.offset in tracker.undecided:
            # Retention has appended its dead letter, or an earlier generation has; with that one it ends.
            self._postpone(job, reason, resolved)
            return True
        try:
            self._broker.append_dead_letter(self.group, job, reason, partial(self._done, job, resolved))
            tracker.undecided[job.offset] = False
        except MessageUnreadable as error:
            self.pending -= 1
            resolved(job, str(error))
            return True
        except StoreError:
            self._postpone(job, reason, resolved)
            return False
        return True

    # Positional, as the broker calls it.
    def _done(  # noqa: PLR0917
        self, job: UpstreamJob, resolved: Resolved, error: StoreError | None, topic: str, queue_id: int, offset: int
    ) -> None:
        if error is not None:
            resolved(job, UNDECIDED)
            return
        self.pending -= 1
        if job.group_queue.revoked:
            return
        job.group_queue.tracker.undecided.pop(job.offset, None)
        self._progress.dead_lettered(job.group_queue.tracker, job.offset)
        self._progress.dead_letters_done(topic, queue_id, offset + 1)
        resolved(job, None)

    def _postpone(self, job: UpstreamJob, reason: str, resolved: Resolved) -> None:
        self._refused[job] = reason, resolved
        self._next_try.unless_due(RETRY_SECONDS)

    def _try_again(self) -> None:
        """Append what was refused, up to the first that is refused again: a full disk takes none of the others."""
        refused, self._refused = self._refused, {}
        again: UpstreamJob | None = None
        for job, (reason, resolved) in refused.items():
            if job.state is not JobState.BURYING:
                self.pending -= 1
            elif job.group_queue.tracker.is_finished(job.offset):
                self.pending -= 1
                resolved(job, None)
            elif again is not None:
                self._postpone(job, reason, resolved)
            elif not self._append(job, reason, resolved):
                again = job
        if again is not None and again in self._refused:
            # Others come first the next time: it may be the only one.
            self._refused[again] = self._refused.pop(again)


def recover_dead_letters(group: str, *, broker: Broker, progress: Progress, begin: Begin) -> None:
    """Finish the messages of a group whose dead letters exist although the ack journal does not know it (D16).

    To be called after a restart, before the group reads anything. `begin`: as for `Progress.finish_replaced`.
    """
    topic = broker.topic(broker.dead_letter_topic(group))
    for queue in topic.queues if topic is not None else ():
        progress.finish_replaced(queue, broker.replaced_by_dead_letters, begin=begin)
