"""The pull buffer of one group: what the next pull gets, and who waits for it. No I/O.

Rotation is over topics first and then over a topic's queues, one queue per reply, so a topic with a long line delays
another topic's first message by one batch at most. Every arrival, retry, timeout and give-back wakes parked pulls, in
the order of their parking, whether bound to a topic or not, in the same call that offers (W51-W54).

A job is in the buffer while it is BUFFERED, and then is in one place: in its group queue's `waiting`, in the order
read, or in `front`, a heap by offset, when it came back. A job that ends meanwhile (a late answer, an operator) is
taken out of all counts and its place left: `gone` says how many such places a group queue has, and `take` passes them
over. So nothing is ever searched for. A group queue that has anything left is listed once in its topic's line, and a
line with such a queue once in the rotation; both lists are corrected when taken from, not when
emptied.

Parked pulls stand by their numbers in two lines, those for any topic and those for one; the lower number of the two
heads is served. A wake may give its batch back, which offers again: `_serving` makes that a later round of the same
call, so that no pull is served twice and the stack does not grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from broker.runtime.seams import Clock
from upstream.budget import Budget
from upstream.job import DeliveredBatch, GroupQueue, TopicLine, UpstreamJob
from upstream.message_holder import Holder
from upstream.state import JobEvent, JobState, move, next_state
from upstream.waiting import job_loops

FEW_JOBS = 8
"""Jobs that a subscription without any reads while jobs take half of the memory: of 10,000 ones a tenth of it."""
_BUFFERED = next_state(JobState.RUNNING, JobEvent.OFFER)
_new = tuple.__new__


class PulledBatch(NamedTuple):
    """Messages of one pull, all of one (topic, queue), in the order of delivery."""

    topic: str
    qid: str
    jobs: list[UpstreamJob]


class ParkedFull(Exception):
    """Too many pulls of this group wait already; the client should use fewer connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """Bounds of one group's buffer.

    Attributes:
        reply_bytes_max: Record bytes of one reply; at least one message goes out whatever its size (R40, W8).
        parked_max: Pulls that may wait.
        jobs_max: Jobs in the buffer, over all topics; a topic with less than a batch in it may still add to it.
        bytes_max: Record bytes that the buffered jobs stand for, in the same way.
    """

    reply_bytes_max: int = 4_194_304
    parked_max: int = 10_000
    jobs_max: int = 1_000_000
    bytes_max: int = 4 << 30


@dataclass(slots=True, eq=False)
class Parked:
    """A pull that waits. `open` is false once it was answered or withdrawn."""

    number: int
    topic: str | None
    count_max: int | None
    holder: Holder
    wake: Callable[[PulledBatch], None]
    open: bool = True


class PullBuffer:
    """The buffer of one group.

    Attributes:
        jobs: Jobs in it, over all topics.
        bytes: Record bytes that they stand for.
        parked_count: Pulls that wait.
        asked_at: Monotonic moment of the last pull for any topic, -1.0: none; those for one topic stand in its line.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limits: BufferLimits,
        first_delivery: int,
        budget: Budget | None = None,
        may_hand_out: Callable[[], bool] | None = None,
    ) -> None:
        """Set up.

        Args:
            clock: Dates deliveries.
            limits: Its bounds.
            first_delivery: The number before that of the first delivery. It is drawn at random: answers to an earlier
                process may yet come, and its clock may have been set back since.
            budget: The node's account of memory.
            may_hand_out: Asked before anything is: whether the queues are the group's for certain; None: they are.
        """
        self._clock = clock
        self._may_hand_out = may_hand_out
        self.limits = limits
        self.budget = budget or Budget()
        self.jobs = 0
        self.bytes = 0
        self.parked_count = 0
        self.asked_at = -1.0
        self._lines: dict[str, TopicLine] = {}
        self._rotation: deque[TopicLine] = deque()
        self._parked: deque[Parked] = deque()
        self._parked_at: dict[str, deque[Parked]] = {}
        """Those that are bound to a topic; of each that has a line."""
        self._numbers = 0
        self._deliveries = first_delivery
        self._serving = False
        self._woken: list[TopicLine] = []

    def line(self, topic: str) -> TopicLine:
        """Return the topic's line; made on first use."""
        line = self._lines.get(topic)
        if line is None:
            line = self._lines[topic] = TopicLine(topic)
            self._parked_at[topic] = deque()
        return line

    def has_room(self, line: TopicLine, batch: int) -> bool:
        """Whether a topic may read on: below the bounds, or with less than one batch of its own in the buffer."""
        limits = self.limits
        room = self.jobs < limits.jobs_max and self.bytes < limits.bytes_max and not self.budget.level
        return room or line.jobs < batch

    def read_max(self, group_queues: Iterable[GroupQueue], count: int) -> int:
        """Return how many jobs a subscription may read now that would read `count`.

        While jobs alone take half of the memory, few, and only where there is none: they never have pulls refused,
        without which none of them would end.
        """
        if not self.budget.jobs_take_half:
            return count
        return 0 if any(each.live for each in group_queues) else min(count, FEW_JOBS)

    def offer(self, jobs: Sequence[UpstreamJob]) -> None:
        """Put RUNNING jobs of one topic at the end of their queues' lines and wake parked pulls."""
        size = job_loops.buffer(jobs, self._list)
        line = jobs[0].group_queue.line
        line.jobs += len(jobs)
        self.jobs += len(jobs)
        self.bytes += size
        self.wake(line)

    def put_back(self, jobs: Iterable[UpstreamJob]) -> None:
        """Put jobs that came back at the front of their queues, by offset, and wake parked pulls."""
        line = None
        for job in jobs:
            move(job, JobEvent.COME_BACK)
            job.delivery = None
            group_queue = job.group_queue
            heappush(group_queue.front, (job.offset, job))
            line = group_queue.line
            line.jobs += 1
            self.jobs += 1
            self.bytes += job.size
            if not group_queue.listed:
                self._list(group_queue)
        if line is not None:
            self.wake(line)

    def forget(self, job: UpstreamJob) -> None:
        """Forget an ended BUFFERED job; its place in the line is passed over later."""
        group_queue = job.group_queue
        group_queue.gone += 1
        group_queue.line.jobs -= 1
        self.jobs -= 1
        self.bytes -= job.size
        assert self.jobs >= 0 <= group_queue.line.jobs, "a job that ended was counted once"

    def drop(self, group_queues: Iterable[GroupQueue]) -> None:
        """Take all jobs of these group queues out, at the end of a generation."""
        for group_queue in group_queues:
            left = [job for job in group_queue.waiting if job.state is _BUFFERED]
            left += [job for _, job in group_queue.front if job.state is _BUFFERED]
            group_queue.waiting.clear()
            group_queue.front.clear()
            group_queue.gone = 0
            group_queue.line.jobs -= len(left)
            self.jobs -= len(left)
            self.bytes -= sum(job.size for job in left)
            assert self.jobs >= 0 <= self.bytes, "what is left of a generation was counted"

    def withdraw(self, group_queue: GroupQueue) -> list[UpstreamJob]:
        """Take all BUFFERED jobs of a group queue out and make them READY again: it is stopped."""
        left = [job for _, job in group_queue.front if job.state is _BUFFERED]
        left += [job for job in group_queue.waiting if job.state is _BUFFERED]
        self.drop([group_queue])
        for job in left:
            move(job, JobEvent.WITHDRAW)
        return left

    def take(self, topic: str | None, count_max: int | None, holder: Holder) -> PulledBatch | None:
        """Hand out one batch of one queue, or None when there is nothing.

        Args:
            topic: Only this topic; None: any, in rotation.
            count_max: Messages wanted at most; None or 0 and below: the subscription's maxPullBatchSize (R40).
            holder: Who gets them.

        While the node refuses for want of memory there is nothing (`upstream.budget`); `serve` continues afterwards.
        """
        if self.budget.refuses_pulls:
            return None
        now = self._clock.monotonic()
        if self._may_hand_out is not None and not self._may_hand_out():
            # A request is what makes a node a member (D56).
            (self if topic is None else self.line(topic)).asked_at = now
            return None
        if topic is not None:
            line = self._lines.get(topic)
            if line is None:
                return None
            line.asked_at = now
            return self._take_of(line, count_max, holder, now)
        self.asked_at = now
        rotation = self._rotation
        for _ in range(len(rotation)):
            line = rotation.popleft()
            batch = self._take_of(line, count_max, holder, now)
            if line.group_queues:
                rotation.append(line)
            else:
                line.listed = False
            if batch is not None:
                return batch
        return None

    def _take_of(self, line: TopicLine, count_max: int | None, holder: Holder, now: float) -> PulledBatch | None:
        group_queues = line.group_queues
        for _ in range(len(group_queues)):
            group_queue = group_queues.popleft()
            jobs = self._take_jobs(group_queue, count_max)
            if (group_queue.waiting or group_queue.front) and len(group_queue.waiting) + len(
                group_queue.front
            ) > group_queue.gone:
                group_queues.append(group_queue)
            else:
                group_queue.listed = False
            if jobs:
                self._hand_out(group_queue, jobs, holder, now)
                return _new(PulledBatch, (line.topic, group_queue.qid, jobs))
        return None

    def _take_jobs(self, group_queue: GroupQueue, count_max: int | None) -> list[UpstreamJob]:
        subscription = group_queue.subscription
        if subscription is None or not subscription.hands_out or group_queue.stopped or group_queue.withheld:
            return []
        count = subscription.batch_max
        if count_max is not None and 0 < count_max < count:
            count = count_max
        reply_bytes_max = self.limits.reply_bytes_max
        mixed = group_queue.front or group_queue.gone
        usual = None if mixed else job_loops.take(group_queue.waiting, count, reply_bytes_max)
        jobs, room = usual or self._take_mixed(group_queue, count, reply_bytes_max)
        taken = len(jobs)
        group_queue.line.jobs -= taken
        self.jobs -= taken
        self.bytes -= reply_bytes_max - room
        return jobs

    @staticmethod
    def _take_mixed(group_queue: GroupQueue, count: int, room: int) -> tuple[list[UpstreamJob], int]:
        """Do `job_loops.take` of any line: jobs that came back go first, those that have ended are left out."""
        jobs: list[UpstreamJob] = []
        waiting, front = group_queue.waiting, group_queue.front
        while len(jobs) < count:
            if front:
                job = front[0][1]
            elif waiting:
                job = waiting[0]
            else:
                break
            if job.state is _BUFFERED:
                size = job.size
                if size > room and jobs:
                    break
                room -= size
                jobs.append(job)
            else:
                group_queue.gone -= 1
            if front:
                heappop(front)
            else:
                waiting.popleft()
        return jobs, room

    def _hand_out(self, group_queue: GroupQueue, jobs: list[UpstreamJob], holder: Holder, now: float) -> None:
        subscription = group_queue.subscription
        assert subscription is not None, "only a running group_queue has jobs"
        delivery = DeliveredBatch(holder, now, now + subscription.timeout_seconds, jobs)
        perhaps, delivery.again = job_loops.hand_out(jobs, delivery, group_queue.uncertain_until)
        if perhaps or group_queue.reused_from is not None:
            # Only what was delivered before has answers to distinguish, and what has another message's offset.
            self._deliveries += 1
            delivery.number = group_queue.last_number = self._deliveries
            if not group_queue.first_number:
                group_queue.first_number = self._deliveries
        subscription.handed_out(delivery)

    def park(
        self, topic: str | None, count_max: int | None, holder: Holder, wake: Callable[[PulledBatch], None]
    ) -> Parked:
        """Let a pull wait; `wake` is called once with the first batch for it.

        Raises:
            ParkedFull: `parked_max` pulls wait already.
        """
        if self.parked_count >= self.limits.parked_max:
            raise ParkedFull(f"{self.parked_count} pulls already wait")
        self._numbers += 1
        parked = Parked(self._numbers, topic, count_max, holder, wake)
        if topic is None:
            self._parked.append(parked)
        else:
            self.line(topic)
            self._parked_at[topic].append(parked)
        self.parked_count += 1
        return parked

    def unpark(self, parked: Parked) -> None:
        """Withdraw a parked pull; harmless after it was answered."""
        if not parked.open:
            return
        parked.open = False
        self.parked_count -= 1
        waiting = self._parked if parked.topic is None else self._parked_at[parked.topic]
        # Lingers end in about the order of parking, so the withdrawn one is at or near the head and goes at once.
        # What is withdrawn further back is passed over when its turn comes, unless such ones are most of the line.
        while waiting and not waiting[0].open:
            waiting.popleft()
        if len(waiting) > 2 * self.parked_count + 64:
            alive = [each for each in waiting if each.open]
            waiting.clear()
            waiting.extend(alive)

    def _list(self, group_queue: GroupQueue) -> None:
        group_queue.listed = True
        line = group_queue.line
        line.group_queues.append(group_queue)
        if not line.listed:
            line.listed = True
            self._rotation.append(line)

    def parked_holders(self, topic: str) -> set[Holder]:
        """Return who waits for a message of a topic now."""
        waiting = [*self._parked, *self._parked_at.get(topic, ())]
        return {parked.holder for parked in waiting if parked.open}

    def serve(self) -> None:
        """Answer the parked pulls that were passed over while nothing could be handed out."""
        for line in list(self._lines.values()):
            self.wake(line)

    def wake(self, line: TopicLine) -> None:
        """Answer parked pulls from what a topic has. A wake that gives its batch back comes here again: in turn."""
        if not self.parked_count:
            return
        if self._serving:
            self._woken.append(line)
            return
        self._serving = True
        try:
            self._serve_line(line)
            while self._woken:
                self._serve_line(self._woken.pop())
        finally:
            self._serving = False

    def _serve_line(self, line: TopicLine) -> None:
        while line.jobs:
            parked = self._first_parked(line)
            if parked is None:
                return
            batch = self.take(parked.topic, parked.count_max, parked.holder)
            if batch is None:
                return
            self.unpark(parked)
            parked.wake(batch)

    def _first_parked(self, line: TopicLine) -> Parked | None:
        """Return the longest waiting pull that this line can answer, dropping those of closed connections."""
        first = None
        for waiting in (self._parked, self._parked_at[line.topic]):
            while waiting:
                head = waiting[0]
                if not head.open:
                    waiting.popleft()
                elif head.holder.closed:
                    self.unpark(head)
                else:
                    if first is None or head.number < first.number:
                        first = head
                    break
        return first
