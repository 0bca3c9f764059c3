"""What a group says about itself: lag, what is out to whom, and keys that hold others up (D15). Cold path."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, TypeVar

from broker.runtime.seams import Clock
from upstream.delivery.generations import TopicPlace
from upstream.delivery.pauses import Pause
from upstream.history import FAILING_ATTEMPTS
from upstream.job import GroupQueue, UpstreamJob, text_of
from upstream.retention_losses import NONE, Loss
from upstream.source import Times
from upstream.state import JobState
from upstream.views import Delivery, QueueLag, StuckCall, StuckKey, SubscriptionView

LISTED_MAX = 10_000
"""Deliveries named at most; the totals say how many there are."""
KEYS_MAX = 100
"""Keys, and failing messages, of a topic that are named."""

T = TypeVar("T", int, float)


class TopicOffsets(NamedTuple):
    """Where a group is in one topic: by qid, the committed offset, and the end and start of the queue."""

    topic: str
    consumed: dict[str, int]
    produced: dict[str, int]
    kept: dict[str, int]

    @classmethod
    def of(cls, topic: str, group_queues: Collection[GroupQueue]) -> TopicOffsets:
        """Read it from the group queues."""
        return cls(
            topic,
            {group_queue.qid: group_queue.tracker.watermark for group_queue in group_queues},
            {group_queue.qid: group_queue.queue.max_offset for group_queue in group_queues},
            {group_queue.qid: group_queue.queue.min_offset for group_queue in group_queues},
        )


class JobReader:
    """Reads the state of jobs; `clock` turns monotonic moments into wall-clock ones."""

    def __init__(self, clock: Clock) -> None:
        self.wall_us = clock.wall_us()
        self._now = clock.monotonic()

    def stuck(self, job: UpstreamJob) -> StuckKey:
        """Tell of a job that holds others up, or has failed."""
        waiting, behind = 0, job.successor
        of_waiting = JobState.WAITING
        while behind is not None:
            waiting += behind.state is of_waiting
            behind = behind.successor
        delivery = job.delivery
        return StuckKey(
            key=text_of(job.key),
            topic=job.topic,
            qid=job.qid,
            offset=job.offset,
            attempts=max(job.deliveries, job.attempts),
            holder=delivery.holder.address if delivery is not None else None,
            holder_client=(delivery.holder.client or None) if delivery is not None else None,
            since_ms=self.to_wall(self.since(job)),
            waiting=waiting,
            state=job.state.value,
            reason=None if job.history is None else job.history.reason or None,
            earlier=job.history is not None and job.history.earlier,
        )

    def since(self, job: UpstreamJob) -> float:
        """Monotonic seconds at which a job first failed or, while it has not, went out; now when it did neither."""
        if job.history is not None:
            return job.history.since
        return job.delivery.since if job.delivery is not None else self._now

    def to_wall(self, moment: float) -> int:
        """Turn monotonic seconds into ms of the wall clock."""
        return (self.wall_us - round((self._now - moment) * 1_000_000)) // 1000


class StatsReader:
    """Reads the state of group queues and subscriptions."""

    def __init__(self, *, times: Times, clock: Clock) -> None:
        self._jobs = JobReader(clock)
        self._times = times

    def queue(self, group_queue: GroupQueue) -> QueueLag:
        """Lag of one queue."""
        committed, produced = group_queue.tracker.watermark, group_queue.queue.max_offset
        seconds, left = 0.0, None
        # A message that cannot be read will be skipped when its turn comes.
        if committed < produced and (found := self._times.stored(group_queue.queue, committed)) is not None:
            seconds = max(0.0, (self._jobs.wall_us - found.stored_ms * 1000) / 1_000_000)
            left = found.left
        return QueueLag(
            qid=group_queue.qid,
            committed=committed,
            produced=produced,
            lag=max(0, produced - committed - group_queue.queue.void_above(committed)),
            lag_seconds=round(seconds, 3),
            expires_seconds=None if left is None or left.seconds is None else round(left.seconds, 3),
            expires_bytes=None if left is None else left.bytes,
            expires_share=None if left is None else left.share,
        )

    def retries(self, name: str, group_queues: Iterable[GroupQueue], loss: Loss, *, running: bool) -> SubscriptionView:
        """Figures of a retry topic, apart from those whose failed messages it holds."""
        queues = [self.queue(group_queue) for group_queue in group_queues]
        return subscription_view(name, "running" if running else "stopped", queues, loss)

    def topic(
        self,
        name: str,
        state: str,
        group_queues: Collection[GroupQueue],
        place: TopicPlace,
        pause: Pause | None = None,
        *,
        loss: Loss = NONE,
        unknown: str | None = None,
    ) -> tuple[SubscriptionView, list[Delivery]]:
        """Figures of one topic, and what is out of it."""
        subscription = place.subscription
        counts = dict.fromkeys(JobState, 0)
        out: list[Delivery] = []
        heads: list[UpstreamJob] = []
        failing: list[UpstreamJob] = []
        stopped: list[UpstreamJob] = []
        calls_stuck: list[StuckCall] = []
        dead_letters_refused = 0
        waiting, of_waiting = 0, JobState.WAITING
        for group_queue in group_queues:
            calls_stuck += self._stuck_calls(group_queue)
            for job in group_queue.live.values():
                if job.state is of_waiting:
                    # There may be a hundred thousand of these (D15), and every scrape comes here.
                    waiting += 1
                    continue
                counts[job.state] += 1
                if job.state is JobState.OUT and job.delivery is not None:
                    since_ms = self._jobs.to_wall(job.delivery.since)
                    holder = job.delivery.holder
                    out.append(
                        Delivery(
                            topic=name,
                            qid=group_queue.qid,
                            offset=job.offset,
                            holder=holder.address,
                            holder_client=holder.client or None,
                            since_ms=since_ms,
                        )
                    )
                elif job.state in (JobState.BURYING, JobState.UNDECIDED) and subscription is not None:
                    dead_letters_refused += subscription.outcomes.leaving.is_refused(job)
                    if subscription.outcomes.leaving.is_departing(job):
                        continue
                if job.state is JobState.STOPPED:
                    stopped.append(job)
                    continue
                if job.successor is not None:
                    heads.append(job)
                if job.history is not None and job.history.attempts >= FAILING_ATTEMPTS:
                    failing.append(job)
        heads.sort(key=self._jobs.since)
        failing.sort(key=lambda job: -job.attempts)
        stopped.sort(key=self._jobs.since)
        stats = subscription_view(
            name,
            state,
            [self.queue(each) for each in group_queues if not each.retries],
            loss,
            in_flight=counts[JobState.OUT],
            waiting=waiting,
            buffered=counts[JobState.BUFFERED],
            retrying=counts[JobState.RETRYING],
            burying=counts[JobState.BURYING],
            in_calls=sum(len(group_queue.calls) for group_queue in group_queues),
            calls_stuck_total=len(calls_stuck),
            calls_stuck=sorted(calls_stuck, key=lambda each: each.since_ms)[:KEYS_MAX],
            reading_stopped=subscription is not None and subscription.reading_stopped,
            throttled=() if subscription is None else subscription.throttled,
            owner=place.owner,
            paused_since_ms=None if pause is None else pause.since_ms,
            paused_by=None if pause is None else pause.who,
            failing_total=len(failing),
            failing=[self._jobs.stuck(job) for job in failing[:KEYS_MAX]],
            stopped_total=len(stopped),
            stopped=[self._jobs.stuck(job) for job in stopped[:KEYS_MAX]],
            dead_letters_refused=dead_letters_refused,
            problem=place.problem or None,
            unknown=unknown,
            stuck_keys_total=len(heads),
            stuck_keys=[self._jobs.stuck(job) for job in heads[:KEYS_MAX]],
            push=subscription.pusher.view() if subscription is not None and subscription.pusher is not None else None,
            sinks=[] if subscription is None else [each for sink in subscription.sinks for each in sink.servers_away()],
        )
        return stats, out

    def _stuck_calls(self, group_queue: GroupQueue) -> list[StuckCall]:
        return [
            StuckCall(
                action=call.action,
                qid=group_queue.qid,
                offset=offset,
                since_ms=self._jobs.to_wall(call.since),
                limit_ms=call.limit_ms,
            )
            for offset, call in group_queue.calls.items()
            if call.late
        ]


def subscription_view(
    topic: str, state: str, queues: list[QueueLag], loss: Loss, *, unknown: str | None = None, **figures: Any
) -> SubscriptionView:
    """Return the view of a group on a topic, with what its queues say together; nothing of queues not all known."""
    return SubscriptionView(
        topic=topic,
        state=state,
        lag=sum(each.lag for each in queues) if unknown is None else None,
        lag_seconds=max((each.lag_seconds for each in queues), default=0.0) if unknown is None else None,
        unknown=unknown,
        lost=loss.messages,
        lost_at_ms=loss.at_ms or None,
        expires_seconds=_least(each.expires_seconds for each in queues),
        expires_bytes=_least(each.expires_bytes for each in queues),
        expires_share=_least(each.expires_share for each in queues),
        queues=queues,
        **figures,
    )


def _least(limits: Iterable[T | None]) -> T | None:
    return min((each for each in limits if each is not None), default=None)
