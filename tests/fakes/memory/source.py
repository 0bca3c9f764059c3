"""The messages of one generation of a subscription, from partitions: order within a queue, bodies that come later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker.runtime.seams import Clock, ScheduledCall, Scheduler
from pyddmq.actions import Message, MessageUnreadable
from tests.fakes.memory.cluster import Cluster, Record
from tests.fakes.memory.topics import MemoryQueue
from upstream.history import JobHistory
from upstream.job import Generation, GroupQueue, OrderKey, Slices, UpstreamJob
from upstream.progress.replay import finish_gone
from upstream.queues import QueueView
from upstream.source import SourceCounts


class MemorySource:
    """`upstream.source.Source` over the partitions of a cluster."""

    bodies_come_later = True

    def __init__(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        cluster: Cluster,
        clock: Clock,
        scheduler: Scheduler,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> None:
        self._subscription = subscription
        self._group_queues = list(group_queues)
        self._cluster = cluster
        self._clock = clock
        self._scheduler = scheduler
        self._counters = counters
        self._keeps_bodies = keeps_bodies
        self.lag_max: int | None = None
        self._dirty = True
        self._held: dict[UpstreamJob, Record] = {}
        self._fetches: set[ScheduledCall] = set()
        self._closed = False

    @property
    def caught_up(self) -> bool:
        """Nothing arrived since all queues were read to their ends."""
        return not self._dirty

    def arrived(self) -> None:
        """Look again."""
        self._dirty = True

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Read it too."""
        self._group_queues.append(group_queue)
        self._dirty = True

    def close(self) -> None:
        """Forget what is fetched."""
        self._closed = True
        for handle in self._fetches:
            handle.cancel()

    def read(self, count: int) -> list[UpstreamJob]:
        """Take some of each queue, the queues in any order."""
        jobs: list[UpstreamJob] = []
        queues = list(self._group_queues)
        self._cluster.random.shuffle(queues)
        self._dirty = False
        for group_queue in queues:
            limit = min(count - len(jobs), self._cluster.random.randint(1, 5))
            made = 0
            for offset, record in self._from(group_queue):
                if made == limit or self._is_beyond(group_queue, offset):
                    self._dirty = self._dirty or made == limit
                    break
                self._pass_gap(group_queue, offset)
                group_queue.next = offset + 1
                if not self._is_passed_over(group_queue, offset, record):
                    jobs.append(self._make(group_queue, offset, record))
                    made += 1
            else:
                self._pass_gap(group_queue, group_queue.queue.max_offset)
        return jobs

    def _from(self, group_queue: GroupQueue) -> Iterator[tuple[int, Record]]:
        queue = own(group_queue.queue)
        if group_queue.next < queue.min_offset:
            lost = finish_gone(group_queue.tracker, queue, group_queue.next)
            self._counters.skipped("expired").add(lost)
            group_queue.next = queue.min_offset
        return queue.partition.after(group_queue.next)

    def _is_beyond(self, group_queue: GroupQueue, offset: int) -> bool:
        limit = self.lag_max
        return limit is not None and not group_queue.retries and offset >= group_queue.tracker.watermark + limit

    @staticmethod
    def _pass_gap(group_queue: GroupQueue, offset: int) -> None:
        """Finish offsets that never held a message, so that the watermark does not wait for them."""
        queue = own(group_queue.queue)
        for each in range(group_queue.next, offset):
            if each not in queue.partition.records:
                group_queue.tracker.finish(each)
        group_queue.next = max(group_queue.next, offset)

    def _is_passed_over(self, group_queue: GroupQueue, offset: int, record: Record) -> bool:
        if group_queue.is_over(offset):
            return True
        config = self._subscription.config
        if group_queue.retries:
            return record.properties.get("ORIGIN") != config.topic
        if config.wanted_tags is None or record.properties.get("TAGS") in config.wanted_tags:
            return False
        if group_queue.tracker.finish(offset):
            self._counters.skipped("tag_filter").add()
        return True

    def _make(self, group_queue: GroupQueue, offset: int, record: Record) -> UpstreamJob:
        order_key = self._subscription.config.order_key
        key: OrderKey | None = None
        if order_key == "KEY" and record.key:
            key = record.key.encode()
        elif order_key == "QID":
            key = group_queue.qid
        job = UpstreamJob(self._subscription, group_queue, offset, record.serial, len(record.body), key)
        group_queue.live[offset] = job
        group_queue.tracker.started = max(group_queue.tracker.started, offset + 1)
        if self._keeps_bodies:
            self._held[job] = record
        failure = group_queue.tracker.failures.get(offset)
        if failure is not None or offset in group_queue.apart or group_queue.retries:
            history = job.history = JobHistory(self._clock.monotonic(), earlier=True)
            history.fails, history.errors, history.timeouts = failure[:3] if failure else record.counts
            history.due_wall_ms = failure.due_wall_ms if failure else 0
            history.stopped = failure.stopped if failure else 0
        return job

    # Bodies

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """Have them later, some at once."""
        for job in [job for job in self._held if job.offset not in job.group_queue.live]:
            del self._held[job]
        now = [job for job in jobs if job in self._held or self._cluster.random.random() < 0.3]
        later = [job for job in jobs if job not in now]

        def come() -> None:
            self._fetches.discard(handle)
            self._hold(later)
            there(later)

        if later:
            handle = self._scheduler.call_later(self._cluster.delay(), come)
            self._fetches.add(handle)
        self._hold(now)
        return now

    def _hold(self, jobs: Sequence[UpstreamJob]) -> None:
        for job in jobs:
            self._held[job] = self._record(job)

    @staticmethod
    def _record(job: UpstreamJob) -> Record:
        return own(job.group_queue.queue).partition.records.get(job.offset) or Record(body=b"", problem="gone")

    def _read(self, job: UpstreamJob) -> Record:
        assert job in self._held, f"the body of {job} was requested before it was fetched"
        record = self._held[job]
        problem = record.problem or self._record(job).problem
        if problem is not None:
            raise MessageUnreadable(problem)
        return record

    def body(self, job: UpstreamJob) -> memoryview:
        """Of one that was fetched."""
        return memoryview(self._read(job).body)

    def load(self, job: UpstreamJob) -> Message:
        """Of one that was fetched."""
        record = self._read(job)
        stored_ms = record.stored_ms
        return Message(record.key, record.properties.get("TAGS"), record.body, record.properties, stored_ms, stored_ms)

    def message_id(self, job: UpstreamJob) -> str | None:
        """Its serial."""
        return str(job.physical)

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Known without its body."""
        return self._record(job).stored_ms

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Of those that were fetched."""
        try:
            return [(job.offset, slices_of(self._read(job))) for job in jobs]
        except MessageUnreadable:
            return None

    def located(self, job: UpstreamJob) -> Slices:
        """Of one that was fetched."""
        return slices_of(self._read(job))


def slices_of(record: Record) -> Slices:
    """Return a message as a reply takes it."""
    pairs = {**record.properties, "KEYS": record.key or ""}
    block = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value).encode()
    size = len(record.body)
    return memoryview(record.body + block), 0, size, size, size + len(block)


def own(queue: QueueView) -> MemoryQueue:
    """Return a queue as what it is here."""
    assert isinstance(queue, MemoryQueue), "a queue of this broker"
    return queue
