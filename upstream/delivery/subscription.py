"""One generation of a group on one topic: it reads, keeps order per key, runs the actions and completes jobs.

`pump` is the heart: it admits ready jobs while there are permits and rate tokens, and reads on while nothing ready is
left over. Everything that frees something (an ack, an arrival, a retry, a token) calls it. All of it runs in the
loop's thread.

Three bounds say how much is taken on, each of something else. Permits (`concurrency`) bound jobs between their
admission and their end, tokens (`maxTps`) admissions per second, and READ_AHEAD_JOBS with the buffer's own bounds
what is read and not yet asked for. Jobs behind an unfinished job of their key have none of the three: they wait in
the key's list (`order`), and `waiting_max` of them stop the reading, since what follows could only wait too. Pressure
goes backwards this way: no pull, so no ack, so no permit, so no admission, so no read; the backlog stays on the disk.

`pump` does not call itself: an action that ends a job at once comes back into it through `outcomes`, is noted
(`_pumping`), and continues in the round that runs. After READS_PER_PUMP reads it asks the loop for another turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.runtime.later import Later
from conf.models import SubscriptionConfig
from conf.order_key import is_json_path
from pyddmq.actions import Action, BodyUnprocessable, Message, MessageUnreadable, Status
from upstream.delivery.transformed_bodies import MadeBodies, with_body
from upstream.figures.counters import SubscriptionCounters
from upstream.group_parts import FetchedSource, GroupParts
from upstream.job import DeliveredBatch, GroupQueue, PartialBatch, Slices, Unit, UpstreamJob
from upstream.outcomes.outcomes import Outcomes
from upstream.running.action_context import WaitsForServers, give_contexts, waits_for_servers
from upstream.running.admission import Admission, OrderKeyGate
from upstream.running.calling import Calling
from upstream.running.pipeline import Pipeline
from upstream.running.running import Running, is_in_action
from upstream.state import JobEvent, JobState, move, next_state

if TYPE_CHECKING:
    from upstream.queues import NodeTopic, QueueView
    from upstream.source import Source

READ_JOBS = 256
"""Jobs read at once."""
GATED_JOBS = 16
"""Jobs read at once at least where the order key is in the body: one permit must not mean one look-up per job."""
REUSED_TIMEOUTS = 3
"""For this many timeouts after a start, clients may still answer messages that were lost before it."""
READ_AHEAD_JOBS = 256
"""Jobs in the buffer above which nothing more is read: who is behind by millions holds no more memory for it."""
WAITING_EASED = 10_000
"""Jobs that may wait behind their keys while nothing is read ahead: what one silent key must not hold up (D15)."""
BODIES_AT_ONCE = 16
"""Jobs that are run at once where their bodies are kept: by so many the share of memory may be passed."""
BODIES_LOOK_SECONDS = 0.1
"""How often it is looked whether bodies have gone, while those that are kept leave no room for more."""
LOOK_SECONDS = 1.0
"""How often it is looked whether other things that keep it from reading have gone."""
READS_PER_PUMP = 8
"""Reads before other work of the loop gets its turn: about 10 ms when nothing is handed out."""

_RUNNING = next_state(JobState.READY, JobEvent.ADMIT)
_READY = JobState.READY
_WAITING = JobState.WAITING
_KEPT_BY_DRAIN = (JobState.OUT, JobState.HELD, JobState.RUNNING, JobState.BURYING, JobState.SENDING, JobState.UNDECIDED)


class Subscription:
    """One generation of (group, topic).

    Attributes:
        config: Its configuration; limits in it may change live (`configure`).
        hands_out: Whether pulls get messages of it; false while it is paused, and once it drains.
        pushes: Whether its last action, and no pull, is where messages go.
        buffer: The group's pull buffer.
        group_queues: The queues that are read.
        outcomes: What becomes of its jobs.
        pusher: The action that pushes to external servers and reports their state; None without one.
        sinks: Its actions that write into external servers.
        now: Monotonic seconds.
        made_bodies: Bodies in the place of those in the log, where the last action keeps some; None until then.
    """

    def __init__(
        self,
        parts: GroupParts,
        config: SubscriptionConfig,
        *,
        topic: NodeTopic,
        retries: NodeTopic | None,
        group_queues: Sequence[GroupQueue],
        more_group_queues: Callable[[Sequence[QueueView]], Sequence[GroupQueue]],
        revoked: Callable[[Sequence[GroupQueue]], None],
        start_failed: Callable[[Exception], None],
        actions: Sequence[Action],
        waiting_max: int,
    ) -> None:
        """Set up; nothing is read before `start`.

        Args:
            parts: What it has of its group.
            config: What it reads, and how.
            topic: The topic.
            retries: The group's retry topic, if messages of this topic may come from there.
            group_queues: The topic's queues as the group sees them, and the retry topic's.
            more_group_queues: Returns the group queues of queues that were added since; called when the topic grew.
            revoked: Called with group queues whose queues were taken away; it ends this generation.
            start_failed: Told what an action's `open` raised after `start` has returned; it ends this generation.
            actions: The pipeline, first action first; each instance belongs to this subscription.
            waiting_max: Jobs that may wait behind their keys; then reading stops (D15).
        """
        runtime, buffer = parts.node.runtime, parts.buffer
        self.group = parts.group
        self.config = config
        self.topic = topic
        self._topics = [topic] if retries is None else [topic, retries]
        self.group_queues = list(group_queues)
        self._retry_group_queues = sum(group_queue.retries for group_queue in group_queues)
        self.hands_out = True
        self.waiting_max = waiting_max
        self.buffer = buffer
        self.counters = SubscriptionCounters(runtime.metrics, parts.group, config.topic)
        self._gate_wait = Later(runtime.scheduler, self.reopen_gate)
        # Of a job that failed before the gate: what was read with and after it waits so long.
        delay_gate = self._gate_wait.after
        self.outcomes = Outcomes(parts, config, self.counters, rerun=self._run, delay_gate=delay_gate, pump=self.pump)
        self.order = self.outcomes.order
        self.permits = self.outcomes.permits
        self.deadlines = self.outcomes.deadlines
        self.make_ready = self.outcomes.ready.append
        self._ready = self.outcomes.ready
        self.refused: Callable[[Unit], None] = lambda unit: self.outcomes.latency.refused(self, unit)
        self._more_group_queues = more_group_queues
        self._revoked = revoked
        self._start_failed = start_failed
        self.opening = True
        self._line = buffer.line(config.topic)
        self.now = runtime.clock.monotonic
        self._limited_log = runtime.limited_log
        self.pushes = config.actions[-1] != "PullServer"
        self.pusher = give_contexts(actions, runtime, parts.group, lambda: self.config)
        self.sinks: list[WaitsForServers] = [each for each in actions if waits_for_servers(each)]
        if self.pusher is not None:
            # Those that a receiver failed together do not come back together.
            self.outcomes.jitter = runtime.random.random
        path = config.order_key if is_json_path(config.order_key) else None
        self._pipeline = Pipeline(actions, json_path=path is not None)
        self._calling = Calling(
            self._pipeline,
            runtime,
            parts.node.calls,
            group=parts.group,
            topic=config.topic,
            ended=self._calls_ended,
            acted=parts.node.endings.acted,
        )
        self._running = Running(self._pipeline, self._calling, self.outcomes)
        self._gate = None if path is None else OrderKeyGate(self.outcomes, self._pipeline, self._calling, path)
        if config.is_low_level:
            self._source: Source = FetchedSource(parts.fetch_hooks)
        else:
            keeps = self._gate is not None
            self._source = parts.node.broker.open(self, self.group_queues, counters=self.counters, keeps_bodies=keeps)
        self._adopting = False
        # Nothing is read before the actions are open.
        self._pumping = True
        self._again = Later(runtime.scheduler, self.pump)
        self.made_bodies: MadeBodies | None = None
        most = BODIES_AT_ONCE if getattr(actions[-1], "keeps_bodies", False) else sys.maxsize
        self._admission = Admission(
            self.outcomes, config, runtime=runtime, again=self._again, count_max=most, is_timed=self._calling.is_timed
        )
        self.reading_stopped = False
        self._set_limits(config)

    # Life

    def start(self) -> None:
        """Open the actions, listen to the topic and begin to read: at once where all actions are plain.

        Raises:
            Exception: What an action's `open` raised; nothing is started then.
        """
        try:
            self._calling.open(self._opened)
        except BaseException:
            self._source.close()
            raise

    def _opened(self, error: Exception | None) -> None:
        """The actions are open, or one of them cannot be."""
        self.opening = self._pumping = False
        if error is not None:
            self._source.close()
            self._start_failed(error)
            return
        if self.draining:
            return
        for group_queue in self.group_queues:
            group_queue.rewind()
            self._take_over(group_queue)
        self._adopting = any(group_queue.adopted for group_queue in self.group_queues)
        self.outcomes.stops.begin(self.group_queues)
        for topic in self._topics:
            topic.listeners.append(self._arrived)
        # Queues may have come and gone while the actions were opened.
        known = [each.queue for each in self.group_queues if not each.retries]
        if known == list(self.topic.queues) or self._follows_queues():
            self.pump()

    def _take_over(self, group_queue: GroupQueue) -> None:
        group_queue.subscription = self
        if group_queue.reused_until < 0:
            group_queue.reused_until = self.now() + REUSED_TIMEOUTS * self.timeout_seconds

    def configure(self, config: SubscriptionConfig, waiting_max: int) -> None:
        """Change limits, timeouts, intervals and batch sizes of the running generation (D22)."""
        self.config = self.outcomes.config = config
        self.waiting_max = waiting_max
        self._admission.configure(config)
        self._set_limits(config)
        self.deadlines.set_timeout(self.timeout_seconds)
        self.pump()

    def _set_limits(self, config: SubscriptionConfig) -> None:
        self.batch_max = config.max_pull_batch_size
        self._read_ahead = max(READ_AHEAD_JOBS, 2 * config.max_pull_batch_size)
        self.timeout_seconds = config.timeout / 1000
        self._source.lag_max = config.consume_lag_max

    def set_paused(self, paused: bool) -> None:
        """Stop reading, running actions and handing out, or continue; what is out may be answered."""
        self.outcomes.paused = paused
        self.hands_out = not paused and not self.draining
        if self.hands_out:
            self.buffer.wake(self._line)
            self.pump()

    @property
    def reads_retries(self) -> bool:
        """Whether messages of it may come back from the group's retry topic."""
        return self._retry_group_queues > 0

    def begin_drain(self) -> None:
        """Read and hand out nothing more; what is out may still be answered."""
        if self.draining:
            return
        self.hands_out = False
        for topic in self._topics:
            if self._arrived in topic.listeners:
                topic.listeners.remove(self._arrived)
        self.buffer.drop(self.group_queues)
        self._calling.drain()
        self.outcomes.begin_drain()
        self._again.cancel()
        for group_queue in self.group_queues:
            # What was handed out before may be answered after its job is gone: such an answer must count.
            group_queue.uncertain_until = max(group_queue.uncertain_until, group_queue.queue.max_offset)
            group_queue.delivered_until = max(group_queue.delivered_until, group_queue.next)
            self.outcomes.abandon([job for job in group_queue.live.values() if job.state not in _KEPT_BY_DRAIN])

    @property
    def drained(self) -> bool:
        """Whether nothing is out, in an action or on its way to the dead letters."""
        if not self.draining or self.deadlines.open or self.outcomes.leaving.count:
            return False
        return not any(is_in_action(job) for group_queue in self.group_queues for job in group_queue.live.values())

    def stop(self) -> None:
        """End this generation. What is still out stays in flight for the next one until its deadline (D12).

        So do the keys of finished messages that are still out, and of those that are undecided: see `GroupQueue.apart`.
        """
        if self.outcomes.stopped:
            return
        self.begin_drain()
        self.outcomes.stop()
        self._source.close()
        for group_queue in self.group_queues:
            for job in list(group_queue.live.values()):
                delivery = job.delivery
                if job.state in (JobState.OUT, JobState.HELD) and delivery is not None:
                    group_queue.adopted[job.offset] = delivery.moved_on([])
                move(job, JobEvent.ABANDON)
            group_queue.live.clear()
            group_queue.subscription = None
        self._calling.end()
        if self.made_bodies is not None:
            self.made_bodies.close()

    def _arrived(self) -> None:
        """Read what became visible; the topic's listener."""
        known = len(self.group_queues) - self._retry_group_queues
        if len(self.topic.queues) == known or self._follows_queues():
            self._source.arrived()
            self.pump()

    def _follows_queues(self) -> bool:
        """Read the queues that the topic has now; False: some were taken away, and the generation has ended."""
        if gone := [each for each in self.group_queues if not each.retries and each.queue not in self.topic.queues]:
            self._revoked(gone)
            return False
        known = {each.queue for each in self.group_queues}
        for group_queue in self._more_group_queues([each for each in self.topic.queues if each not in known]):
            self._take_over(group_queue)
            self.group_queues.append(group_queue)
            self._source.add_group_queue(group_queue)
        return True

    # Reading and admission

    def pump(self) -> None:
        """Admit and read as far as permits, rate, caps and lag allow. Harmless to call at any time."""
        if self._pumping or self.outcomes.draining or self.outcomes.paused:
            return
        self._pumping = True
        try:
            if self._source.lag_max is not None:
                self._source.arrived()
            self._pump()
        except OSError as error:
            # The file of a queue cannot be opened, as without a descriptor: nothing may arrive that would look again.
            self._limited_log.note("reading_failed", self.group, topic=self.config.topic, error=str(error))
            self._again.unless_due(LOOK_SECONDS)
        finally:
            self._pumping = False

    def _pump(self) -> None:
        source, ready = self._source, self._ready
        for _ in range(READS_PER_PUMP):
            while ready:
                if self.made_bodies is not None and not self.made_bodies.has_room:
                    self._again.after(BODIES_LOOK_SECONDS)
                    return
                if not self._admit():
                    return
            if (source.caught_up and not self.reading_stopped) or not self._may_read():
                return
            count = READ_JOBS if self._gate is None else min(READ_JOBS, max(self.permits.free, GATED_JOBS))
            if not (count := self.buffer.read_max(self.group_queues, count)):
                self._again.unless_due(LOOK_SECONDS)
                return
            jobs = source.read(count)
            if jobs:
                self.buffer.budget.add_jobs(len(jobs), self.live_jobs)
                self._take_in(jobs)
        self._again.after(0.0)

    def _take_in(self, jobs: list[UpstreamJob]) -> None:
        """Take jobs to the order gate and through it: READY, or WAITING behind their key."""
        if self.config.order_key is None:
            for job in jobs:
                job.state = _READY
            self._ready.extend(jobs)
            return
        if self._gate is not None:
            jobs = self._gate.pass_on(jobs)
        unordered = self.order.submit_many(jobs, self.make_ready)
        if unordered:
            self.counters.unordered.value += unordered
        if self._pipeline.rebuilds:
            for job in jobs:
                if job.state is _WAITING:
                    job.drop_data()
                    job.step = -1

    @property
    def gate_holder(self) -> UpstreamJob | None:
        """The job that holds the order gate closed until its retry, if there is one."""
        gate = self._gate
        return gate.backlog[0] if gate is not None and gate.closed and gate.backlog else None

    def reopen_gate(self) -> None:
        """End the wait of the job that holds the gate; harmless when none does."""
        self._gate_wait.cancel()
        if self._gate is None or self.draining:
            return
        if self.outcomes.paused:
            self._gate_wait.after(LOOK_SECONDS)
            return
        self._take_in(self._gate.reopen())
        self.pump()

    def _may_read(self) -> bool:
        buffer = self.buffer
        waiting_max = self.waiting_max
        if waiting_max > WAITING_EASED and buffer.budget.level:
            waiting_max = WAITING_EASED
        stops = self.outcomes.stops
        if self.order.waiting + stops.held >= waiting_max:
            if not self.reading_stopped:
                self.reading_stopped = True
                self.counters.reading_stopped.add()
                waiting = self.order.waiting + stops.held
                self._limited_log.note("reading_stopped_by_keys", self.group, topic=self.config.topic, waiting=waiting)
            return False
        self.reading_stopped = False
        if self._gate is not None and self._gate.closed:
            return False
        if self._line.jobs >= self._read_ahead:
            return False
        permits = self.permits
        return permits.used < permits.maximum and buffer.has_room(self._line, self.batch_max)

    def _admit(self) -> bool:
        """Run ready jobs as far as limits go; whether any could go."""
        admitted, went = self._admission.next()
        return (not admitted or self._admission.run(self._run, admitted)) and went

    # Actions

    def _run(self, jobs: list[UpstreamJob]) -> None:
        """Run RUNNING jobs through their actions, once their bodies are in memory."""
        if self.pushes:
            self._line.asked_at = self.now()
        if self._adopting:
            # What clients have of an earlier generation is theirs until its timeout, whatever this one would do.
            jobs = self.outcomes.readopt(jobs)
            self._adopting = any(group_queue.adopted for group_queue in self.group_queues)
        if self._source.bodies_come_later:
            jobs = self._source.fetch(jobs, self._fetched)
        if jobs:
            self._running.run(jobs)

    def _fetched(self, jobs: list[UpstreamJob]) -> None:
        """Go on with jobs whose bodies came; those that were completed meanwhile end here."""
        if self.outcomes.stopped:
            return
        for job in jobs:
            if job.state is JobState.HELD and job.delivery is None:
                self.outcomes.let_go(job)
        if ready := [job for job in jobs if job.state is _RUNNING]:
            self._running.run(ready)
        self.pump()

    def offer(self, jobs: Sequence[UpstreamJob]) -> None:
        """Put RUNNING jobs into the pull buffer; what PullServer does."""
        if self._pipeline.reads_data:
            for job in jobs:
                job.drop_data()
        if self.draining:
            # A call has ended meanwhile: the next generation reads them, and in the buffer they would stay for ever.
            self.outcomes.abandon(jobs)
        else:
            self.buffer.offer(jobs)

    def answered(self, job: UpstreamJob, answer: Status | Exception) -> bool:
        """Carry out the answer for a job that an action kept; see `Job.answer`."""
        if answer is Status.ASYNCHRONIZED:
            return False
        if self.outcomes.stopped:
            # The next generation may have the message again; its consumption counts all the same.
            group_queue = job.group_queue
            return answer is Status.FINISH and not group_queue.revoked and group_queue.tracker.finish(job.offset)
        if not is_in_action(job):
            return False
        job.group_queue.answered_at = self.now()
        self._running.answered(job, answer)
        self.pump()
        return True

    def _calls_ended(
        self, step: int, jobs: list[UpstreamJob], answers: list[Status | Exception], successors: list[UpstreamJob]
    ) -> None:
        """Carry out the answers of calls of one action, and let those continue that waited for these calls."""
        if self.outcomes.stopped:
            # The next generation may have the message again; its consumption counts all the same.
            last = self._running.is_last(step)
            for job, answer in zip(jobs, answers, strict=True):
                consumed = answer is Status.FINISH or (last and answer is Status.CONTINUE)
                if consumed and not job.group_queue.revoked:
                    job.group_queue.tracker.finish(job.offset)
        else:
            now = self.now()
            for job in jobs:
                job.group_queue.answered_at = now
            self._running.ended(step, jobs, answers)
            self.pump()
        for job in successors:
            job.subscription.earlier_call_ended(job)

    def earlier_call_ended(self, job: UpstreamJob) -> None:
        """Go on with a job that an action of an earlier generation had until now."""
        if self.outcomes.stopped or not is_in_action(job):
            return
        if job.state is JobState.HELD:
            self.outcomes.let_go(job)
        elif not self.outcomes.was_finished(job):
            if self.draining:
                self.outcomes.abandon([job])
            elif not self.outcomes.postponed(job):
                move(job, JobEvent.RETRY)
                self.outcomes.retry_now(job)
        self.pump()

    # For jobs, source and gate

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Watch a batch that the buffer gave to a client."""
        self.deadlines.add(delivery)
        self.counters.delivered.value += delivery.open
        self.counters.batches.value += 1
        self.outcomes.latency.handed_out(delivery, self._source.stored_ms)
        if not self._pumping and self._line.jobs < self._read_ahead:
            self.pump()

    def complete_undecided(self, job: UpstreamJob) -> None:
        """End an UNDECIDED job whose offset is finished: its record, of an earlier generation, is durable after all."""
        self.outcomes.apart.complete(job)

    def expire(self, job: UpstreamJob) -> None:
        """End a job without a holder, since its log file is deleted."""
        self.outcomes.expire(job)

    # What others read of it

    def live_jobs(self) -> int:
        """Count its unfinished jobs."""
        return sum([len(each.live) for each in self.group_queues])

    @property
    def held_by_rate(self) -> int:
        """How often its rate held messages back."""
        return self._admission.held_by_rate

    @property
    def throttled(self) -> list[str]:
        """The limits that hold messages back now, each by its setting and value."""
        met = list(self._admission.limits_met(self.group_queues, more=not self._source.caught_up))
        if self.pusher is not None and (push := self.pusher.view()).held:
            met.append(f"httpMaxTps {push.rate or 0:,g}")
        return met

    @property
    def draining(self) -> bool:
        """Whether `begin_drain` was called."""
        return self.outcomes.draining

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Return when a job's message was stored; None when it cannot be read."""
        return self._source.stored_ms(job)

    def keep_body(self, job: UpstreamJob, body: bytes) -> None:
        """Have clients given this body of a job that is about to be offered."""
        if self.made_bodies is None:
            self.made_bodies = MadeBodies(self.buffer.budget)
        self.made_bodies.keep(job, body)

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a job's body; raises MessageUnreadable."""
        return self._source.body(job)

    def load(self, job: UpstreamJob) -> Message:
        """Read a job's message; raises MessageUnreadable."""
        return self._source.load(job)

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Return offsets and slices of a batch for its reply; see `Source.slices`."""
        return self._source.slices(jobs) if self.made_bodies is None else None

    def sort_out(self, jobs: Sequence[UpstreamJob], bytes_max: int) -> PartialBatch:
        """Look at the jobs of a batch one by one; bodies that were made take the place of those in the log."""
        reply = PartialBatch([], [], [], [])
        room = bytes_max
        for place, job in enumerate(jobs):
            try:
                slices = self._source.located(job)
            except MessageUnreadable:
                reply.unreadable.append(job)
                continue
            except BodyUnprocessable as error:
                reply.unusable.append((job, error))
                continue
            if job.made is not None:
                slices = with_body(slices, job.made.data)
            _, body_at, _, _, end = slices
            room -= end - body_at
            if room < 0 and reply.messages:
                reply.left.extend(jobs[place:])
                break
            reply.messages.append((job.offset, slices))
        return reply

    def why_unreadable(self, job: UpstreamJob) -> MessageUnreadable:
        """Return why a message of `PartialBatch.unreadable` cannot be read."""
        try:
            self._source.located(job)
        except (MessageUnreadable, BodyUnprocessable) as error:
            return error if isinstance(error, MessageUnreadable) else MessageUnreadable("damaged")
        return MessageUnreadable("damaged")

    def message_id(self, job: UpstreamJob) -> str | None:
        """Return the id by which its producer knows a message, where it can be read."""
        return self._source.message_id(job)
