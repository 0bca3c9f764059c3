"""What the jobs of one queue say: how many are out, wait or are retried, who has them, and which key is held longest.

A queue may have a hundred thousand jobs in memory (D15), so they are looked at in steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from upstream.history import FAILING_ATTEMPTS
from upstream.job import GroupQueue, UpstreamJob, text_of
from upstream.message_holder import Holder
from upstream.state import JobState

STEP_JOBS = 4_096
"""Looked at in one step: a fraction of a millisecond."""
REASON_CHARS_MAX = 200
_HASH_DIGITS = 16


@dataclass(slots=True)
class JobFigures:
    """What the jobs of a queue say.

    Attributes:
        in_flight, waiting, retrying: As those of `lag.samples.QueueSample`.
        holders: Who has one of them.
        failing: Messages that have failed and are not finished.
        held: The first of its key that has held others up, or has failed, for longest; one that fails again and again
            comes before others. None: there is none.
        held_since: When that failed first or, where it did not, was handed out; monotonic seconds.
        out: What a client or action has had for longest: since when, offset, who; None: nothing is out.
    """

    in_flight: int = 0
    waiting: int = 0
    retrying: int = 0
    holders: set[Holder] = field(default_factory=set)
    failing: int = 0
    held: UpstreamJob | None = None
    held_since: float = 0.0
    out: tuple[float, int, Holder | str] | None = None

    def look(self, jobs: Iterable[UpstreamJob]) -> None:
        """Take some jobs in."""
        of_waiting = JobState.WAITING
        for job in jobs:
            state = job.state
            if state is of_waiting:
                self.waiting += 1
                continue
            delivery = job.delivery
            if delivery is not None:
                self.in_flight += 1
                self.holders.add(delivery.holder)
                if self.out is None or delivery.since < self.out[0]:
                    self.out = (delivery.since, job.offset, delivery.holder)
            elif state is JobState.RUNNING:
                self.in_flight += 1
            elif state in (JobState.RETRYING, JobState.STOPPED):
                self.retrying += 1
            if job.history is not None:
                since = job.history.since
                self.failing += state not in (JobState.FINISHED, JobState.ABANDONED)
            elif job.successor is not None and delivery is not None:
                since = delivery.since
            else:
                continue
            if state not in (JobState.FINISHED, JobState.ABANDONED) and self._is_before(job, since):
                self.held, self.held_since = job, since

    def _is_before(self, job: UpstreamJob, since: float) -> bool:
        if self.held is None:
            return True
        poisoned, other = job.attempts >= FAILING_ATTEMPTS, self.held.attempts >= FAILING_ATTEMPTS
        return poisoned > other if poisoned != other else since < self.held_since


def look_at_jobs(group_queues: Iterable[GroupQueue]) -> Generator[None, None, JobFigures]:
    """Look at the jobs of all group queues of one queue, in steps."""
    figures = JobFigures()
    for group_queue in group_queues:
        for offset, delivery in group_queue.adopted.items():
            figures.in_flight += 1
            figures.holders.add(delivery.holder)
            if figures.out is None or delivery.since < figures.out[0]:
                figures.out = (delivery.since, offset, delivery.holder)
        for offset, call in group_queue.calls.items():
            if figures.out is None or call.since < figures.out[0]:
                figures.out = (call.since, offset, call.action)
        if len(group_queue.live) <= STEP_JOBS:
            figures.look(group_queue.live.values())
            continue
        jobs = list(group_queue.live.values())
        for at in range(0, len(jobs), STEP_JOBS):
            figures.look(jobs[at : at + STEP_JOBS])
            yield
    return figures


def shown_key(job: UpstreamJob, keys: str) -> str | None:
    """Return the order key of a job as it may be noted: `plain`, `hashed`, or `off`, and then None."""
    text = text_of(job.key)
    if text is None or keys == "off":
        return None
    if keys == "hashed":
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return text


def one_line(reason: str) -> str | None:
    """Return a reason as one line of REASON_CHARS_MAX characters at most; None for an empty one."""
    return " ".join(reason.split())[:REASON_CHARS_MAX] or None
