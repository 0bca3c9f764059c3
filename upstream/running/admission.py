"""Which ready jobs may run now: permits and rate tokens, which are taken together, and what holds jobs back.

A job is READY when it is first of its key. It runs when there is a permit (`concurrency`, R67) and a token (`maxTps` or
`totalMaxTps`, R66), and its queue is not stopped. Reading stops besides at `maxConsumeLag` messages beyond a queue's
committed offset (R69). All four change live. Clients held back, with the limit, are shown on the page, in the answers
and in the metrics; for how often, a bound that is met counts each time that a job which could have gone has to wait for
it.

The order gate (`Gate`) of a JSON-path key runs the actions before it in reading order and finds each job's key (D14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from conf.models import SubscriptionConfig
from pyddmq.actions import Status
from upstream.calls.user_code import ActionMisbehaved
from upstream.job import GroupQueue, UpstreamJob
from upstream.outcomes.outcomes import Outcomes
from upstream.running.calling import Calling
from upstream.running.pipeline import Pipeline
from upstream.running.running import carry_out
from upstream.state import JobEvent, JobState, next_state
from upstream.waiting import job_loops
from upstream.waiting.limits import TokenBucket
from upstream.waiting.order import compile_path

if TYPE_CHECKING:
    from upstream.outcomes.outcomes import Outcomes


class OrderKeyGate:
    """What stands before the order queue when the key is inside the body.

    Attributes:
        closed: A job failed before its key was known and waits for its retry; reading stops until it has passed,
            because a later job might have the same key.
        backlog: That job and those read with it, in order, while the gate is closed.
    """

    def __init__(self, outcomes: Outcomes, pipeline: Pipeline, calling: Calling, path: str) -> None:
        self._outcomes = outcomes
        self._steps = calling.before
        self._keeps_data = pipeline.rebuilds
        self._get = compile_path(path)
        self.closed = False
        self.backlog: list[UpstreamJob] = []

    def pass_on(self, jobs: Sequence[UpstreamJob]) -> list[UpstreamJob]:
        """Run the actions and set the keys; returns the jobs that passed, in order."""
        passing = list(jobs)
        for each in self._steps:
            if passing:
                passing = self._answered(passing, each.run(passing), each.action.name)
        get, keeps = self._get, self._keeps_data
        for job in passing:
            job.key = get(job.data)
            if not keeps:
                job.drop_data()
        return passing

    def reopen(self) -> list[UpstreamJob]:
        """End the wait and return the backlog, to be passed on again."""
        self.closed = False
        jobs, self.backlog = self.backlog, []
        return [job for job in jobs if job.state is JobState.READ]

    def _answered(self, jobs: list[UpstreamJob], answers: Sequence[object], action: str) -> list[UpstreamJob]:
        onward = []
        for place, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            if answer is Status.CONTINUE:
                onward.append(job)
                continue
            if answer is Status.ASYNCHRONIZED:
                misbehaved = ActionMisbehaved("an action before the order gate returned ASYNCHRONIZED")
                self._outcomes.error(job, misbehaved, action)
            else:
                carry_out(self._outcomes, job, answer, action)
            if job.state is JobState.READ:
                # It will be tried again. Nothing that was read after it may pass it, for its key is not known; jobs
                # held by an earlier pass of this batch come after these.
                self.closed = True
                for each in jobs[place:]:
                    each.drop_data()
                self.backlog[:0] = jobs[place:]
                break
        return onward


THROTTLED = declare(
    "pyddmq_throttled_total",
    "Times that messages ready for delivery waited for a limit: maxTps (or totalMaxTps), concurrency",
    ("group", "topic", "limit"),
)
_RUNNING = next_state(JobState.READY, JobEvent.ADMIT)
_READY = JobState.READY
_FIRST_JOBS = 8
STEP_SECONDS = 0.02
"""How long plain actions of one subscription may run before everything else has its turn."""


class Admission:
    """Admits the ready jobs of one subscription, as many at once as its plain actions get through in a step.

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
        is_timed: bool,
    ) -> None:
        """Set up.

        Args:
            outcomes: Has the ready jobs, the permits, and what keeps a job from its turn.
            config: Its limits; see `configure`.
            runtime: Its metrics count waits, its monotonic clock refills tokens.
            again: Has the subscription continue when a token is there.
            count_max: Jobs admitted at once.
            is_timed: Whether their number follows from how long they take (`Calling.is_timed`).
        """
        self._outcomes = outcomes
        self._ready = outcomes.ready
        self._permits = outcomes.permits
        self._bucket = TokenBucket(config.tps_max, runtime.clock)
        self._again = again
        self._count_max = count_max
        self._now = runtime.clock.monotonic
        self._is_timed = is_timed
        self._at_once = min(_FIRST_JOBS, count_max) if is_timed else count_max
        self._spent = 0.0
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
        room = min(len(ready), permits.free, self._at_once)
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

    def run(self, run: Callable[[list[UpstreamJob]], None], jobs: list[UpstreamJob]) -> bool:
        """Run admitted jobs; whether more may run in this step, else the subscription continues in the next one."""
        if not self._is_timed:
            run(jobs)
            return True
        began = self._now()
        run(jobs)
        seconds = self._now() - began
        if seconds > STEP_SECONDS:
            self._at_once = max(1, int(len(jobs) * STEP_SECONDS / seconds))
        elif seconds < STEP_SECONDS / 4 and len(jobs) == self._at_once:
            self._at_once = min(4 * self._at_once, self._count_max)
        self._spent += seconds
        if self._spent < STEP_SECONDS:
            return True
        self._spent = 0.0
        self._again.after(0.0)
        return False

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
