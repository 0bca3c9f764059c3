"""What a generation does for its jobs, and for those who work on jobs alone, whatever reads them and when.

Jobs ask it for what their source has, and tell it what actions decided; results, retention and calls of actions end
jobs by it. `upstream.delivery.subscription` is the generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from broker.runtime.seams import Clock
from pyddmq.actions import Message, Status
from upstream.delivery.action_calls import ActionCalls
from upstream.delivery.buffer import PullBuffer
from upstream.delivery.figures.endings import Ending
from upstream.delivery.made_bodies import MadeBodies
from upstream.delivery.outcomes import Outcomes
from upstream.delivery.running import Running, is_in_action
from upstream.job import Generation, Reply, Slices, Unit, UpstreamJob
from upstream.state import WITHOUT_PERMIT, Event, State, move

if TYPE_CHECKING:
    from upstream.source import Source


class GenerationBase:
    """See the module.

    Attributes:
        outcomes: Completes its jobs.
        buffer: The group's pull buffer.
        made_bodies: Bodies that clients get in the place of those in the log; None while there are none.
    """

    outcomes: Outcomes
    buffer: PullBuffer
    made_bodies: MadeBodies | None
    _source: Source
    _clock: Clock
    _running: Running
    _calling: ActionCalls

    def pump(self) -> None:
        """Go on, as far as permits, rate and caps allow."""
        raise NotImplementedError

    @property
    def draining(self) -> bool:
        """Whether `begin_drain` was called."""
        return self.outcomes.draining

    # Answers of actions

    def answered(self, job: UpstreamJob, answer: Status | Exception) -> bool:
        """Carry out the answer for a job that an action kept; see `Job.answer`."""
        if answer is Status.ASYNCHRONIZED:
            return False
        if self.outcomes.stopped:
            # The next generation may have the message again; its consumption counts all the same.
            return answer is Status.FINISH and job.group_queue.tracker.finish(job.offset)
        if not is_in_action(job):
            return False
        job.group_queue.answered_at = self._clock.monotonic()
        self._running.answered(job, answer)
        self.pump()
        return True

    def _calls_ended(
        self, step: int, jobs: list[UpstreamJob], answers: list[Status | Exception], successors: list[UpstreamJob]
    ) -> None:
        """Carry out the answers of calls of one action, and let those go on that waited for these calls."""
        if self.outcomes.stopped:
            # The next generation may have the message again; its consumption counts all the same.
            last = self._running.is_last(step)
            for job, answer in zip(jobs, answers, strict=True):
                if answer is Status.FINISH or (last and answer is Status.CONTINUE):
                    job.group_queue.tracker.finish(job.offset)
        else:
            now = self._clock.monotonic()
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
        if job.state is State.HELD:
            self.outcomes.let_go(job)
        elif not self.outcomes.was_finished(job):
            if self.draining:
                del job.group_queue.live[job.offset]
                move(job, Event.ABANDON)
            elif not self.outcomes.postponed(job):
                move(job, Event.RETRY)
                self.outcomes.retry_now(job)
        self.pump()

    # Ends that are told from outside

    def complete_undecided(self, job: UpstreamJob) -> None:
        """End an UNDECIDED job whose offset is finished: its record, of an earlier generation, is durable after all."""
        self.outcomes.apart.complete(job)

    def expire(self, job: UpstreamJob) -> None:
        """End a job that nobody has, for its log file goes: with its permit; its key goes on with the next one."""
        state = job.state
        if state is State.BUFFERED:
            self.buffer.forget(job)
        move(job, Event.EXPIRE)
        self.outcomes.latency.ended(job, Ending.LOST)
        job.drop_data()
        if state in (State.READ, State.WAITING):
            # A waiting one stays in its chain as a finished link, which `OrderQueue.release` passes over.
            job.group_queue.forget(job.offset)
        else:
            self.outcomes.over(job, held_permit=state not in WITHOUT_PERMIT)

    # What jobs have of their source

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Return when a job's message was stored; None when it cannot be read."""
        return self._source.stored_ms(job)

    def refused(self, unit: Unit) -> None:
        """Take note of a message that nobody of the group gets: its tags, or the stress flag, rule it out."""
        latency = self.outcomes.latency
        if latency.is_recorded:
            physical, size, _, offset, group_queue = unit
            latency.ended(
                UpstreamJob(cast("Generation", self), group_queue, offset, physical, size, None), Ending.REFUSED
            )

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a job's body; raises MessageUnreadable."""
        return self._source.body(job)

    def load(self, job: UpstreamJob) -> Message:
        """Read a job's message; raises MessageUnreadable."""
        return self._source.load(job)

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Return offsets and slices of a batch for its reply; see `Source.slices`."""
        return self._source.slices(jobs) if self.made_bodies is None else None

    def sort_out(self, jobs: Sequence[UpstreamJob], bytes_max: int) -> Reply:
        """Look at the jobs of a batch one by one; see `Source.sort_out`."""
        if self.made_bodies is not None:
            return self.made_bodies.sort_out(self._source, jobs, bytes_max)
        return self._source.sort_out(jobs, bytes_max)

    def message_id(self, job: UpstreamJob) -> str | None:
        """Return the id by which its producer knows a message, where it can be read."""
        return self._source.message_id(job)
