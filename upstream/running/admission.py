"""Which ready jobs may run now: permits and rate tokens, which are taken together, and what holds jobs back.

A job is READY when it is first of its key. It runs when there is a permit (`concurrency`, R67) and a token (`maxTps` or
`totalMaxTps`, R66), and its queue is not stopped. Reading stops besides at `maxConsumeLag` messages beyond a queue's
committed offset (R69). All four change live. Clients held back, with the limit, are shown on the page, in the answers
and in the metrics; for how often, a bound that is met counts each time that a job which could have gone has to wait for
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from conf.models import SubscriptionConfig
from upstream.job import GroupQueue, UpstreamJob
from upstream.outcomes.outcomes import Outcomes
from upstream.state import JobEvent, JobState, next_state
from upstream.waiting import job_loops
from upstream.waiting.limits import TokenBucket

THROTTLED = declare(
    "pyddmq_throttled_total",
    "Times that messages ready for delivery waited for a limit: maxTps (or totalMaxTps), concurrency",
    ("group", "topic", "limit"),
)
_RUNNING = next_state(JobState.READY, JobEvent.ADMIT)
_READY = JobState.READY


class Admission:
    """Admits the ready jobs of one subscription.

    Attributes:
        held_by_rate: How often its rate held messages back.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        config: SubscriptionConfig,
        *,
        runtime: Runtime,
        again: Later,
        count_max: int,
    ) -> None:
        """Set up.

        Args:
            outcomes: Has the ready jobs, the permits, and what keeps a job from its turn.
            config: Its limits; see `configure`.
            runtime: Its metrics count waits, its monotonic clock refills tokens.
            again: Has the subscription continue when a token is there.
            count_max: Jobs admitted at once.
        """
        self._outcomes = outcomes
        self._ready = outcomes.ready
        self._permits = outcomes.permits
        self._bucket = TokenBucket(config.tps_max, runtime.clock)
        self._again = again
        self._count_max = count_max
        self._at_rate = runtime.metrics.counter(THROTTLED, outcomes.group, config.topic, "maxTps")
        self._at_concurrency = runtime.metrics.counter(THROTTLED, outcomes.group, config.topic, "concurrency")
        self._config = config
        self.configure(config)

    def configure(self, config: SubscriptionConfig) -> None:
        """Change the limits; jobs that are past them stay (D22)."""
        self._config = config
        self._bucket.configure(config.tps_max)
        self._permits.maximum = config.concurrency

    @property
    def held_by_rate(self) -> int:
        """How often its rate held messages back."""
        return self._bucket.held

    def next(self) -> tuple[list[UpstreamJob], bool]:
        """Make ready jobs RUNNING as far as permits and tokens go, which are taken together (W42).

        Returns:
            The jobs to be run, and whether any could go or none was left.
        """
        ready, permits, bucket, outcomes = self._ready, self._permits, self._bucket, self._outcomes
        if outcomes.stops.queues:
            outcomes.stops.keep()
        room = min(len(ready), permits.free, self._count_max)
        if not room and ready:
            self._at_concurrency.value += 1
        if bucket.rate is not None:
            tokens = bucket.available()
            if tokens is not None and tokens < room:
                bucket.held += 1
                self._at_rate.value += 1
                if not tokens:
                    self._again.after(bucket.wait_seconds())
                room = tokens
        admitted = job_loops.admit(ready, room)
        taken = len(admitted)
        while taken < room and ready:
            job = ready.popleft()
            if job.state is not _READY or outcomes.apart.take(job):
                continue
            job.state = _RUNNING
            taken += 1
            if job.history is not None and outcomes.postponed(job):
                # A stopped one gives its permit back at once.
                taken -= job.state is JobState.STOPPED
                continue
            admitted.append(job)
        permits.used += taken
        if bucket.rate is not None:
            bucket.take(taken)
        return admitted, taken > 0 or not ready

    def limits_met(self, group_queues: Iterable[GroupQueue], *, more: bool) -> Iterator[str]:
        """Yield the limits that hold messages back now, each by its setting and value; cold.

        Args:
            group_queues: The queues that are read.
            more: Whether something is left to be read.
        """
        config, ready = self._config, self._ready
        if ready and self._bucket.available() == 0:
            name = "maxTps" if config.total_max_tps is None else "totalMaxTps"
            yield f"{name} {config.tps_max:,g}"
        if not self._permits.free and (ready or more):
            yield f"concurrency {config.concurrency:,}"
        lag_max = config.consume_lag_max
        if lag_max is not None and any(
            not each.retries and each.pending and each.tracker.started - each.tracker.watermark >= lag_max
            for each in group_queues
        ):
            yield f"maxConsumeLag {lag_max:,}"
