"""Many due times behind one scheduled call."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from broker.runtime.bundle import Runtime
from broker.runtime.later import Earliest
from upstream.job import DeliveredBatch, UpstreamJob

_EARLY_SECONDS = 1e-4
"""Loops round their timers; what is due within this is due now, so that a call never spins for the rest."""


class DueJobs:
    """Jobs that wait for a time, earliest first."""

    def __init__(self, runtime: Runtime, *, due: Callable[[list[UpstreamJob]], None]) -> None:
        self._heap: list[tuple[float, int, UpstreamJob]] = []
        self._numbers = 0
        self._due = due
        self._clock = runtime.clock
        self._call = Earliest(runtime.clock, runtime.scheduler, self._run)

    def add(self, job: UpstreamJob, at: float) -> None:
        """Report `job` at `at` (monotonic seconds)."""
        self._numbers += 1
        heappush(self._heap, (at, self._numbers, job))
        self._call.at(at)

    def discard(self, job: UpstreamJob) -> None:
        """Forget one job; harmless when it does not wait here."""
        kept = [entry for entry in self._heap if entry[2] is not job]
        if len(kept) < len(self._heap):
            self._heap = kept
            heapify(kept)

    def clear(self) -> None:
        """Forget all jobs."""
        self._heap.clear()
        self._call.end()

    def _run(self) -> None:
        now = self._clock.monotonic() + _EARLY_SECONDS
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap)[2])
        if heap:
            self._call.at(heap[0][0])
        if due:
            self._due(due)


class Deadlines:
    """Deliveries that are out, in the order of their deadlines: one timeout for all keeps that the order of entry.

    Those of an earlier generation may have another timeout: while such are out, all are sorted when the first is due.
    """

    def __init__(self, runtime: Runtime, *, expired: Callable[[list[DeliveredBatch]], None]) -> None:
        self.open: dict[DeliveredBatch, None] = {}
        """Deliveries with a job unanswered."""
        self._expired = expired
        self._clock = runtime.clock
        self._call = Earliest(runtime.clock, runtime.scheduler, self._run)
        self._armed = False
        self._latest = 0.0
        self._in_order = True

    def add(self, delivery: DeliveredBatch) -> None:
        """Watch a delivery until `close`."""
        self.open[delivery] = None
        if delivery.deadline < self._latest:
            self._in_order = False
        else:
            self._latest = delivery.deadline
        if not (self._armed and self._in_order):
            self._armed = True
            self._call.at(delivery.deadline)

    def _sort(self) -> None:
        self.open = dict.fromkeys(sorted(self.open, key=lambda each: each.deadline))
        self._latest = max((delivery.deadline for delivery in self.open), default=0.0)
        self._in_order = True

    def close(self, delivery: DeliveredBatch) -> None:
        """Every job of it is answered: forget them."""
        delivery.jobs = None
        self.open.pop(delivery, None)

    def set_timeout(self, seconds: float) -> None:
        """Give every open delivery a new deadline, counted from when it was handed out (D22)."""
        for delivery in self.open:
            delivery.deadline = delivery.since + seconds
        self._sort()
        self._arm()

    def clear(self) -> None:
        """Forget all deliveries."""
        self.open.clear()
        self._sort()
        self._armed = False
        self._call.end()

    def _run(self) -> None:
        if not self._in_order:
            self._sort()
        now = self._clock.monotonic() + _EARLY_SECONDS
        expired = []
        for delivery in self.open:
            if delivery.deadline > now:
                break
            expired.append(delivery)
        for delivery in expired:
            del self.open[delivery]
        self._arm()
        if expired:
            self._expired(expired)

    def _arm(self) -> None:
        first = next(iter(self.open), None)
        self._armed = first is not None
        if first is not None:
            self._call.at(first.deadline)
