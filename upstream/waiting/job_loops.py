"""Loops over the jobs of a round: what is done for every message, and nothing else.

Each has an accelerator in `upstream.jobs_accelerator` (D38); a job's states are those of `upstream.state`.
What is rare is left to the callers: a loop ends before it, or says that it did nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.runtime.accelerators import accelerated
from upstream.job import DeliveredBatch, Generation, GroupQueue, OrderKey, Unit, UpstreamJob
from upstream.message_holder import Holder
from upstream.state import JobEvent, JobState, next_state

_READY = next_state(JobState.READ, JobEvent.PASS_GATE)
_WAITING = next_state(JobState.READ, JobEvent.QUEUE_BEHIND)
_RUNNING = next_state(_READY, JobEvent.ADMIT)
_BUFFERED = next_state(_RUNNING, JobEvent.OFFER)
_OUT = next_state(_BUFFERED, JobEvent.TAKE)
_FINISHED = next_state(_OUT, JobEvent.SUCCEED)


class Chains(Protocol):
    """What `finish` needs of the order per key (`upstream.waiting.order`)."""

    tails: dict[OrderKey, UpstreamJob]
    waiting: int

    def release(self, job: UpstreamJob) -> UpstreamJob | None:
        """End the first job of a key; returns its next one."""


def _make(
    kind: type[UpstreamJob], subscription: Generation, units: Sequence[Unit], keys: Sequence[OrderKey | None]
) -> list[UpstreamJob] | None:
    """Make the jobs of units, of the class given, with their keys, and register them in their group queues.

    Returns:
        None, and nothing is done, where one of them may be finished or have failed already; here always: the source's
        own loop looks at each.
    """
    return None


def _submit(
    tails: dict[OrderKey, UpstreamJob], jobs: Sequence[UpstreamJob], ready: Callable[[UpstreamJob], None]
) -> tuple[int, int]:
    """Put READ jobs behind those of their keys; see `upstream.waiting.order`.

    Returns:
        How many have no key, and how many wait behind another job.
    """
    unordered = 0
    behind = 0
    for job in jobs:
        key = job.key
        if key is None:
            unordered += 1
        else:
            tail = tails.get(key)
            tails[key] = job
            if tail is not None:
                tail.successor = job
                job.state = _WAITING
                behind += 1
                continue
        job.state = _READY
        ready(job)
    return unordered, behind


def _admit(ready: deque[UpstreamJob], room: int) -> list[UpstreamJob]:
    """Take at most `room` jobs off the front and make them RUNNING; ends before one in trouble or not READY."""
    admitted: list[UpstreamJob] = []
    while len(admitted) < room and ready:
        job = ready[0]
        if job.state is not _READY or job.history is not None:
            break
        ready.popleft()
        job.state = _RUNNING
        admitted.append(job)
    return admitted


def _buffer(jobs: Sequence[UpstreamJob], enlist: Callable[[GroupQueue], None]) -> int:
    """Put RUNNING jobs at the end of their group queues' lines; those not in the rotation go to `enlist`.

    Returns:
        Their record bytes.
    """
    size = 0
    for job in jobs:
        job.state = _BUFFERED
        group_queue = job.group_queue
        group_queue.waiting.append(job)
        size += job.size
        if not group_queue.listed:
            enlist(group_queue)
    return size


def _take(waiting: deque[UpstreamJob], count: int, room: int) -> tuple[list[UpstreamJob], int] | None:
    """Take at most `count` BUFFERED jobs off the front of a line in which there are no others.

    Returns:
        The jobs, of no more than `room` record bytes but for the first, and the rest of `room`. Here always None, and
        nothing is done: `PullBuffer` takes them as it does from any line.
    """
    return None


def _hand_out(jobs: Sequence[UpstreamJob], delivery: DeliveredBatch, certain_from: int) -> tuple[bool, bool]:
    """Note that jobs are OUT with a delivery.

    Args:
        jobs: Jobs of one group queue.
        delivery: What they are out with.
        certain_from: The offset from which on it is known what was delivered before.

    Returns:
        Whether one of them may have been delivered before, and whether one was for certain.
    """
    perhaps = again = False
    for job in jobs:
        job.state = _OUT
        job.delivery = delivery
        count = job.deliveries = job.deliveries + 1
        if count > 1:
            perhaps = again = True
        elif job.offset < certain_from:
            perhaps = True
    return perhaps, again


# Positional, because it runs for every result: the accelerator takes no keywords cheaply.
def _finish(  # noqa: PLR0917
    offsets: Sequence[int],
    at: int,
    group_queue: GroupQueue,
    holder: Holder,
    order: Chains | None,
    ready: Callable[[UpstreamJob], None],
    found: tuple[list[int], list[int]],
    deliveries: Mapping[int, int] | None,
) -> tuple[int, DeliveredBatch | None, UpstreamJob | None]:
    """Finish the jobs of successful offsets, from the place `at` on, as far as they are of one delivery.

    Args:
        offsets: What the client says.
        at: Where in them to begin.
        group_queue: Their queue.
        holder: Who says it.
        order: Where the jobs' keys are released; None where no key may be.
        ready: Gets the next job of a key.
        found: Gets the offsets that are finished, and those that are not plain answers of the present holder.
        deliveries: The numbers of the deliveries that are answered, where the client says them; 0 where not in there.

    Returns:
        The index of the first offset of another delivery or their number, the delivery, and the last job that is
        finished.
    """
    done, slow = found
    live = group_queue.live
    unanswered = group_queue.unanswered
    current: DeliveredBatch | None = None
    last: UpstreamJob | None = None
    while at < len(offsets):
        offset = offsets[at]
        job = live.get(offset)
        delivery = None if job is None or job.state is not _OUT else job.delivery
        if (
            job is None
            or delivery is None
            or delivery.holder is not holder
            or (unanswered and offset in unanswered)
            or (deliveries is not None and deliveries.get(offset, 0) != delivery.number)
        ):
            slow.append(offset)
        elif current is not None and delivery is not current:
            break
        else:
            current, last = delivery, job
            job.state = _FINISHED
            del live[offset]
            done.append(offset)
            if job.key is not None and order is not None:
                following = order.release(job)
                if following is not None:
                    ready(following)
        at += 1
    return at, current, last


def _places(jobs: Sequence[UpstreamJob]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (commit-log offset, size) of jobs' records, and their queue offsets."""
    return [(job.physical, job.size) for job in jobs], [job.offset for job in jobs]


_ACCELERATOR = "upstream.jobs_accelerator"
make = accelerated(_ACCELERATOR, "make", _make)
submit = accelerated(_ACCELERATOR, "submit", _submit)
admit = accelerated(_ACCELERATOR, "admit", _admit)
buffer = accelerated(_ACCELERATOR, "buffer", _buffer)
take = accelerated(_ACCELERATOR, "take", _take)
hand_out = accelerated(_ACCELERATOR, "hand_out", _hand_out)
finish = accelerated(_ACCELERATOR, "finish", _finish)
places = accelerated(_ACCELERATOR, "places", _places)
