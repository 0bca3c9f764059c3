"""What is told of one generation of a subscription, and of its jobs' messages; nothing here changes what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyddmq.actions import BodyUnprocessable, Message, MessageUnreadable
from upstream.delivery.transformed_bodies import MadeBodies, with_body
from upstream.job import GroupQueue, PartialBatch, Slices, UpstreamJob
from upstream.outcomes.outcomes import Outcomes
from upstream.running.action_context import Pushes, WaitsForServers
from upstream.running.admission import Admission
from upstream.source import Source
from upstream.waiting.buffer import PullBuffer


class SubscriptionFacts:
    """The part of `Subscription` that only looks.

    Attributes:
        buffer: The group's pull buffer.
        group_queues: The queues that are read.
        outcomes: What becomes of its jobs.
        pusher: The action that pushes to servers of others and can say how these are; None where none does.
        sinks: Its actions that write into servers of others.
        now: Monotonic seconds.
        made_bodies: Bodies in the place of those in the log, where the last action keeps some; None until then.
    """

    buffer: PullBuffer
    group_queues: list[GroupQueue]
    pusher: Pushes | None
    sinks: list[WaitsForServers]
    now: Callable[[], float]
    made_bodies: MadeBodies | None = None
    outcomes: Outcomes
    _admission: Admission
    _source: Source

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
        push = None if self.pusher is None else self.pusher.view()
        if push is not None and push.held:
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
        except MessageUnreadable as error:
            return error
        except BodyUnprocessable:
            pass
        return MessageUnreadable("damaged")

    def message_id(self, job: UpstreamJob) -> str | None:
        """Return the id by which its producer knows a message, where it can be read."""
        return self._source.message_id(job)
