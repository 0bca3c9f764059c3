"""What becomes of a job: consumed, tried again, timed out, dead-lettered, skipped. One object per subscription.

A job has up to four things: a **permit** (from `admit` on), its place in the chain of its **key**, its place in a
**delivery** (while it is OUT or HELD), and an **offset** that is not finished. Each outcome gives some of them back.

- What ends a job ends in `over`, once (the state table leads nowhere from FINISHED), so permit and key are released
  exactly once (W36, W41). A job that waits for its retry keeps both: nothing of its key overtakes it.
- An attempt is staged for the journal before the redelivery that it causes (D17), so a restart knows of it.
- A record that takes a message's place is durable before the offset is finished (`leaving`).
- A late success may finish the offset while a client has the job; then it waits, HELD, and counts once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from conf.models import SubscriptionConfig
from pyddmq.actions import BodyUnprocessable, Failed, MessageUnreadable, RetryLater, RetryNotBefore, Unprocessable
from upstream.calls.user_code import ActionMisbehaved, described, shown, text_of, traceback_of
from upstream.figures.counters import SubscriptionCounters
from upstream.figures.endings import MessageEnding
from upstream.figures.latency import Latency
from upstream.group_parts import GroupParts
from upstream.history import PULL_SERVER, JobHistory, history_of, noted
from upstream.job import DeliveredBatch, UpstreamJob
from upstream.outcomes.departing_jobs import DepartingJobs
from upstream.outcomes.parked_jobs import Apart
from upstream.outcomes.stops import Stops
from upstream.progress.tracker import FailureKind, Stop
from upstream.retry.retry import WISH_MS_MAX, apart_ms, delay_of, error_delay_ms, may_retry_error, next_interval_ms
from upstream.state import WITHOUT_PERMIT, JobEvent, JobState, move
from upstream.waiting.limits import Permits
from upstream.waiting.order import OrderQueue
from upstream.waiting.timers import Deadlines, DueJobs

_STOPS = {"deadLetter": Stop.NOTHING, "stopKey": Stop.KEY, "stopQueue": Stop.QUEUE}
PAUSED_LOOK_SECONDS = 1.0
"""How long a retry that is due while its subscription is paused waits until it is looked at again."""


class Outcomes:
    """Completes the jobs of one subscription.

    Attributes:
        latency: How long messages took.
        order: Chains per key.
        permits: Concurrency.
        ready: Jobs that are first of their key and wait for a permit.
        stops: Jobs that wait for an operator.
        deadlines: Deliveries that are out.
        apart: Jobs that nothing is done with for now.
        leaving: Jobs on their way to the dead letters or to the retry topic.
        draining: The generation ends: no key is released, no retry comes.
        paused: An operator paused it: nothing is run or handed out.
        stopped: It has ended.
    """

    def __init__(
        self,
        parts: GroupParts,
        config: SubscriptionConfig,
        counters: SubscriptionCounters,
        *,
        rerun: Callable[[list[UpstreamJob]], None],
        delay_gate: Callable[[float], None],
        pump: Callable[[], None],
    ) -> None:
        """Set up.

        Args:
            parts: What the subscription has of its group.
            config: Intervals and counts; replaced when they change live.
            counters: Series of the subscription.
            rerun: Runs RUNNING jobs through their actions again.
            delay_gate: Keeps the order gate closed for so many seconds, for a job that failed before it.
            pump: Called when something was freed outside a call of the subscription.
        """
        runtime = parts.node.runtime
        self.group = parts.group
        self.config = config
        self.counters = counters
        self.latency = Latency(runtime.metrics, parts.group, config.topic, runtime.clock, parts.node.endings)
        self.jitter: Callable[[], float] | None = None
        """Draws of [0, 1) by which retries are spread; None: they come when retryIntervals says."""
        self.order = OrderQueue()
        self.permits = Permits(config.concurrency)
        self.ready: deque[UpstreamJob] = deque()
        self.draining = False
        self.paused = False
        self.stopped = False
        self._buffer = parts.buffer
        self._progress = parts.node.progress
        self._clock = runtime.clock
        self._limited_log = runtime.limited_log
        self._rerun = rerun
        self._delay_gate = delay_gate
        self._pump = pump
        self._due = DueJobs(runtime, due=self._come_again)
        self.deadlines = Deadlines(runtime, expired=self._expire)
        self.stops = Stops(
            parts,
            ready=self.ready,
            permits=self.permits,
            counters=counters,
            rerun=rerun,
        )
        self.apart = Apart(
            parts,
            permits=self.permits,
            counters=counters,
            deadlines=self.deadlines,
            over=partial(self.over, held_permit=False),
            pump=pump,
        )
        self.leaving = DepartingJobs(
            parts,
            apart=self.apart,
            counters=counters,
            latency=self.latency,
            over=self.over,
            pump=pump,
        )

    def begin_drain(self) -> None:
        """From here on no key is released and no retry comes."""
        self.draining = True
        self._due.clear()
        self.ready.clear()
        self.stops.clear()
        self.order.clear()

    @staticmethod
    def abandon(jobs: Sequence[UpstreamJob]) -> None:
        """Drop jobs that are not in flight when a generation ends; the next one reads them again."""
        for job in jobs:
            del job.group_queue.live[job.offset]
            move(job, JobEvent.ABANDON)

    def stop(self) -> None:
        """Nothing happens any more."""
        self.stopped = self.leaving.stopped = True
        self.deadlines.clear()

    def postponed(self, job: UpstreamJob) -> bool:
        """Whether a job that failed before a restart still waits; it keeps its permit and its place in the key."""
        history = history_of(job)
        if history.stopped:
            self.stops.stop_again(job)
            return True
        wait_ms = history.due_wall_ms - self._clock.wall_ms()
        if wait_ms <= 0:
            return False
        # A wall clock that went back must not turn a short wait into a long one (D35).
        longest = max(*self.config.retry_intervals, WISH_MS_MAX if history.errors else 0, 0)
        job.drop_data()
        job.step = -1
        move(job, JobEvent.RETRY)
        self._due.add(job, self._clock.monotonic() + min(wait_ms, longest) / 1000)
        return True

    # Ends

    def succeed(self, job: UpstreamJob) -> None:
        """Finish a consumed job: its offset is finished, its permit free, its key released."""
        held_permit = job.state not in WITHOUT_PERMIT
        move(job, JobEvent.SUCCEED)
        job.group_queue.tracker.finish(job.offset)
        self.count_finished(job)
        self.over(job, held_permit=held_permit)

    def succeed_unstarted(self, job: UpstreamJob) -> None:
        """Finish a job that was delivered before a restart and has not come to its turn again.

        Behind its key it stays in the chain as a finished link, which `OrderQueue.release` passes over.
        """
        first = job.state is JobState.READY
        move(job, JobEvent.SUCCEED)
        job.group_queue.tracker.finish(job.offset)
        job.group_queue.forget(job.offset)
        self.count_finished(job)
        if first and job.key is not None and not self.draining:
            self._release(job)

    def count_finished(self, job: UpstreamJob) -> None:
        """Count a message that was consumed otherwise than by a plain answer."""
        self.counters.finished.value += 1
        self.latency.finished_singly(job)

    def over(self, job: UpstreamJob, *, held_permit: bool = True) -> None:
        """Forget a job that just became FINISHED, free its permit and let its key continue."""
        group_queue = job.group_queue
        if group_queue.adopted or group_queue.unanswered:
            group_queue.forget(job.offset)
        else:
            group_queue.live.pop(job.offset, None)
        if held_permit:
            self.permits.release(1)
        if job.key is not None and not self.draining:
            self._release(job)
        if self.stops.queues:
            self.stops.ended(job)

    def let_go(self, job: UpstreamJob) -> None:
        """End a HELD job: who had it answered, or is waited for no longer."""
        if job.delivery is not None:
            self.leave_delivery(job)
        move(job, JobEvent.COMPLETE)
        self.over(job)

    def _release(self, job: UpstreamJob) -> None:
        following = self.order.release(job)
        if following is not None:
            self.ready.append(following)

    def fail(self, job: UpstreamJob, reason: str, action: str = PULL_SERVER) -> None:
        """Note a business failure: next entry of retryIntervals, or the dead letters when none is left (R45, D17)."""
        if self.was_finished(job):
            return
        history = noted(job, reason, self._clock.monotonic(), action)
        wait_ms = next_interval_ms(self.config.retry_intervals, history.fails)
        history.fails += 1
        self.counters.failed.value += 1
        self.latency.failed(job, reason)
        if wait_ms is not None and self.jitter is not None:
            wait_ms = apart_ms(wait_ms, self.jitter())
        if wait_ms is None:
            self._exhausted(job, "fails", f"failed {history.fails} times: {reason}")
        else:
            self._retry(job, history, FailureKind.FAIL, history.fails, wait_ms)

    def error(self, job: UpstreamJob, error: Exception, action: str = PULL_SERVER) -> None:
        """Complete or retry a job for which an action raised, by what the exception says about the message."""
        if isinstance(error, MessageUnreadable):
            self.skip(job, text_of(error))
            return
        if isinstance(error, Failed):
            self.fail(job, text_of(error), action)
            return
        if self.was_finished(job):
            return
        if isinstance(error, RetryLater):
            wait_ms = delay_of(error.delay_ms)
            if wait_ms is not None:
                self._retry_later(job, text_of(error), wait_ms, action)
                return
            error = ActionMisbehaved(f"RetryLater needs 0 or more milliseconds, got {shown(error.delay_ms):.80}")
        if isinstance(error, BodyUnprocessable):
            self.counters.bodies_unusable(error.reason).add()
        if isinstance(error, Unprocessable):
            reason = text_of(error)
            noted(job, reason, self._clock.monotonic(), action)
            self.latency.failed(job, reason)
            self._exhausted(job, "unprocessable", reason)
            return
        reason = described(error)
        history = noted(job, reason, self._clock.monotonic(), action)
        self.counters.errors.value += 1
        self.latency.failed(job, reason)
        self._limited_log.note(
            "action_error",
            self.group,
            kind=type(error).__name__,
            first=lambda: {"traceback": traceback_of(error)},
            **job.log_facts,
            error=reason,
        )
        earlier = history.errors + history.timeouts
        history.errors += 1
        if may_retry_error(earlier, self.config.max_retry):
            wish_ms = delay_of(error.delay_ms) if isinstance(error, RetryNotBefore) else None
            wait_ms = max(error_delay_ms(earlier), min(wish_ms or 0, WISH_MS_MAX))
            self._retry(job, history, FailureKind.ERROR, history.errors, wait_ms)
        else:
            self._exhausted(job, "errors", reason)

    def _exhausted(self, job: UpstreamJob, kind: str, reason: str) -> None:
        """Give up on a job that is out of attempts, or have it wait for an operator, as the group has chosen.

        One that failed before the order gate has no key that could wait: it always goes to the dead letters.
        """
        stop = _STOPS[self.config.on_exhausted]
        if stop is Stop.NOTHING or job.state is JobState.READ:
            self.dead_letter(job, kind, reason)
        else:
            self.stops.stop(job, stop, kind, reason)

    def was_finished(self, job: UpstreamJob) -> bool:
        """Whether a late success finished the offset while an action had the job; then the job has ended."""
        if not job.group_queue.tracker.is_finished(job.offset):
            return False
        held_permit = job.state is not JobState.READ
        move(job, JobEvent.SUCCEED)
        self.over(job, held_permit=held_permit)
        return True

    def _retry(self, job: UpstreamJob, history: JobHistory, kind: FailureKind, count: int, wait_ms: int) -> None:
        """Note the attempt before the redelivery that it causes (D17), and wait in place."""
        due_wall_ms = self._clock.wall_ms() + wait_ms
        self._progress.fail(job.group_queue.tracker, job.offset, kind=kind, count=count, due_wall_ms=due_wall_ms)
        history.due_wall_ms = due_wall_ms
        self._wait(job, wait_ms)

    def _retry_later(self, job: UpstreamJob, reason: str, wait_ms: int, action: str) -> None:
        """Let a job wait as its action wishes: no attempt is counted, and nothing journaled."""
        history = noted(job, reason, self._clock.monotonic(), action)
        history.due_wall_ms = self._clock.wall_ms() + wait_ms
        self.counters.retried_later.value += 1
        self._wait(job, wait_ms, counted=False)

    def _wait(self, job: UpstreamJob, wait_ms: int, *, counted: bool = True) -> None:
        """Let a job come again after its wait, in its place of the key."""
        job.drop_data()
        job.step = -1
        if job.state is JobState.READ:
            # Its key is not known yet, so it keeps its place by holding up the gate.
            self._delay_gate(wait_ms / 1000)
            return
        if counted and self.config.retry_topic and self.leaving.send_back(job, wait_ms):
            return
        move(job, JobEvent.RETRY)
        if not self.draining:
            self._due.add(job, self._clock.monotonic() + wait_ms / 1000)

    def _come_again(self, jobs: list[UpstreamJob]) -> None:
        """End waits: what was delivered before goes back to the buffer, the rest through its actions again."""
        jobs = [job for job in jobs if job.state is JobState.RETRYING]
        rerun: list[UpstreamJob] = []
        back: list[UpstreamJob] = []
        for job in jobs:
            if job.deliveries:
                back.append(job)
                continue
            if self.paused or job.group_queue.stopped:
                self._due.add(job, self._clock.monotonic() + PAUSED_LOOK_SECONDS)
                continue
            move(job, JobEvent.RERUN)
            rerun.append(job)
        self._to_buffer(back)
        if rerun:
            self._rerun(rerun)
        self._pump()

    def skip(self, job: UpstreamJob, reason: str) -> None:
        """Finish, count and report a job whose record cannot be read."""
        self._limited_log.note("message_unreadable", self.group, **job.log_facts, reason=reason)
        self._skip(job, reason, held_permit=job.state is not JobState.READ)

    def _skip(self, job: UpstreamJob, label: str, *, held_permit: bool) -> None:
        move(job, JobEvent.SKIP)
        job.group_queue.tracker.finish(job.offset)
        self.counters.skipped(label).add()
        self.latency.ended(job, MessageEnding.SKIPPED)
        self.over(job, held_permit=held_permit)

    def expire(self, job: UpstreamJob) -> None:
        """End a job without a holder, with its permit, since its log file is deleted; its key continues."""
        state = job.state
        if state is JobState.BUFFERED:
            self._buffer.forget(job)
        move(job, JobEvent.EXPIRE)
        self.latency.ended(job, MessageEnding.LOST)
        job.drop_data()
        if state in (JobState.READ, JobState.WAITING):
            # A waiting one stays in its chain as a finished link, which `OrderQueue.release` passes over.
            job.group_queue.forget(job.offset)
        else:
            self.over(job, held_permit=state not in WITHOUT_PERMIT)

    def dead_letter(self, job: UpstreamJob, kind: str, reason: str) -> None:
        """Give up on a job: to the dead letters; its key waits until that is durable (D16).

        Args: as those of `DepartingJobs.dead_letter`.
        """
        if not self.leaving.is_dead_letter(job):
            self.leaving.dead_letter(job, kind, reason)
            return
        # No dead letter of a dead letter: the message stays readable where it is (D16).
        held_permit = job.state not in WITHOUT_PERMIT
        job.drop_data()
        move(job, JobEvent.DEAD_LETTER)
        self._limited_log.note("dead_letter_exhausted", self.group, topic=job.topic, offset=job.offset, reason=reason)
        self._skip(job, "dead_letter_exhausted", held_permit=held_permit)

    def give_up(self, job: UpstreamJob, reason: str) -> None:
        """Dead-letter a job because an operator says so, with what it failed for before; see `dead_letter`."""
        if job.history is not None and job.history.reason:
            reason = f"{reason}; before: {job.history.reason}"
        noted(job, reason, self._clock.monotonic())
        self.dead_letter(job, "operator", reason)

    def retry_now(self, job: UpstreamJob) -> None:
        """End the wait of a RETRYING job before its time."""
        self._due.discard(job)
        self._come_again([job])

    def forget_wait(self, job: UpstreamJob) -> None:
        """Let a RETRYING job wait no longer: it is about to end."""
        self._due.discard(job)

    def withdraw_dead_letter(self, job: UpstreamJob) -> bool:
        """Finish a BURYING job if its dead letter can still be called off, its append having been refused so far."""
        if not self.leaving.call_off(job):
            return False
        self.succeed(job)
        return True

    # Deliveries

    def leave_delivery(self, job: UpstreamJob) -> DeliveredBatch:
        """Take an answered job (OUT or HELD) out of its delivery, which is returned."""
        delivery = job.delivery
        assert delivery is not None, "only a delivered job is out"
        job.delivery = None
        delivery.open -= 1
        if not delivery.open:
            self.deadlines.close(delivery)
        return delivery

    def _expire(self, expired: list[DeliveredBatch]) -> None:
        """End deliveries whose timeout passed: to the front of their queues, or to the dead letters (W14, D17)."""
        back: list[UpstreamJob] = []
        for delivery in expired:
            jobs, delivery.jobs = delivery.jobs, None
            for job in jobs or ():
                if job.delivery is not delivery:
                    continue
                job.delivery = None
                if job.state is JobState.HELD:
                    move(job, JobEvent.COMPLETE)
                    self.over(job)
                elif job.state is JobState.OUT:
                    self._time_out(job, delivery, back)
        self.put_back(back)
        self._pump()

    def put_back(self, jobs: list[UpstreamJob]) -> None:
        """Put jobs that came back into the pull buffer; those of an earlier generation through the actions."""
        anew = [job for job in jobs if not job.deliveries]
        back = [job for job in jobs if job.deliveries]
        for job in anew:
            move(job, JobEvent.RETRY)
        if anew:
            # A pull that waits may have them out before this returns.
            self._come_again(anew)
        self._to_buffer(back)

    def _to_buffer(self, jobs: list[UpstreamJob]) -> None:
        """Put jobs that came back into the pull buffer; those of stopped queues come out of it again."""
        self._buffer.put_back(jobs)
        if self.stops.queues:
            self.stops.withdraw()

    def _time_out(self, job: UpstreamJob, delivery: DeliveredBatch, back: list[UpstreamJob]) -> None:
        self.counters.timeouts.value += 1
        job.group_queue.note_unanswered(job.offset, delivery)
        reason = f"no answer from {delivery.holder.address} within {self.config.timeout} ms"
        history = noted(job, reason, self._clock.monotonic(), PULL_SERVER)
        history.since = min(history.since, delivery.since)
        self.latency.failed(job, reason)
        earlier = history.errors + history.timeouts
        history.timeouts += 1
        if not may_retry_error(earlier, self.config.max_retry):
            self._exhausted(job, "timeouts", reason)
        elif self.draining:
            self._retry(job, history, FailureKind.TIMEOUT, history.timeouts, 0)
        else:
            wall_ms = self._clock.wall_ms()
            self._progress.fail(
                job.group_queue.tracker,
                job.offset,
                kind=FailureKind.TIMEOUT,
                count=history.timeouts,
                due_wall_ms=wall_ms,
            )
            back.append(job)

    def give_back(self, jobs: list[UpstreamJob], holder: object) -> None:
        """Put jobs whose reply never left the node to the front, at once and uncounted (D18)."""
        self.return_undelivered(
            [job for job in jobs if (out := job.delivery) is not None and out.jobs is jobs and out.holder is holder]
        )

    def return_undelivered(self, jobs: Sequence[UpstreamJob]) -> None:
        """Put jobs that are in a delivery, and were not sent after all, to the front, at once and uncounted."""
        back = []
        for job in jobs:
            if job.state is JobState.OUT:
                self.leave_delivery(job)
                job.deliveries -= 1
                self.latency.failed(job, "not delivered")
                back.append(job)
            elif job.state is JobState.HELD:
                self.let_go(job)
        self.counters.given_back.value += len(back)
        if self.draining:
            self.abandon(back)
        else:
            self._to_buffer(back)
        self._pump()

    def readopt(self, jobs: Sequence[UpstreamJob]) -> list[UpstreamJob]:
        """Take jobs out that an earlier generation handed out and whose timeout has not passed: still in flight.

        If they come again they go through the actions of this generation, as any that it has not delivered.
        """
        now = self._clock.monotonic()
        left = []
        for job in jobs:
            delivery = job.group_queue.adopted.pop(job.offset, None)
            if delivery is None or delivery.deadline <= now:
                if delivery is not None:
                    job.group_queue.note_unanswered(job.offset, delivery)
                left.append(job)
                continue
            move(job, JobEvent.TAKE)
            self.apart.adopt(job, delivery)
        return left
