"""What a group says about itself: lag, what is out to whom, and keys that hold others up (D15). Cold path."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import store_timestamp
from broker.retention import Left
from broker.runtime.seams import Clock
from broker.store import Store
from upstream.delivery.pauses import Pause
from upstream.delivery.subscription import Subscription
from upstream.history import FAILING_ATTEMPTS
from upstream.job import Lane, UpstreamJob, text_of
from upstream.losses import NONE, Loss
from upstream.state import State

LISTED_MAX = 10_000
"""Deliveries and keys named at most; the totals say how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """One queue: committed offset (the next one to read, R72), end of the queue, and how far they are apart.

    `lag_seconds` is the age of the message at the committed offset, 0.0 when the lag is 0; `left` what is left until
    retention deletes that message.
    """

    qid: str
    committed: int
    produced: int
    lag: int
    lag_seconds: float
    left: Left | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckKey:
    """An order key whose first job holds others up.

    `attempts` counts deliveries of this process and failed attempts before it, whichever is more; `holder` is None
    while nobody has the job; `since_ms` (wall clock) is when it first failed or, while it has not, went out. `reason`
    is that of the last failure, "" for none. `earlier`: it had failed before `since_ms`, in an earlier process or
    generation. Also used for messages without a key (`key` is None) that fail again and
    again.
    """

    key: str | None
    topic: str
    qid: str
    offset: int
    attempts: int
    holder: str | None
    since_ms: int
    waiting: int
    state: str
    reason: str = ""
    earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStats:
    """One message that is out."""

    topic: str
    qid: str
    offset: int
    holder: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """A group on one topic.

    `state`: running, draining, starting, waiting (`owner` consumes its queues, D36) or stopped. `in_flight` counts
    messages that are out, `buffered` those ready for the next pull, `waiting` those behind their key, `retrying`
    and `burying` those in these states. `paused`: an operator paused the topic or its group. `loss` is what
    retention took. `failing` are messages that have failed FAILING_ATTEMPTS times or more and are not finished, those
    with the most attempts first; `burials_refused` counts those whose dead letter the store has not taken.
    `problem` says why it does not start.
    """

    topic: str
    state: str
    queues: list[QueueStats]
    in_flight: int = 0
    buffered: int = 0
    waiting: int = 0
    retrying: int = 0
    burying: int = 0
    reading_stopped: bool = False
    paused: Pause | None = None
    stuck_keys: list[StuckKey]
    stuck_keys_total: int = 0
    failing: list[StuckKey] = field(default_factory=list)
    failing_total: int = 0
    burials_refused: int = 0
    loss: Loss = NONE
    owner: str | None = None
    problem: str = ""


class TopicOffsets(NamedTuple):
    """Where a group stands in one topic: by qid, the committed offset and the end of the queue."""

    topic: str
    consumed: dict[str, int]
    produced: dict[str, int]

    @classmethod
    def of(cls, topic: str, lanes: Collection[Lane]) -> TopicOffsets:
        """Read it from the queues' lanes."""
        return cls(
            topic,
            {lane.qid: lane.tracker.watermark for lane in lanes},
            {lane.qid: lane.queue.max_offset for lane in lanes},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A whole group; deliveries are listed oldest first, at most LISTED_MAX of them."""

    group: str
    topics: list[TopicStats]
    in_flight: list[DeliveryStats]
    in_flight_total: int
    parked: int
    buffered_bytes: int


class StatsReader:
    """Reads the state of lanes and subscriptions; `clock` turns monotonic moments into wall-clock ones."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._wall_us = clock.wall_us()
        self._now = clock.monotonic()

    def queue(self, lane: Lane) -> QueueStats:
        """Lag of one queue."""
        committed, produced = lane.tracker.watermark, lane.queue.max_offset
        seconds, left = 0.0, None
        if committed < produced:
            try:
                physical, size, _ = lane.queue.read(max(committed, lane.queue.min_offset), 1)[0]
                stored_ms = store_timestamp(self._store.read(physical, size))
                seconds = max(0.0, (self._wall_us - stored_ms * 1000) / 1_000_000)
                left = self._store.retention.left(physical, stored_ms)
            except (DamagedRecord, RecordGone, IndexError):
                # The message cannot be read; it will be skipped when its turn comes.
                seconds = 0.0
        return QueueStats(
            qid=lane.qid,
            committed=committed,
            produced=produced,
            lag=max(0, produced - committed - lane.queue.void_above(committed)),
            lag_seconds=seconds,
            left=left,
        )

    def topic(
        self,
        name: str,
        state: str,
        lanes: Iterable[Lane],
        subscription: Subscription | None,
        pause: Pause | None = None,
        *,
        loss: Loss = NONE,
        owner: str | None = None,
        problem: str = "",
    ) -> tuple[TopicStats, list[DeliveryStats]]:
        """Figures of one topic, and what is out of it."""
        lanes = list(lanes)
        counts = dict.fromkeys(State, 0)
        out: list[DeliveryStats] = []
        heads: list[UpstreamJob] = []
        failing: list[UpstreamJob] = []
        burials_refused = 0
        waiting, of_waiting = 0, State.WAITING
        for lane in lanes:
            for job in lane.live.values():
                if job.state is of_waiting:
                    # There may be a hundred thousand of these (D15), and every scrape comes here.
                    waiting += 1
                    continue
                counts[job.state] += 1
                if job.state is State.OUT and job.delivery is not None:
                    since_ms = self._to_wall(job.delivery.since)
                    address = job.delivery.holder.address
                    out.append(
                        DeliveryStats(topic=name, qid=lane.qid, offset=job.offset, holder=address, since_ms=since_ms)
                    )
                elif job.state is State.BURYING and subscription is not None:
                    burials_refused += subscription.outcomes.burial_refused(job)
                if job.successor is not None:
                    heads.append(job)
                if job.history is not None and job.history.attempts >= FAILING_ATTEMPTS:
                    failing.append(job)
        heads.sort(key=self._since)
        failing.sort(key=lambda job: -job.attempts)
        stats = TopicStats(
            topic=name,
            state=state,
            queues=[self.queue(lane) for lane in lanes if not lane.retries],
            in_flight=counts[State.OUT],
            buffered=counts[State.BUFFERED],
            waiting=waiting,
            retrying=counts[State.RETRYING],
            burying=counts[State.BURYING],
            reading_stopped=subscription is not None and subscription.reading_stopped,
            paused=pause,
            stuck_keys=[self._stuck(job) for job in heads[:100]],
            stuck_keys_total=len(heads),
            failing=[self._stuck(job) for job in failing[:100]],
            failing_total=len(failing),
            burials_refused=burials_refused,
            loss=loss,
            owner=owner,
            problem=problem,
        )
        return stats, out

    def _stuck(self, job: UpstreamJob) -> StuckKey:
        waiting, behind = 0, job.successor
        of_waiting = State.WAITING
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
            since_ms=self._to_wall(self._since(job)),
            waiting=waiting,
            state=job.state.value,
            reason=job.history.reason if job.history is not None else "",
            earlier=job.history is not None and job.history.earlier,
        )

    def _since(self, job: UpstreamJob) -> float:
        return stuck_since(job, self._now)

    def _to_wall(self, moment: float) -> int:
        return (self._wall_us - round((self._now - moment) * 1_000_000)) // 1000


def stuck_since(job: UpstreamJob, now: float) -> float:
    """Monotonic seconds at which a job first failed or, while it has not, went out; now when it did neither."""
    if job.history is not None:
        return job.history.since
    return job.delivery.since if job.delivery is not None else now
